"""HTCondor execution points in Kubernetes pods, each job in a sibling container with its own image.

In the order in which things happen in a pod: `k8spilot run` (cli) checks what a pilot needs (preflight), writes
HTCondor's configuration (condor), and becomes the supervisor, which starts HTCondor and the engine. The engine serves
the Docker Engine API (docker), changes the image of the payload container through the Kubernetes API (kube), and runs
each job there (payload, by payload_init). It finds and measures GPUs (gpu), asks registries what an image is
(registry), and reports what happens (telemetry). Without any I/O: model, settings. For all of them: common. The
provisioner is a process of its own, which makes such pods while jobs wait.
"""

__version__ = "0.1.0.dev0"
