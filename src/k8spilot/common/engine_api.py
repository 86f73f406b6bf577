"""Paths of the engine's own HTTP interface, which the Docker sockets serve beside the Docker Engine API.

The engine is at one end. At the other are `k8spilot status`, HTCondor's inventory of GPUs and GPU monitor, the starter
program, and the HTCondor agent.
"""

from typing import Final

STATUS: Final = "/k8spilot/status"
GPUS: Final = "/k8spilot/gpus"
INVENTORY: Final = "/k8spilot/gpus/inventory"
"""What MACHINE_RESOURCE_INVENTORY_GPUs prints."""
GPU_MONITOR: Final = "/k8spilot/gpu/monitor"
"""A stream: what HTCondor's GPU monitor prints."""
NEXT_JOB: Final = "/k8spilot/next-job"
"""Answers when the slot is ready for the files of the next job."""
LINK: Final = "/k8spilot/link"
"""A WebSocket: the HTCondor agent's."""
FACTS: Final = "/k8spilot/facts"
"""What HTCondor's container needs to know of the pod before HTCondor starts."""
