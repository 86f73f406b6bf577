"""What is logged, and how: a line for each thing that happened, with the job that it is about.

Text is for people: time, level, logger, message, and then key=value for what the line is about. JSON has the same under
the same names, one object a line. Both have the time in UTC, and no line break but those of a traceback: what users,
registries and HTCondor say is in messages, too, and none of them can make a line that looks like another's.
"""

import contextvars
import json
import logging
import os
import sys
import time
from dataclasses import asdict, dataclass
from typing import Final, Literal

Format = Literal["text", "json"]

FORMAT: Final = "K8SPILOT_LOG_FORMAT"
"""The variable that chooses the format, for those who speak before there are settings."""


@dataclass(slots=True)
class Subject:
    """What lines are about."""

    attempt: str = ""
    """The bind: the unique part of the image's reference in the pod."""
    job: str = ""
    """HTCondor's cluster.proc, once it is known, or the name of a container that is not HTCondor's."""
    slot: str = ""

    def fields(self) -> dict[str, str]:
        """What there is of it."""
        return {name: value for name, value in asdict(self).items() if value}


_NONE: Final = Subject()
_subject: Final = contextvars.ContextVar("subject", default=_NONE)


def about(subject: Subject) -> None:
    """From now on, what this task and those that it starts log is about `subject`, which may come to know more."""
    _subject.set(subject)


def subject() -> Subject:
    """What is spoken of now; not to be changed."""
    return _subject.get()


def set_up(level: str, form: Format) -> None:
    """Log to stderr."""
    handler = logging.StreamHandler()
    handler.setFormatter(JsonFormatter() if form == "json" else TextFormatter())
    logging.basicConfig(level=level, handlers=[handler], force=True)


def last_word(sentence: str) -> None:
    """Say why the program ends, whether logging has been set up or not."""
    line = f"k8spilot: {sentence}"
    if os.environ.get(FORMAT) == "json":
        line = json.dumps({"time": stamp(time.time()), "level": "ERROR", "logger": "k8spilot", "message": sentence})
    print(line, file=sys.stderr, flush=True)  # noqa: T201


class TextFormatter(logging.Formatter):
    """`time level logger: message key=value`, and a traceback below it."""

    def format(self, record: logging.LogRecord) -> str:
        """One line, or more with a traceback."""
        about = "".join(f" {name}={value}" for name, value in subject().fields().items())
        line = f"{stamp(record.created)} {record.levelname} {record.name}: {one_line(record.getMessage())}{about}"
        return f"{line}\n{self.formatException(record.exc_info)}" if record.exc_info else line


class JsonFormatter(logging.Formatter):
    """An object a line: time, level, logger, message, attempt, job, slot, exception."""

    def format(self, record: logging.LogRecord) -> str:
        """One line."""
        found = {
            "time": stamp(record.created),
            "level": record.levelname,
            "logger": record.name,
            "message": record.getMessage(),
            **subject().fields(),
        }
        if record.exc_info:
            found["exception"] = self.formatException(record.exc_info)
        return json.dumps(found)


def stamp(seconds: float) -> str:
    """A time (seconds since the epoch) as RFC 3339 has it, in UTC, with milliseconds."""
    return f"{time.strftime('%Y-%m-%dT%H:%M:%S', time.gmtime(seconds))}.{int(seconds * 1000) % 1000:03d}Z"


def one_line(text: str) -> str:
    """`text` with escapes in the place of line breaks and whatever else does not print."""
    if text.isprintable():
        return text
    return "".join(one if one.isprintable() else one.encode("unicode_escape").decode() for one in text)
