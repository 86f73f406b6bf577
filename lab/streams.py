"""Follow files and logs of the lab's containers while they are written."""

import subprocess
import tempfile
from collections.abc import Iterator
from types import TracebackType
from typing import Self

from lab import access, node
from lab.api import Lab

# Looks 20 times a second: inotify does not work for the file systems of containers.
# The far end goes with this one, whose end closes the input that `cat` waits on. The braces are for whoever puts a
# command and && before it: `kill` would meet a shell of its own then, and not tail.
_FOLLOW = "{{ tail -s 0.05 -q -n +1 -F {files} 2>/dev/null & cat >/dev/null; kill $!; }}"
_CLOSE_SECONDS = 10.0


class Stream:
    """The output of a command that runs until `close`."""

    def __init__(self, *command: str, ends_with_input: bool = True) -> None:
        self._ends_with_input = ends_with_input
        with tempfile.NamedTemporaryFile(prefix="k8spilot-stream-", suffix=".log") as target:
            self._reader = open(target.name, "rb")  # noqa: PTH123, SIM115 -- open until close()
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=target,
                stderr=subprocess.DEVNULL,
            )
        self._rest = b""

    @classmethod
    def of_user_file(cls, lab: Lab, user: str, path: str) -> Self:
        """Follow a file in `user`'s home on the access point; the file may not exist yet."""
        script = _FOLLOW.format(files=path)
        return cls(*access.argv(lab.settings, user, script))

    @classmethod
    def of_pilot_files(cls, lab: Lab, pod: str, *paths: str) -> Self:
        """Follow files of the pilot container."""
        script = _FOLLOW.format(files=" ".join(paths))
        return cls(*_kubectl(lab), "exec", "-i", "-n", lab.namespace, pod, "-c", "pilot", "--", "sh", "-c", script)

    @classmethod
    def of_program(cls, lab: Lab, pod: str, *command: str) -> Self:
        """Follow the output of a program that runs in the pilot container and ends with this stream."""
        where = ("exec", "-i", "-n", lab.namespace, pod, "-c", "pilot", "--")
        script = '"$@" & cat >/dev/null; kill $! 2>/dev/null'
        return cls(*_kubectl(lab), *where, "sh", "-c", script, "sh", *command)

    @classmethod
    def of_pilot(cls, lab: Lab, pod: str) -> Self:
        """Follow the log of the pilot container."""
        command = [*_kubectl(lab), "logs", "--follow", "-n", lab.namespace, pod, "-c", lab.engine]
        return cls(*command, ends_with_input=False)

    def blocks(self, end: bytes = b"\n") -> Iterator[bytes]:
        """Return the data since the last call, in whole blocks with their `end`."""
        *whole, self._rest = (self._rest + self._reader.read()).split(end)
        for block in whole:
            yield block + end

    def lines(self) -> Iterator[str]:
        """Return the whole lines since the last call."""
        for block in self.blocks():
            yield block.decode("utf-8", "replace").rstrip("\n")

    def close(self) -> None:
        """Stop following. If the container can be reached, its side of the stream has ended when this returns."""
        if self._process.stdin is not None:
            self._process.stdin.close()
        if not self._ends_with_input:
            self._process.terminate()
        try:
            self._process.wait(_CLOSE_SECONDS)
        except subprocess.TimeoutExpired:  # what is between here and there does not answer
            self._process.kill()
            self._process.wait()
        self._reader.close()

    def __enter__(self) -> Self:
        """Begin."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, problem: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close."""
        self.close()


def _kubectl(lab: Lab) -> list[str]:
    return [str(part) for part in node.kubectl(lab.settings)]
