"""A pilot, alice who attacks it, and bob who comes after her."""

import hashlib
import json
import shutil
import time
import zipapp
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import cache
from io import BytesIO
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

import pytest

from lab.api import Lab
from lab.errors import LabError
from lab.jobs import BAD_NEWS, Event, Jobs
from lab.levels import NAMESPACES, Level
from lab.oci import Entry, layer
from tests.e2e.pool import MATCHED_SECONDS, Pool, Result, result

HERE = Path(__file__).parent
ARSENAL: Final = "arsenal.pyz"
"""The attacks as one file, which HTCondor takes to the job: `python3 ./arsenal.pyz NAME...`."""
WITNESS: Final = (HERE / "witness.py").read_text()

MARK: Final = "leftover-of-alice"
"""In the name or the content of whatever alice leaves."""

BASELINE: Final = pytest.mark.parametrize("level", ["baseline"], indirect=True, scope="session")
RESTRICTED: Final = pytest.mark.parametrize("level", ["restricted"], indirect=True, scope="session")
"""For what HTCondor does at one level alone."""


def _first(level: Level) -> pytest.MarkDecorator:
    levels = [one if one == level else pytest.param(one, marks=pytest.mark.nightly) for one in NAMESPACES]
    return pytest.mark.parametrize("level", levels, indirect=True, scope="session")


BASELINE_FIRST: Final = _first("baseline")
RESTRICTED_FIRST: Final = _first("restricted")
"""For what is the same program and the same right at both levels, or more at this one: the other one is `nightly`."""


def chosen(request: pytest.FixtureRequest, test: str, parameter: str, level: Level) -> set[str]:
    """Values of a test's parameter that are in this run at a level."""
    items = (item for item in request.session.items if isinstance(item, pytest.Function) and item.originalname == test)
    cases = [item.callspec.params for item in items]
    return {str(case[parameter]) for case in cases if case["level"] == level}


GROUPS: Final = layer(
    Entry("etc"),
    Entry("etc/passwd", 0o644, b"nobody:x:65534:65534::/:/bin/sh\n"),
    Entry("etc/group", 0o644, b"condor:x:101:nobody\nroot:x:0:nobody\nsandboxes:x:64200:nobody\n"),
)
"""Groups of HTCondor, of the Docker socket and of the sandboxes (components/restricted)."""


@cache
def packed() -> bytes:
    """The content of ARSENAL: the package tests/attacks/arsenal, which can be run (zipapp)."""
    with TemporaryDirectory() as folder, BytesIO() as target:
        shutil.copytree(HERE / "arsenal", f"{folder}/arsenal", ignore=shutil.ignore_patterns("__pycache__"))
        zipapp.create_archive(
            folder, target, interpreter="/usr/bin/python3", main="arsenal.program:main", compressed=True
        )
        return target.getvalue()


def python(text: str) -> str:
    """A shell script that runs a program in Python."""
    return f"python3 - <<'END'\n{text}\nEND"


LEFT: Final = 99
"""The exit code of a job that has found something of the one before it, and has attacked nothing."""

FIRST_LOOK: Final = f"""python3 ./witness.py >.seen || {{
    cat .seen; for out in OUTPUTS; do : >$out; done; exit {LEFT}
}}
rm -f .seen witness.py
"""

FACTS: Final = """
import json, os, sys
FIELD = {"parent": 1, "start": 19}  # of /proc/<pid>/stat, behind the name (proc(5))
engines, daemons, memory = {}, {}, {}
for pid in filter(str.isdecimal, os.listdir("/proc")):
    try:
        command = open(f"/proc/{pid}/cmdline").read().split("\\0")
        name = open(f"/proc/{pid}/comm").read().strip()
        fields = open(f"/proc/{pid}/stat").read().rpartition(")")[2].split()
        status = open(f"/proc/{pid}/status").read()
    except OSError:
        continue
    found = int(fields[FIELD["parent"]]), int(fields[FIELD["start"]])
    if "k8spilot.engine" in command:
        engines[int(pid)] = found
        memory[int(pid)] = sum(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmRSS"))
    if name in ("condor_master", "condor_startd"):
        daemons[int(pid)] = found
lives = [[pid, start] for some in (engines, daemons) for pid, (parent, start) in some.items() if parent not in some]
own = sum(size for pid, size in memory.items() if engines[pid][0] not in engines)
print(json.dumps({"lives": sorted(lives), "memory": own}))
"""
"""Program that prints a pilot's engine, startd and master processes, and the KiB that its engine has in use. A process
that a daemon has begun, and that does not run its own program yet, is not among them."""


@dataclass(frozen=True)
class Facts:
    """Facts of a pilot that an attack must not change."""

    lives: list[list[int]]
    """Engine, startd and master: process id, and when it began. A container that starts again has others."""
    memory: int
    """KiB that the engine has in use."""


@dataclass(frozen=True)
class Attack:
    """One job that attacks."""

    script: str
    commands: Mapping[str, str] = field(default_factory=dict)
    """Submit commands."""
    outputs: tuple[str, ...] = ()
    """Files that it is to bring back, as far as they are any."""


@dataclass
class Outcome:
    """Outcome of an attack: the end of its job, its files, and the pilot before and after it."""

    end: Event
    """Event of the job's end, or of its hold."""
    files: Mapping[str, bytes]
    before: Facts
    after: Facts
    left: str = ""
    """Traces of the attack that the next user's job has found."""

    @property
    def done(self) -> Result:
        """As what came back of a job that has ended."""
        assert self.end.kind == "JobTerminatedEvent", self.end
        return Result(self.end.attributes, self.files["out.0"], self.files["err.0"], self.files)


class Ground(Pool):
    """The pilot that is attacked."""

    @property
    def python(self) -> dict[str, str]:
        """A job in an image with Python, HTCondor's tools and docker: the pilot's own, which everybody can have."""
        return {"container_image": f"docker://{self.lab.image}", "docker_override_entrypoint": "true"}

    def alice(self, script: str, *, count: int = 1, **commands: str) -> Jobs:
        """A shell script of hers, with her arsenal beside it."""
        more = {**self.python, "transfer_input_files": ARSENAL, **commands}
        return self.shell(script, files={ARSENAL: packed()}, count=count, **more)

    def attack(self, script: str, commands: Mapping[str, str] | None = None, timeout: float = 120) -> Result:
        """Run a job of alice's with her arsenal beside it, and return its result."""
        return result(self.alice(script, **(commands or {})), timeout=timeout)  # type: ignore[arg-type]

    def bob(self) -> Jobs:
        """The next user: looks for whatever another may have left, and computes something."""
        data = "bob's data\n" * 1000
        files = {"witness.py": WITNESS, "data": data}
        return self.shell(
            "python3 ./witness.py; [ -e sum ] || : >sum; exit 7",
            user="bob",
            files=files,
            transfer_input_files="witness.py, data",
            transfer_output_files="sum",
            **self.python,  # type: ignore[arg-type]
        )

    def is_fit(self, timeout: float = 120, bob: Jobs | None = None) -> None:
        """The next job of another user, which may be there, runs, sees nothing of the one before, and is right."""
        found = result(bob or self.bob(), timeout=timeout)
        assert (found.code, found.stderr) == (7, b""), found
        assert json.loads(found.stdout)["left"] == [], found.text[:2000]
        assert found.files["sum"].decode() == hashlib.sha256(b"bob's data\n" * 1000).hexdigest()
        status = json.loads(self.inside("k8spilot status --json; true"))
        assert status["fit"], status

    def facts(self) -> Facts:
        """Return the facts of the pilot that an attack must not change."""
        return Facts(**json.loads(self.inside(f"exec python3 -S -E - <<'END'\n{FACTS}\nEND")))

    def in_turn(self, attacks: Mapping[str, Attack], timeout: float = 120) -> dict[str, Outcome | LabError]:
        """Make attacks one after the other: each job first looks for what the one before has left.

        They are of alice and bob in turn, and twice of each where jobs of one claim have one container.
        No attack may be one whose job begins again. The last one is alice's: bob is to come after it (`is_fit`). The
        next job waits in the queue while one runs.

        Args:
            attacks: by name.
            timeout: seconds for each of them.
        """
        outcomes: dict[str, Outcome | LabError] = {}
        facts, last, ahead = self.facts(), "", [*attacks]
        users = ("alice", "bob") if self.lab.level == "baseline" else ("alice", "alice", "bob", "bob")
        coming = {name: users[(len(attacks) - 1 - at) % len(users)] for at, name in enumerate(attacks)}
        waiting = {name: self.watching(attacks[name], coming[name]) for name in ahead[:1]}
        for at, name in enumerate(ahead):
            jobs = waiting.pop(name)
            try:
                jobs.wait("ExecuteEvent", timeout=MATCHED_SECONDS)
                if following := ahead[at + 1 : at + 2]:
                    waiting[following[0]] = self.watching(attacks[following[0]], coming[following[0]])
                end = jobs.wait("JobTerminatedEvent", "JobHeldEvent", ignore=BAD_NEWS, timeout=timeout)
                files, before, facts = jobs.files(), facts, self.facts()
                outcomes[name] = Outcome(end, files, before, facts)
                if end.attributes.get("ReturnValue") == LEFT and isinstance(found := outcomes.get(last), Outcome):
                    found.left = files["out.0"].decode() or files["err.0"].decode()
            except LabError as problem:
                outcomes[name] = problem
                jobs.remove()
                if following := ahead[at + 1 : at + 2]:
                    waiting.setdefault(following[0], self.watching(attacks[following[0]], coming[following[0]]))
            last = name
        return outcomes

    def watching(self, attack: Attack, user: str) -> Jobs:
        """Submit a job that looks for what the one before it has left, and attacks."""
        outputs = {"transfer_output_files": ", ".join(attack.outputs) or '""'}
        return self.shell(
            FIRST_LOOK.replace("OUTPUTS", " ".join(attack.outputs)) + attack.script,
            user=user,
            files={"witness.py": WITNESS, ARSENAL: packed()},
            **{"transfer_input_files": f"witness.py, {ARSENAL}", **self.python, **outputs, **attack.commands},  # type: ignore[arg-type]
        )


@contextmanager
def attacked(lab: Lab, pod: str) -> Iterator[Ground]:
    """The pilot; after the attacks it is fit, nothing of it has been started again, and its log tells of no fault."""
    began = time.monotonic()
    with ExitStack() as cleanup:
        ground = Ground(lab, pod, cleanup)
        before = ground.facts().lives
        yield ground
        assert ground.facts().lives == before, "engine or HTCondor have been started again"
    assert not ground.faults(round(time.monotonic() - began) + 2)
