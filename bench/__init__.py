"""The benchmark: it measures k8spilot and its alternatives in one run on the lab's real node (`python -m bench`)."""
