"""Log formats: one line for each event, with the job that it concerns.

Text is for people: time, level, logger, message, and then key=value pairs of the subject. JSON has the same values
under the same names, one object per line. Both have the time in UTC, and line breaks only in a traceback. Messages also
contain texts of users, registries and HTCondor; none of them can forge a line.
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
"""Environment variable of the format, for code that logs before the settings are read."""


@dataclass(slots=True)
class Subject:
    """The subject of log lines."""

    attempt: str = ""
    """The bind: the unique part of the image's reference in the pod."""
    job: str = ""
    """HTCondor's cluster.proc once it is known, or the name of a container that HTCondor did not create."""
    slot: str = ""

    def fields(self) -> dict[str, str]:
        """Return the fields that are set."""
        return {name: value for name, value in asdict(self).items() if value}


_NONE: Final = Subject()
_subject: Final = contextvars.ContextVar("subject", default=_NONE)


def about(subject: Subject) -> None:
    """Set the subject of this task and of the tasks that it starts. `subject` may gain fields later."""
    _subject.set(subject)


def subject() -> Subject:
    """Return the current subject, which must not be changed."""
    return _subject.get()


def set_up(level: str, form: Format) -> None:
    """Configure logging to stderr."""
    handler = logging.StreamHandler()
    handler.setFormatter(JsonFormatter() if form == "json" else TextFormatter())
    logging.basicConfig(level=level, handlers=[handler], force=True)


def last_word(sentence: str) -> None:
    """Print the reason of the program's end, also before logging is configured."""
    line = f"k8spilot: {sentence}"
    if os.environ.get(FORMAT) == "json":
        line = json.dumps({"time": stamp(time.time()), "level": "ERROR", "logger": "k8spilot", "message": sentence})
    print(line, file=sys.stderr, flush=True)  # noqa: T201


class TextFormatter(logging.Formatter):
    """`time level logger: message key=value`, and a traceback below it."""

    def format(self, record: logging.LogRecord) -> str:
        """Return one line, or more with a traceback."""
        subject_text = "".join(f" {name}={value}" for name, value in subject().fields().items())
        line = (
            f"{stamp(record.created)} {record.levelname} {record.name}: {one_line(record.getMessage())}{subject_text}"
        )
        return f"{line}\n{self.formatException(record.exc_info)}" if record.exc_info else line


class JsonFormatter(logging.Formatter):
    """An object a line: time, level, logger, message, attempt, job, slot, exception."""

    def format(self, record: logging.LogRecord) -> str:
        """Return one line."""
        entry = {
            "time": stamp(record.created),
            "level": record.levelname,
            "logger": record.name,
            "message": record.getMessage(),
            **subject().fields(),
        }
        if record.exc_info:
            entry["exception"] = self.formatException(record.exc_info)
        return json.dumps(entry)


def stamp(seconds: float) -> str:
    """Return a time (seconds since the epoch) in RFC 3339 format, in UTC, with milliseconds."""
    return f"{time.strftime('%Y-%m-%dT%H:%M:%S', time.gmtime(seconds))}.{int(seconds * 1000) % 1000:03d}Z"


def capitalized(phrase: str) -> str:
    """Return `phrase` with a capital at its beginning; str.capitalize() would change "HTCondor"."""
    return phrase[:1].upper() + phrase[1:]


def one_line(text: str) -> str:
    """Return `text` with escapes in place of line breaks and other unprintable characters."""
    if text.isprintable():
        return text
    return "".join(
        character if character.isprintable() else character.encode("unicode_escape").decode() for character in text
    )
