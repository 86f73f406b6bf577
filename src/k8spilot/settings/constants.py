"""Names and times that the settings and other parts of k8spilot share, and that nobody can set."""

from typing import Final

SENDS_CREDENTIALS: Final = "X-K8spilot-Sends-Credentials"
"""Header of HTCondor's docker client for a job that sends credentials (docker_send_credentials)."""
KILLING_SECONDS: Final = 20
"""Seconds that HTCondor waits for a starter that kills its job at once (KILLING_TIMEOUT)."""
MARGIN_SECONDS: Final = 20
"""Seconds of the pod's grace period for the end of HTCondor's daemons and the payload container."""
PILOT: Final = "pilot"
"""Name of the container that runs k8spilot."""
ENGINE: Final = "engine"
"""Name of the engine's container, if the engine has its own (components/restricted)."""
SLOT_SIZES: Final = "K8SPILOT_SLOT_SIZES"
"""Variable of the setting slot_sizes, which the pilot changes where containers cannot be resized."""
PREFIX: Final = "K8SPILOT_"
"""Prefix of the project's own variables."""
