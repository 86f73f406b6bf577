"""What k8spilot reckons with, without any input or output: states, references, commands, results."""
