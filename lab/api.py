"""A running lab, as Python code uses it: tests, the demo, the benchmark."""

import json
import shlex
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from lab import access, kubectl, node, phases, testbed
from lab.errors import LabError
from lab.images import Images
from lab.levels import ENGINES, NAMESPACES, Level
from lab.progress import Progress
from lab.settings import SESSION_LABEL, Settings
from lab.shell import run


@dataclass(frozen=True)
class Lab:
    """Addresses, images and folders of a running lab, and methods that work with it. The methods raise LabError."""

    settings: Settings
    progress: Progress
    kubeconfig: Path
    """Admin's kubeconfig."""
    registry: str
    """host:port, the same for the machine, the node and the pods; plain HTTP in the lab's own."""
    image: str
    """The project's image of the checkout, in the registry."""
    pool_image: str
    """HTCondor alone, as the pool runs it."""
    pool_host: str
    """The collector's address: CONDOR_HOST of pilots."""
    level: Level = "baseline"

    def at(self, level: Level) -> "Lab":
        """The same lab, with pilots in the namespace that enforces `level`."""
        return replace(self, level=level)

    @property
    def namespace(self) -> str:
        """Namespace of the pilots."""
        return NAMESPACES[self.level]

    @property
    def labels(self) -> dict[str, str]:
        """Labels of the objects that a session of tests makes. It removes them by these."""
        return {SESSION_LABEL: self.settings.session} if self.settings.session else {}

    @property
    def containers(self) -> tuple[str, ...]:
        """Names of the containers that are the pilot's own."""
        return tuple(dict.fromkeys((self.engine, "pilot")))

    @property
    def engine(self) -> str:
        """Name of the container in which a pilot's engine runs."""
        return ENGINES[self.level]

    @classmethod
    def attach(cls) -> "Lab":
        """Return the running lab without starting one. Raises LabError if there is none."""
        settings = Settings.from_environment()
        try:
            facts = testbed.Facts(**json.loads(testbed.facts_file(settings).read_text()))
        except (OSError, ValueError, TypeError) as problem:
            raise LabError("no lab is up: start it with `make lab`") from problem
        return cls._of(settings, Progress(settings.cache / "durations.json"), facts)

    @classmethod
    @phases.phase(phases.LAB)
    def up(cls) -> "Lab":
        """Bring up those parts of the lab that do not run, and return the lab."""
        settings = Settings.from_environment()
        with Progress(settings.cache / "durations.json") as progress:
            return cls._of(settings, progress, testbed.up(settings, progress))

    @classmethod
    def _of(cls, settings: Settings, progress: Progress, facts: testbed.Facts) -> "Lab":
        return cls(
            settings=settings,
            progress=progress,
            kubeconfig=Path(facts.kubeconfig),
            registry=facts.registry,
            image=facts.image,
            pool_image=facts.pool_image,
            pool_host=facts.pool_host,
        )

    def kubectl(self, *arguments: str, input: str | None = None, timeout: float = 120) -> str:  # noqa: A002
        """Run kubectl as admin with `input` on its standard input; return its standard output.

        Frequent commands need no program: see `lab.kubectl`.
        """
        what = f"kubectl {' '.join(arguments)[:80]}"
        program = node.kubectl(self.settings)
        return kubectl.perform(program, self.kubeconfig, arguments, what=what, stdin=input, timeout=timeout)

    def access_point(
        self,
        user: str,
        command: str | Sequence[str],
        input: str | None = None,  # noqa: A002
        timeout: float = 120,
    ) -> str:
        """Run `command`, an argv or a shell script, as `user` in his home on the access point; return its stdout."""
        script = command if isinstance(command, str) else shlex.join(command)
        what = f"run `{script[:80]}` on the access point"
        return run(access.argv(self.settings, user, script), what=what, stdin=input or "", timeout=timeout)

    @phases.phase(phases.LAB)
    def push_image(self, name: str, source: str | Path) -> str:
        """Build and push an image from a Dockerfile's text, or from a folder with one; return its reference.

        `name` may have a tag; without one, the tag names the content, and what is unchanged is not built again.
        `ARG BASE` followed by `FROM $BASE` means the lab's Debian.
        """
        return Images(self.settings, self.progress).from_source(name, source)
