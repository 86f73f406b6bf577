"""The commands of `k8spilot`."""
