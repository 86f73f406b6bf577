"""Lines of the log."""

import asyncio
import json
import logging
import re

import pytest

from k8spilot.common import logs
from k8spilot.common.logs import JsonFormatter, Subject, TextFormatter


def record(message: str, level: int = logging.INFO) -> logging.LogRecord:
    return logging.LogRecord("k8spilot.some", level, __file__, 1, message, None, None)


def test_a_line_has_time_level_logger_and_message() -> None:
    line = TextFormatter().format(record("It runs."))
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z INFO k8spilot\.some: It runs\.", line)


async def test_job_slot_and_attempt_are_in_the_lines_of_a_task_and_of_those_that_it_starts() -> None:
    async def work() -> tuple[str, str]:
        subject = Subject(attempt="0a1b")
        logs.about(subject)
        before = asyncio.create_task(speak())
        subject.job, subject.slot = "12.0", "slot1"
        return await before, JsonFormatter().format(record("x"))

    async def speak() -> str:
        return TextFormatter().format(record("It runs."))

    text, line = await asyncio.create_task(work())
    assert text.endswith("It runs. attempt=0a1b job=12.0 slot=slot1")
    assert json.loads(line).items() >= {"attempt": "0a1b", "job": "12.0", "slot": "slot1"}.items()
    assert (await speak()).endswith("It runs.")


@pytest.mark.parametrize("words", ["a\nERROR b", "a\r\nb", "a\x1b[2Jb", "a\u2028b"])
def test_nobody_can_make_a_line_of_their_own(words: str) -> None:
    line = TextFormatter().format(record(words))
    assert line.isprintable()
    assert json.loads(JsonFormatter().format(record(words)))["message"] == words


def test_a_traceback_is_told() -> None:
    try:
        int("of the test")
    except ValueError as error:
        failed = record("It failed.", logging.ERROR)
        failed.exc_info = (ValueError, error, error.__traceback__)
    assert "of the test" in TextFormatter().format(failed).splitlines()[-1]
    (line,) = JsonFormatter().format(failed).splitlines()
    found = json.loads(line)
    assert found["level"] == "ERROR"
    assert "of the test" in found["exception"]


@pytest.mark.parametrize("form", ["text", "json"])
def test_the_last_word_is_in_the_same_format(
    form: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("K8SPILOT_LOG_FORMAT", form)
    logs.last_word("it cannot go on")
    said = capsys.readouterr().err
    assert said == "k8spilot: it cannot go on\n" if form == "text" else json.loads(said)["message"] == "it cannot go on"
