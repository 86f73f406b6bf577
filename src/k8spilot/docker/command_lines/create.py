"""HTCondor's line for `docker create` as a request of the Engine API; no I/O.

The line has options in the order of the table, the operator's DOCKER_EXTRA_ARGUMENTS, two more options, the image, and
the job's words (docker-api.cpp, createContainer). A word that is not an option in its place must be the image.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from k8spilot.docker.command_lines.grammar import Create, UnknownLine, is_image, is_job, is_number, unknown
from k8spilot.docker.command_lines.options import SETTERS, SHORT, Body
from k8spilot.docker.create_request.options import LABEL, short

_LABEL: Final = f"--label={LABEL}=True"
_NAMED, _AFTER_DIRECTORY, _OF_USER, _OF_HOST = 7, 13, 14, 17
"""Places that other options have to follow."""


@dataclass(frozen=True, slots=True)
class _Option:
    place: int
    """Place in the line: each option is behind those of lower places."""
    joined: bool = False
    """Whether name and value are one word, NAME=VALUE."""
    value: str | Callable[[str], bool] | None = None
    """The only value, or a test of it; None if the option's setter tests it."""
    again: bool = False
    """Whether HTCondor repeats it."""
    behind: int = 0
    """Lowest place that the option before it may have."""


_OPTIONS: Final[Mapping[str, _Option]] = {
    "--cpuset-cpus": _Option(1, joined=True),
    "--cpu-shares": _Option(1, joined=True),
    "--memory": _Option(2, joined=True),
    "--cap-drop": _Option(3, joined=True, value="all"),
    "--cap-add": _Option(4, joined=True, value="SYS_PTRACE"),
    "--security-opt": _Option(5, value="no-new-privileges"),
    "--name": _Option(_NAMED, value=is_job),
    "--log-driver": _Option(9, value="none"),
    "-e": _Option(10, again=True),
    "--volume": _Option(11, again=True),
    "--mount": _Option(11, again=True),
    "--device": _Option(12, again=True),
    "--workdir": _Option(_AFTER_DIRECTORY),
    "--user": _Option(_OF_USER, behind=_AFTER_DIRECTORY),
    "--group-add": _Option(15, again=True),
    "--network": _Option(16, joined=True, behind=_OF_USER),
    "--hostname": _Option(_OF_HOST, behind=_OF_USER),
    "-p": _Option(18, again=True),
    "--pull": _Option(19, value="always"),
}
_HOST_NETWORK: Final = "host"
"""A job with this network has no host name of its own, so that the option stands in the place of that one."""


def parse_create(words: Sequence[str], extra: Sequence[str], labels: Mapping[str, str]) -> Create:
    """Parse the words after `create`.

    Args:
        words: the line.
        extra: DOCKER_EXTRA_ARGUMENTS of HTCondor's configuration.
        labels: labels that the client adds.

    Raises:
        UnknownLine: HTCondor writes no such line, or an option of the operator's is not supported.
    """
    line = _Line(list(words), extra)
    line.read_options()
    line.read_extra()
    line.read_rest()
    line.body["Labels"].update(labels)
    return Create(line.name, line.body, line.pulls)


class _Line:
    """A line that is being read."""

    def __init__(self, words: list[str], extra: Sequence[str]) -> None:
        self._words = words
        self._extra = list(extra)
        self._place = 0
        self.name = ""
        self.pulls = False
        self.body: Body = {
            **dict.fromkeys(("AttachStdin", "AttachStdout", "AttachStderr", "OpenStdin", "StdinOnce"), True),
            "Labels": {},
            "HostConfig": {},
        }

    def read_options(self) -> None:
        """Read HTCondor's options, up to a word that is none.

        Raises:
            UnknownLine: an option is missing, or not in its place.
        """
        while self._words and not self._is_at_extra() and self._read_option(self._words[0]):
            pass
        if not self.body["Labels"] or self._place < _OF_HOST:
            raise unknown(self._first)

    def read_extra(self) -> None:
        """Read the operator's own arguments: what is in the configuration now must be what it had at the start."""
        if self._extra and not self._is_at_extra():
            raise UnknownLine(
                "the line for docker lacks the DOCKER_EXTRA_ARGUMENTS that HTCondor had when the pilot started; "
                "restart the pilot after a change of HTCondor's configuration"
            )
        self._take(len(self._extra))
        _set_extra(self.body, self._extra)

    def read_rest(self) -> None:
        """Read what follows the operator's arguments: two more options, the image, and the job's words."""
        if self._first == "--shm-size":
            _, size = self._take(2)
            if not is_number(size):
                raise UnknownLine(
                    f"DOCKER_SHM_SIZE in HTCondor's configuration is not a number of bytes ('{short(size)}')"
                )
            SETTERS["--shm-size"](self.body, size)
        if self._first == "--entrypoint" and len(self._words) >= 3:
            SETTERS["--entrypoint"](self.body, self._take(2)[1])
        if not is_image(self._first):
            raise UnknownLine(
                f"'{short(self._first)}' is not the name of an image; set container_image or docker_image in the "
                "submit file to one"
            )
        self.body["Image"], *command = self._words
        self.body["Cmd"] = command or None

    @property
    def _first(self) -> str:
        return self._words[0] if self._words else ""

    def _take(self, count: int) -> list[str]:
        """Remove words from the beginning, and return them; missing ones are empty."""
        taken, self._words = self._words[:count], self._words[count:]
        return [*taken, *[""] * (count - len(taken))]

    def _is_at_extra(self) -> bool:
        """Return whether the operator's arguments come next."""
        is_behind = bool(self._extra) and self._place >= _OF_HOST
        return is_behind and self._words[: len(self._extra)] == self._extra

    def _read_option(self, word: str) -> bool:
        """Read an option of HTCondor's; return False for another word."""
        if word == _LABEL and self._place == _NAMED:
            self.body["Labels"][LABEL] = "True"
            self._place = _NAMED + 1
            self._take(1)
            return True
        if word == "--init":
            self._advance(word, _Option(6))
            self.body["HostConfig"]["Init"] = True
            self._take(1)
            return True
        name, joined, value = word.partition("=")
        option = _OPTIONS.get(name if joined else word)
        if option is None or option.joined != bool(joined):
            return False
        if not option.joined:
            if len(self._words) < 2:
                raise unknown(word)
            value = self._words[1]
        self._set(name, option, value)
        self._take(1 if option.joined else 2)
        return True

    def _set(self, name: str, option: _Option, value: str) -> None:
        if name == "--network" and value == _HOST_NETWORK:
            option = _Option(_OF_HOST, behind=_OF_USER)
        self._advance(name, option)
        if not (option.value in (None, value) or (callable(option.value) and option.value(value))):
            raise unknown(name)
        try:
            SETTERS[SHORT.get(name, name)](self.body, value)
        except ValueError:
            raise unknown(f"{name} {value}") from None
        if name == "--name":
            self.name = value
        self.pulls = self.pulls or name == "--pull"

    def _advance(self, name: str, option: _Option) -> None:
        is_next = option.place > self._place or (option.again and option.place == self._place)
        if not is_next or self._place < option.behind:
            raise unknown(name)
        self._place = option.place


def check_extra(extra: Sequence[str]) -> None:
    """Check the arguments of DOCKER_EXTRA_ARGUMENTS before the first job.

    Raises:
        UnknownLine: one of them is not supported.
    """
    _set_extra({"Labels": {}, "HostConfig": {}}, extra)


_NOT_EXTRA: Final = frozenset({"--name", "--pull", "--memory", "--cpu-shares"})
"""Options that only HTCondor may write: they concern its client, or are the size that it has promised to the job."""


def _set_extra(body: dict[str, Any], extra: Sequence[str]) -> None:
    """Write the operator's own arguments, with any of Docker's spellings: NAME VALUE, NAME=VALUE."""
    words = list(extra)
    while words:
        name, joined, value = words.pop(0).partition("=")
        if not joined and name != "--init":
            value = words.pop(0) if words else ""
        setter = None if name in _NOT_EXTRA else SETTERS.get(SHORT.get(name, name))
        try:
            if setter is not None:
                setter(body, value)
                continue
        except ValueError:
            pass
        text = short(f"{name}{joined or ' '}{value}".rstrip())
        raise UnknownLine(
            f"k8spilot does not support '{text}' in DOCKER_EXTRA_ARGUMENTS; remove it from HTCondor's configuration"
        )
