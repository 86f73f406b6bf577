"""Messages of the kubelet and the container runtime, without the parts that say nothing to the owner of an image.

The runtime's message about a container that does not start is a chain of its own steps, with paths of the node. A hold
reason has a limited length, so that the cause, which comes last, would be cut off.

CRI-O passes on what runc logs, as `container create failed: time="..." level=error msg="..."`, a line for each entry;
runc may warn before it fails. After a failed pull CRI-O tries the reference once more as an artifact's, and reports
both errors (pullImageImplementation in internal/storage/image.go). The second one says that an image is no artifact, or
repeats the first.
"""

import re
from typing import Final

_QUOTED: Final = r'"(?:[^"\\]|\\.)*"'
_ENTRY: Final = rf'time="[^"]*" level=(\w+) msg=({_QUOTED}|\S+)(?: \w+=(?:{_QUOTED}|\S+))*\s*'
"""An entry of runc's log (logrus, TextFormatter): its level and its message."""
_LOG: Final = re.compile(rf"container create failed: (?:{_ENTRY})+", re.DOTALL)
_PULLED: Final = re.compile(
    r"unable to pull image or OCI artifact: pull image err: (?P<message>.*?)(?:; artifact err: .*)?$", re.DOTALL
)
_FAILURES: Final = frozenset({"error", "fatal", "panic"})
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


def unwrap(words: str) -> str:
    """Return a message of the kubelet; of one by CRI-O only the error of the image."""
    return _LOG.sub(_messages, _PULLED.sub(r"\g<message>", words))


def _messages(logged: re.Match[str]) -> str:
    """Return what a log says of failures; all of it if it has none."""
    entries = [(level, _unquoted(message)) for level, message in re.findall(_ENTRY, logged[0], re.DOTALL)]
    failures = [message for level, message in entries if level in _FAILURES]
    return " ".join(failures or [message for _, message in entries])


def _unquoted(message: str) -> str:
    if not message.startswith('"'):
        return message
    return re.sub(r"\\(.)", lambda escaped: {"n": "\n", "t": "\t"}.get(escaped[1], escaped[1]), message[1:-1])
