"""Code for every package: errors, logs, and small helpers. This package imports no other package of k8spilot."""
