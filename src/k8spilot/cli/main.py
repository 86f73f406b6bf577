"""The command line. It prints an error as one sentence to stderr, and writes it for the kubelet."""

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final, NoReturn

import typer

import k8spilot
from k8spilot.common.errors import PilotError, PreflightError, SettingsError
from k8spilot.common.files import LIBEXEC
from k8spilot.common.logs import last_word

if TYPE_CHECKING:
    from k8spilot.preflight.finding import Finding

TERMINATION_LOG: Final = Path("/dev/termination-log")
"""File of the container's termination message, which `kubectl describe pod` shows; the kubelet mounts it."""
_TERMINATION_BYTES: Final = 4096
"""The kubelet shows the end of a longer message alone (kubecontainer.MaxContainerTerminationMessageLength)."""
PAYLOAD_INIT: Final = LIBEXEC / "payload-init"
"""Path of payload-init in the image."""

app = typer.Typer(
    help="HTCondor execution points in Kubernetes pods, each job in a sibling container with its own image.",
    epilog=(
        "Examples: `kubectl kustomize my-overlay | k8spilot check --manifest -` checks an overlay without a cluster; "
        "`kubectl exec POD -c pilot -- k8spilot status` and `... k8spilot settings` show a running pilot."
    ),
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)

gpu = typer.Typer(help="Commands about the GPUs of this container.", no_args_is_help=True)
app.add_typer(gpu, name="gpu")

provisioner = typer.Typer(
    help="The provisioner: makes pilots for idle jobs, from the pod templates of a namespace.",
    invoke_without_command=True,
)
app.add_typer(provisioner, name="provision")


def _show_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"k8spilot {k8spilot.__version__}")
        raise typer.Exit


@app.callback()
def _options(
    _version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version.")
    ] = False,
) -> None: ...


@app.command()
def version() -> None:
    """Show the version."""
    typer.echo(f"k8spilot {k8spilot.__version__}")


@app.command()
def run() -> None:
    """Run the pilot: serve the Docker sockets and run HTCondor. Settings come from the environment."""
    from k8spilot.cli.run import start  # noqa: PLC0415 -- the other commands do not need it

    start()


@app.command("install")
def install_command(
    exchange: Annotated[
        Path, typer.Option(envvar="K8SPILOT_EXCHANGE", metavar="FOLDER", help="The exchange volume.")
    ] = Path("/k8spilot"),
    source: Annotated[Path, typer.Option(metavar="FILE", help="The payload-init to copy.")] = PAYLOAD_INIT,
    folder: Annotated[
        list[Path] | None,
        typer.Option(metavar="FOLDER", help="Also make this folder, which a payload container mounts; repeatable."),
    ] = None,
) -> None:
    """Copy payload-init to the exchange volume, where the payload container runs it."""
    from k8spilot.payload_init.install import install  # noqa: PLC0415

    typer.echo(f"installed {install(source, exchange, folder or ())}")


@app.command(epilog="Example: kubectl kustomize my-overlay | k8spilot check --manifest -")
def check(
    manifest: Annotated[
        str | None,
        typer.Option(metavar="FILE", help="Check this rendered manifest (- for standard input), without a cluster."),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Run all preflight checks, in a pilot's pod or on a manifest. Exit status: 0, or 2 if a pilot could not start."""
    from k8spilot.preflight import report  # noqa: PLC0415

    findings = _in_manifest(manifest) if manifest is not None else _in_pod()
    typer.echo(report.as_json(findings) if as_json else report.as_lines(findings))
    raise typer.Exit(0 if report.is_fit(findings) else 2)


@app.command("status")
def status_command(as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False) -> None:
    """Show the state of this pilot and its last fault. Exit status: 0 fit, 1 not fit, 2 no pilot here, or not yet."""
    from k8spilot.cli import status  # noqa: PLC0415

    raise typer.Exit(status.main(as_json))


@app.command(epilog="Example: k8spilot settings K8SPILOT_VACATE_SECONDS NUM_CPUS")
def settings(
    names: Annotated[list[str] | None, typer.Argument(metavar="NAME", help="Show these settings only.")] = None,
    manifest: Annotated[
        str | None,
        typer.Option(metavar="FILE", help="Show those of the pilot in this rendered manifest (- for standard input)."),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Show every setting: value in force, where it comes from, default and meaning. Secrets are not shown.

    The values are those of the environment, in a pilot's container those of the pilot.
    """
    from k8spilot.cli.settings import shown  # noqa: PLC0415

    if manifest is None:
        typer.echo(shown(os.environ, names or (), "environment", as_json=as_json))
        return
    from k8spilot.preflight.manifest import pilot_environment  # noqa: PLC0415

    typer.echo(shown(pilot_environment(_text_of(manifest)), names or (), "manifest", as_json=as_json))


@app.command(epilog="Example: docker run --rm IMAGE manifests | tar x")
def manifests() -> None:
    """Write the kustomize base, the components and the example overlays of this version to standard output, as tar.

    `tar x` makes the folder `k8spilot`. Copy `k8spilot/overlays/example` beside itself, and change the copy.
    """
    from k8spilot.cli.manifests import write  # noqa: PLC0415

    if sys.stdout.isatty():
        raise SettingsError("the manifests are a tar archive; pipe them into a file or into `tar x`")
    write(sys.stdout.buffer)


@app.command(epilog="Example: kubectl kustomize my-overlay | k8spilot slots 4 | kubectl apply -f -")
def slots(
    number: Annotated[int, typer.Argument(min=2, max=64, metavar="NUMBER", help="Number of payload containers.")],
    manifest: Annotated[str, typer.Argument(metavar="FILE", help="The rendered manifest; - for standard input.")] = "-",
    equal: Annotated[bool, typer.Option("--equal", help="Make slots of equal size.")] = False,
    gpu_containers: Annotated[
        int | None, typer.Option(min=1, help="Number of payload containers that get the GPUs; all, if it is not set.")
    ] = None,
    only: Annotated[
        str | None, typer.Option(metavar="NAME", help="Change the pods of the objects with this name only.")
    ] = None,
) -> None:
    """Give the pod of a rendered manifest several payload containers, each for one job at a time.

    They share the resources of the one that the manifest has: as one partitionable slot, of which each job gets what it
    requests, or as slots of equal size. Payload containers with GPUs have slots of equal size. The result goes to
    standard output.
    """
    from k8spilot.cli.slots import with_slots  # noqa: PLC0415

    text = _text_of(manifest)
    typer.echo(with_slots(text, number, equal=equal, gpu_containers=gpu_containers, only=only), nl=False)


@provisioner.callback()
def provision_command(
    context: typer.Context,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Print the plan with its reasons, and change nothing.")
    ] = False,
) -> None:
    """Make pilots while jobs wait, until SIGTERM. Settings come from the environment."""
    from k8spilot.cli import provision  # noqa: PLC0415

    if context.invoked_subcommand is None:
        provision.show_plan() if dry_run else provision.start()


@provisioner.command("status")
def provision_status_command(
    namespace: Annotated[str | None, typer.Option("--namespace", "-n", help="Namespace of the pod templates.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Show each template: idle jobs, pilots by state, the next step and why. Exit status: 0 fine, 1 a fault."""
    from k8spilot.cli import provision  # noqa: PLC0415

    raise typer.Exit(provision.show_status(namespace, as_json=as_json))


@gpu.command("probe")
def probe_command(
    limit: Annotated[
        list[str] | None,
        typer.Option(metavar="RESOURCE=COUNT", help="The pod's limit, such as nvidia.com/gpu=1. May be repeated."),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON, with all evidence.")] = False,
) -> None:
    """Show which GPUs this container has, how they were made available, and the evidence. For any container and user.

    Exit status: 0, or 1 if the GPUs do not agree with the limit.
    """
    import json  # noqa: PLC0415

    from k8spilot.gpu.discovery import record  # noqa: PLC0415
    from k8spilot.gpu.discovery.pod_request import UNKNOWN, PodRequest  # noqa: PLC0415
    from k8spilot.gpu.discovery.probe import probe  # noqa: PLC0415

    limits = dict(text.partition("=")[::2] for text in limit or ())
    if wrong := [name for name, count in limits.items() if not count.isdecimal()]:
        raise SettingsError(f"--limit {wrong[0]} has no number; write it as nvidia.com/gpu=1")
    gpus = record.GpuRecord(PodRequest.of({"resources": {"limits": limits}}) if limits else UNKNOWN, probe())
    typer.echo(json.dumps(gpus.json(), indent=2) if as_json else "\n".join(record.report(gpus)))
    raise typer.Exit(1 if gpus.verdict.problem else 0)


def _in_pod() -> "list[Finding]":
    import asyncio  # noqa: PLC0415

    from k8spilot.preflight import checks  # noqa: PLC0415

    return asyncio.run(checks.check_all())


def _in_manifest(name: str) -> "list[Finding]":
    from k8spilot.preflight.manifest import manifest_findings  # noqa: PLC0415
    from k8spilot.provisioner.templates.manifest_findings import template_findings  # noqa: PLC0415

    text = _text_of(name)
    return list(dict.fromkeys([*manifest_findings(text), *template_findings(text)]))


def _text_of(name: str) -> str:
    try:
        return sys.stdin.read() if name == "-" else Path(name).read_text()
    except (OSError, UnicodeDecodeError) as error:
        raise SettingsError(f"the manifest {name} cannot be read ({error})") from error


def main() -> None:
    """Run the command line; entry point of the program.

    Exit status: 2 for settings and preflight faults that an operator must correct, 1 for other errors.
    """
    try:
        app()
    except PilotError as error:
        _fail(str(error), 2 if isinstance(error, SettingsError | PreflightError) else 1)
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] in ("", k8spilot.__name__):
            raise
        _fail(f"the Python package of {error.name} is missing: use the pilot's image, or install k8spilot[pilot]", 1)
    except KeyboardInterrupt:
        sys.exit(130)


def _fail(sentence: str, status: int) -> NoReturn:
    last_word(sentence)
    if TERMINATION_LOG.exists():
        # An error here must not hide the sentence.
        try:
            TERMINATION_LOG.write_bytes(
                sentence.encode(errors="backslashreplace")[:_TERMINATION_BYTES].decode(errors="ignore").encode()
            )
        except OSError as error:
            last_word(f"{TERMINATION_LOG}: {error.strerror}")
    sys.exit(status)
