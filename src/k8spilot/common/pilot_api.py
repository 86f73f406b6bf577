"""Paths of the engine's own HTTP interface, which the Docker sockets serve beside the Docker Engine API.

The engine is the server. The clients are `k8spilot status`, HTCondor's GPU inventory and GPU monitor, the starter
program, and the HTCondor agent.
"""

from typing import Final

STATUS: Final = "/k8spilot/status"
GPUS: Final = "/k8spilot/gpus"
INVENTORY: Final = "/k8spilot/gpus/inventory"
"""Output of MACHINE_RESOURCE_INVENTORY_GPUs."""
GPU_MONITOR: Final = "/k8spilot/gpu/monitor"
"""Stream of the output of HTCondor's GPU monitor."""
NEXT_JOB: Final = "/k8spilot/next-job"
"""Answers when the slot is ready for the files of the next job."""
LINK: Final = "/k8spilot/link"
"""WebSocket of the HTCondor agent."""
FACTS: Final = "/k8spilot/facts"
"""Facts about the pod that HTCondor's container needs before HTCondor starts."""
