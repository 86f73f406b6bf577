"""What every package may use: errors, logs, and small helpers. Imports nothing else of k8spilot."""
