"""The reference of the command line, from typer's own description of it."""

from collections.abc import Iterator
from typing import Any, Final

import typer.main

from docs.generate.sources import app
from docs.generate.tables import table

INTRODUCTION: Final = """\
# Command line

The program `k8spilot` is in the project's image, which starts it with the arguments of the container. `check`,
`status`, `settings`, `slots`, `manifests`, `version` and `gpu probe` are for people; `run`, `install` and `provision`
are what the manifests call. A command that fails prints one sentence on standard error. Its exit status is 2 if an
operator has to correct settings, rights or the pod, and 1 for every other failure. Settings are [environment
variables](settings.md).

*This page is generated from the code.*
"""


def page() -> str:
    """Return the page."""
    parts = [INTRODUCTION]
    for name, command in commands():
        parts += [f"## `{name}`\n", f"{_paragraphs(command.help)}\n"]
        if options := [one for one in command.params if one.name != "help"]:
            parts.append(table(("Option", "Value", "Default", "Meaning"), map(_option, options)))
    return "\n".join(parts)


def commands() -> Iterator[tuple[str, Any]]:
    """Yield every command by its whole name, the program itself first. The commands are click's, typer's base."""
    program = typer.main.get_command(app)
    yield from _below("k8spilot", program)


def _below(name: str, command: Any) -> Iterator[tuple[str, Any]]:
    yield name, command
    for word, one in getattr(command, "commands", {}).items():
        yield from _below(f"{name} {word}", one)


def _option(one: Any) -> tuple[str, str, str, str]:
    names = ", ".join(f"`{name}`" for name in one.opts)
    value = "" if getattr(one, "is_flag", False) else f"`{one.metavar}`"
    default = "" if one.default in (None, False, []) else f"`{one.default}`"
    variable = f" Environment variable: `{one.envvar}`." if one.envvar else ""
    return names, value, default, f"{one.help or ''}{variable}"


def _paragraphs(text: str | None) -> str:
    return "\n\n".join(" ".join(part.split()) for part in (text or "").split("\n\n"))
