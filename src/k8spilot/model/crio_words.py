"""CRI-O's messages without their wrapping, so that they read and count as the message within.

CRI-O passes on what runc logs, as `container create failed: time="..." level=error msg="..."`. After a failed pull it
tries the reference once more as an artifact's, and reports both errors (pullImageImplementation in
internal/storage/image.go). The second one says that an image is no artifact, or repeats the first.
"""

import re
from typing import Final

_LOGGED: Final = re.compile(
    r'container create failed: time="[^"]*" level=\w+ msg="(?P<message>(?:[^"\\]|\\.)*)"\s*', re.DOTALL
)
_PULLED: Final = re.compile(
    r"unable to pull image or OCI artifact: pull image err: (?P<message>.*?)(?:; artifact err: .*)?$", re.DOTALL
)


def unwrap(words: str) -> str:
    """Return a message of the kubelet; of one by CRI-O only the error of the image."""
    return _LOGGED.sub(_message, _PULLED.sub(r"\g<message>", words))


def _message(match: re.Match[str]) -> str:
    return re.sub(r"\\(.)", lambda escaped: {"n": "\n", "t": "\t"}.get(escaped[1], escaped[1]), match["message"])
