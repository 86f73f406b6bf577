"""An engine as the docker command line and HTCondor's own requests reach it, whichever it is."""

import os
import pty
import re
import socket
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, Final

from lab.patience import scaled

IMAGE: Final = "REGISTRY/{}:latest"
"""An image as the results of scripts name it."""

SECONDS: Final = scaled(60.0)
"""For any one command; nothing here takes nearly as long."""

LABEL: Final = "org.htcondorproject=True"
"""HTCondor's, on every container of a job (docker-api.cpp)."""

JOB: Final = (
    *("--cpu-shares=100", "--memory=128m", "--cap-drop=all", "--cap-add=SYS_PTRACE"),
    *("--security-opt", "no-new-privileges", "--init", f"--label={LABEL}", "--log-driver", "none"),
    *("--user", "65534:65534", "--group-add", "65534"),
)
"""Options of condor_starter for every `docker create` (docker-api.cpp), but name, environment and folders."""

_KINDS: Final = {
    "no such object": r"No such (container|object|image)|failed to find image|No such exec instance",
    "in another state": r"(is|running,) not (running|paused)|You cannot (pause|attach to) a stopped",
    "in use": r"is already in use|is in use",
    "runs": r"cannot remove a running container|runs; stop it first",
    "bad name": r"Invalid container name|is not a container name",
    "bad reference": r"invalid reference format|repository name must be lowercase|is not a valid image reference",
    "bad signal": r"[Ii]nvalid signal|is not a signal|does not support signal",
    "paused": r"is already paused|is paused",
    "one at a time": r"it takes one job at a time",
    "not in the registry": r"manifest (for \S+ )?(not found|unknown)|repository does not exist|not found: manifest",
    "cannot be executed": r"OCI runtime|cannot run|FATAL tini|executable file not found",
    "no terminal": r"the input device is not a TTY",
    "too much memory": r"Docker job has gone over memory limit",
    "no logs": r"does not support reading",
}
"""Classes of errors: HTCondor looks at exit codes and shows texts to people, so what they are about is what counts."""


@dataclass(frozen=True)
class Ended:
    """A docker command's end."""

    code: int
    output: bytes
    errors: bytes

    @property
    def exact(self) -> tuple[int, bytes, bytes]:
        """The whole end, byte by byte: for output that a job has written."""
        return self.code, self.output, self.errors

    @property
    def told(self) -> tuple[int, str, str]:
        """The end without text that differs between runs, with the class of an error: for words about containers."""
        return self.code, plain(self.output.decode()), kind(self.errors.decode())


class Docker:
    """Runs the docker command line against one engine. Each object has a container name of its own."""

    def __init__(
        self, cli: Path, path: Path, registry: str, name: str, folder: Path, network: Sequence[str] = ()
    ) -> None:
        self.path = path
        self.network = network
        """Options that give a container a network; one of k8spilot's has the pod's."""
        self.registry = registry
        self.name = name
        self._cli = cli
        self._environment = {**os.environ, "DOCKER_HOST": f"unix://{path}", "DOCKER_CONFIG": str(folder)}

    def image(self, name: str = "busybox") -> str:
        """Reference of an image in the lab's registry."""
        return f"{self.registry}/{name}" if ":" in name else f"{self.registry}/{name}:latest"

    def __call__(self, *arguments: str, given: bytes | None = None) -> Ended:
        """Run a command to its end; `given` is its standard input, which is /dev/null otherwise."""
        done: subprocess.CompletedProcess[bytes] = subprocess.run(
            [self._cli, *arguments],
            env=self._environment,
            stdin=subprocess.DEVNULL if given is None else None,
            input=given,
            capture_output=True,
            timeout=SECONDS,
            check=False,
        )
        return Ended(done.returncode, done.stdout, done.stderr)

    def begin(self, *arguments: str) -> "Running":
        """Start a command."""
        pipe = subprocess.PIPE
        return Running(
            subprocess.Popen([self._cli, *arguments], env=self._environment, stdin=pipe, stdout=pipe, stderr=pipe)
        )

    def create(self, *command: str, options: Sequence[str] = JOB, image: str = "busybox") -> Ended:
        """Pull and create as HTCondor does."""
        self("pull", "-q", self.image(image))
        return self("create", *options, "--name", self.name, self.image(image), *command)

    def run(self, *command: str, options: Sequence[str] = JOB, image: str = "busybox") -> Ended:
        """The whole life of a job; the end of `docker start -a`."""
        created = self.create(*command, options=options, image=image)
        assert created.code == 0, created
        ended = self("start", "-a", self.name)
        self("rm", "-f", "-v", self.name)
        return ended

    def shell(self, script: str, options: Sequence[str] = JOB) -> Ended:
        """The same for a shell script in busybox."""
        return self.run("sh", "-c", script, options=options)

    def state(self, template: str) -> str:
        """One `docker inspect` of the container."""
        done = self("inspect", "--format", template, self.name)
        return plain(done.output.decode()).strip() if done.code == 0 else f"error: {kind(done.errors.decode())}"

    @contextmanager
    def running(self, script: str = "echo ready; exec sleep 300", options: Sequence[str] = JOB) -> Iterator["Running"]:
        """A shell script that runs and has written a first line, and the client that is attached to it."""
        created = self.create("sh", "-c", script, options=options)
        assert created.code == 0, created
        client = self.begin("start", "-a", self.name)
        try:
            assert client.line() == b"ready\n"
            until(lambda: self.state("{{.State.Running}}") == "true", "it is told to be running")
            yield client
        finally:
            self("rm", "-f", "-v", self.name)
            client.end()

    @contextmanager
    def asked(self, request: str) -> Iterator[IO[bytes]]:
        """Send a request as HTCondor does; what the engine answers."""
        with socket.socket(socket.AF_UNIX) as connection:
            connection.settimeout(SECONDS)
            connection.connect(str(self.path))
            connection.sendall(f"{request} HTTP/1.0\r\n\r\n".encode())
            with connection.makefile("rb") as answer:
                yield answer

    def raw(self, request: str) -> bytes:
        """The whole answer, until the engine closes the connection."""
        with self.asked(request) as answer:
            return answer.read()

    def terminal(self, *arguments: str, given: bytes = b"") -> tuple[int, bytes]:
        """Run a command on a terminal and type `given` once it shows `ready`; its exit code and all that was shown."""
        master, slave = pty.openpty()
        with subprocess.Popen(
            [self._cli, *arguments],
            env={**self._environment, "TERM": "dumb"},
            stdin=slave,
            stdout=slave,
            stderr=slave,
            start_new_session=True,
        ) as process:
            os.close(slave)
            shown = b""
            with suppress(OSError):  # EIO: the other end is closed
                while data := os.read(master, 65536):
                    shown += data
                    if given and b"ready" in shown:  # earlier, the terminal of this machine would show it, too
                        os.write(master, given)
                        given = b""
            os.close(master)
            return process.wait(SECONDS), shown

    def remove_all(self) -> None:
        """Leave nothing for the next script."""
        names = self("ps", "-a", "-q", "--filter", f"name={self.name}").output.decode().split()
        if names:
            self("rm", "-f", "-v", *names)


class Running:
    """A docker command under way."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self.process = process

    def line(self) -> bytes:
        """The next line of its output."""
        assert self.process.stdout is not None
        return self.process.stdout.readline()

    def end(self) -> Ended:
        """Wait for it."""
        output, errors = self.process.communicate(timeout=SECONDS)
        return Ended(self.process.returncode, output, errors)


def kind(errors: str) -> str:
    """The class of an error text; a text that is in none as it is, without what differs from run to run."""
    if not errors.strip():
        return ""
    return next((name for name, pattern in _KINDS.items() if re.search(pattern, errors)), plain(errors))


def unnamed(value: Any, names: Mapping[str, str]) -> Any:
    """A result, with the names of the container and the registry exchanged for words."""
    if isinstance(value, tuple | list):
        return type(value)(unnamed(one, names) for one in value)
    if isinstance(value, dict):
        return {key: unnamed(one, names) for key, one in value.items()}
    if isinstance(value, str):
        for name, word in names.items():
            value = value.replace(name, word)
    return value


def plain(text: str) -> str:
    """`text` without ids, times and process numbers."""
    text = re.sub(r"\b[0-9a-f]{64}\b", "ID", text)
    text = re.sub(r"\b20\d\d-\d\d-\d\dT[0-9:.]+Z", "TIME", text)
    return re.sub(r"^Pid=[1-9]\d*$", "Pid=PID", text, flags=re.MULTILINE)


def until(look: Callable[[], Any], what: str) -> Any:
    """Look until there is something.

    Raises:
        AssertionError: there is nothing for too long.
    """
    deadline = time.monotonic() + SECONDS
    while not (found := look()):
        assert time.monotonic() < deadline, f"not within {SECONDS:.0f} s: {what}"
        time.sleep(0.02)
    return found
