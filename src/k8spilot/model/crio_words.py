"""CRI-O's messages without their wrapping, so that they read and count as the message within.

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
