"""The Kubernetes API, as far as a pilot uses it: its own pod."""
