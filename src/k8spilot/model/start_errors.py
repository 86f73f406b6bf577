"""Messages of the kubelet about a container that does not start, in words for the owner of its image.

The runtime's message is a chain of its own steps, with paths of the node. A hold reason has a limited length, so that
the cause, which comes last, would be cut off.
"""

import re
from typing import Final

from k8spilot.model.crio_words import unwrap

_START: Final = re.compile(
    r"(?P<reason>RunContainerError|CreateContainer\w*Error|PostStartHookError): (?P<words>.*)", re.DOTALL
)
_STEP: Final = re.compile(
    r"(?:failed to (?:create|start) containerd task(?: \"[^\"]*\")?|failed to create shim task|"
    r"OCI runtime (?:create|start) failed|(?:runc|crun) (?:create|start) failed|unable to start container process|"
    r"error during container init|failed to generate container \"[^\"]*\" spec|failed to generate spec|"
    r"container_linux\.go:\d+|starting container process caused|rpc error: code = \w+ desc =):? "
)
_MOUNT: Final = re.compile(
    r"error mounting \"[^\"]*\" to rootfs at \"(?P<place>[^\"]*)\": (?:.*: )?(?P<cause>[^:]*)", re.DOTALL
)
_NODE: Final = (
    r"(?<![\w.-])/(?:[^\s\"',:;]*(?:/pods/[0-9a-f]{8}-|io\.containerd\.|/containerd-mount|/overlay/[0-9a-f]{64}/)|"
    r"(?:var/lib|run|var/run)/(?:kubelet|containerd|containers|crio|docker|k0s|k3s|rancher|runc)/)[^\s\"',:;]*"
)
_ROOT: Final = re.compile(rf"{_NODE}?/rootfs(?=/)|(?<![\w.-])/[^\s\"',:;]*/overlay/[0-9a-f]{{64}}/merged/?(?=/)")
"""The node's path of a container's root folder."""
_PATH: Final = re.compile(_NODE)
_MOST_CHARACTERS: Final = 8192


def plain(words: str) -> str:
    """Return a message of the kubelet without the runtime's steps, and without paths of the node."""
    words = _PATH.sub("a path of the node", _ROOT.sub("", unwrap(words[:_MOST_CHARACTERS])))
    if (start := _START.fullmatch(words)) is None:
        return words
    cause = start["words"].strip()
    while (step := _STEP.match(cause)) is not None:
        cause = cause[step.end() :]
    if (mount := _MOUNT.match(cause)) is not None:
        cause = (
            f"the image has something at {mount['place']} over which the pod cannot mount ({mount['cause'].strip()})"
        )
    return f"its container does not start: {cause} ({start['reason']})"
