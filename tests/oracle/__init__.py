"""k8spilot beside a real dockerd: the same docker commands, and the same jobs, through both."""
