"""The lab's command line: python -m lab up, down, kubeconfig, registry, image, pilot, dockerd, demo, demo-factory."""

import argparse
import os
import sys

from lab import binaries, demo, dockerd, pilot, testbed
from lab.api import Lab
from lab.command_line import exit_code
from lab.demo import factory as demo_factory
from lab.errors import LabError
from lab.progress import Progress
from lab.settings import Settings


def main(arguments: list[str] | None = None) -> int:
    """Do what the command line says; return the exit code."""
    options = _parser().parse_args(arguments)
    advice = "interrupted; `make lab` goes on where it stopped, `make lab-down` clears away"
    return exit_code("lab", lambda: _run(options), interrupted=advice)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m lab", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    everything = commands.add_parser("up", help="bring up what does not run, repair what died")
    everything.add_argument("--on-demand", action="store_true", help="build what some tests start on demand, too")
    commands.add_parser("down", help="end it and leave nothing behind but the cache")
    commands.add_parser("kubeconfig", help="print the path of the admin kubeconfig")
    commands.add_parser("registry", help="print host:port of the registry")
    commands.add_parser("image", help="print the reference of the project's image")
    commands.add_parser("demo", help="bring all up and show real jobs of two users in one pilot pod")
    commands.add_parser("demo-factory", help="bring all up and show how pilots follow a hundred jobs")
    one = commands.add_parser("pilot", help="deploy one pilot pod from the manifests")
    one.add_argument("name", nargs="?", default="pilot", help="name of the pod (pilot)")
    one.add_argument("--delete", action="store_true", help="remove it instead")
    real = commands.add_parser("dockerd", help="start a real dockerd to compare with, and print its DOCKER_HOST")
    real.add_argument("--stop", action="store_true", help="end it instead; `down` does so, too")
    return parser


_DEMOS = {"demo": demo.main, "demo-factory": demo_factory.main}


def _run(options: argparse.Namespace) -> int:
    if options.command == "down":
        settings = Settings.from_environment()
        with Progress(settings.cache / "durations.json") as progress:
            testbed.down(settings, progress)
        return 0
    if options.command == "up":
        lab = Lab.up()
        if options.on_demand and lab.settings.kubeconfig is None:
            with lab.progress:
                binaries.ensure(lab.settings, lab.progress, binaries.ON_DEMAND)
        print(f"kubeconfig  {lab.kubeconfig}\nregistry    {lab.registry}\nimage       {lab.image}", file=sys.stderr)
        print(f"pool        {lab.pool_host}", file=sys.stderr)
        return 0
    if options.command in _DEMOS:
        return _DEMOS[options.command]()
    lab = Lab.attach()
    if options.command == "pilot":
        if options.delete:
            pilot.delete(lab, options.name)
        else:
            pilot.deploy(lab, options.name)
        return 0
    if options.command == "dockerd":
        if options.stop:
            dockerd.stop(lab.settings)
        else:
            print(f"unix://{dockerd.ensure(lab.settings, lab.progress).socket}")
        return 0
    answer = {"kubeconfig": str(lab.kubeconfig), "registry": lab.registry, "image": lab.image}[options.command]
    if not answer:
        raise LabError("KUBECONFIG is set and REGISTRY is not: say there which registry images can be pushed to")
    print(answer)
    return 0


if __name__ == "__main__":
    os.umask(0o022)
    sys.exit(main())
