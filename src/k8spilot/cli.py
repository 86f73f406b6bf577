"""The command line. What goes wrong is told in one sentence, on stderr and to the kubelet."""

import asyncio
import sys
from importlib.metadata import version
from pathlib import Path
from typing import Annotated, Final, NoReturn

import typer

from k8spilot.errors import PilotError, SettingsError, SurroundingsError

TERMINATION_LOG: Final = Path("/dev/termination-log")
"""What `kubectl describe pod` shows of a container that has ended; the kubelet mounts it."""

PAYLOAD_INIT: Final = Path("/opt/k8spilot/libexec/payload-init")
"""Where the image has payload-init."""

app = typer.Typer(
    help="HTCondor execution points in Kubernetes pods, each job in a sibling container with its own image.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)


def _show_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"k8spilot {version('k8spilot')}")
        raise typer.Exit


@app.callback()
def _options(
    _version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version.")
    ] = False,
) -> None: ...


@app.command()
def run() -> None:
    """Be the pilot: serve the Docker socket and run HTCondor. Settings come from the environment."""
    from k8spilot.pilot import run as be_pilot  # noqa: PLC0415 -- the other commands need nothing of this
    from k8spilot.settings import Settings  # noqa: PLC0415

    raise typer.Exit(asyncio.run(be_pilot(Settings.from_environment())))


@app.command()
def install(
    exchange: Annotated[Path, typer.Option(envvar="K8SPILOT_EXCHANGE", help="The exchange volume.")] = Path(
        "/k8spilot"
    ),
    source: Annotated[Path, typer.Option(help="The payload-init to copy.")] = PAYLOAD_INIT,
) -> None:
    """Put payload-init into the exchange volume, where the payload container finds it."""
    from k8spilot.payload_init.install import install as copy  # noqa: PLC0415

    typer.echo(f"installed {copy(source, exchange)}")


def main() -> None:
    """Run the command line; entry point of the program.

    Exit status: 2 for settings and surroundings that an operator must mend, 1 for what else goes wrong.
    """
    try:
        app()
    except PilotError as error:
        _fail(str(error), 2 if isinstance(error, SettingsError | SurroundingsError) else 1)
    except KeyboardInterrupt:
        sys.exit(130)


def _fail(sentence: str, status: int) -> NoReturn:
    print(f"k8spilot: {sentence}", file=sys.stderr)  # noqa: T201
    if TERMINATION_LOG.exists():
        # The kubelet keeps 4096 bytes. That the file cannot be written must not hide the sentence.
        try:
            TERMINATION_LOG.write_text(sentence[:2000])
        except OSError as error:
            print(f"k8spilot: {TERMINATION_LOG}: {error.strerror}", file=sys.stderr)  # noqa: T201
    sys.exit(status)
