"""HTCondor's configuration, as HTCondor itself reads it and evaluates what is in it."""

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import classad2
import htcondor2  # noqa: F401 -- gives ClassAds the functions that HTCondor adds, as in its daemons

from k8spilot.condor.configuration.values import render
from k8spilot.condor.folders import Folders
from k8spilot.settings import Settings

STARTED = 1_800_000_000
BROKERS = 10

_DUMP = "import htcondor2, sys; [print(f'{name}={htcondor2.param.get(name)}') for name in sys.argv[1:]]"


def settings(**changes: Any) -> Settings:
    known = {
        "pod_name": "pilot-7",
        "pod_namespace": "pilots",
        "pod_uid": "0b5d9a6e-1c2d-4e3f-8a9b-0123456789ab",
        "node_name": "node-1",
        "glidein_site": "Site (A)",
        "glidein_resource_name": "Resource A",
        "condor_host": "cm.example",
        "payload_cpus": 2,
        "payload_memory_mb": 1024,
    }
    return Settings(**{**known, **changes})


def written(**changes: Any) -> str:
    known = settings(**changes)
    return render(known, Folders.of(known), started=STARTED)


def parsed(folder: Path, text: str, *names: str) -> dict[str, str]:
    """Values that HTCondor reads from a configuration; `None` for what has none."""
    if (text, names) not in _read:
        file = folder / "condor_config"
        file.write_text(text)
        _read[text, names] = _read_by_htcondor(file, names)
    return dict(_read[text, names])


_read: dict[tuple[str, tuple[str, ...]], dict[str, str]] = {}
"""Values that HTCondor has read so far: each read takes half a second, and a hundred tests have few texts."""


def _read_by_htcondor(file: Path, names: Sequence[str]) -> dict[str, str]:
    """In a process of its own: HTCondor reads its configuration once in a process's life."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("_CONDOR_")}
    dump = subprocess.run(
        [sys.executable, "-c", _DUMP, *names],
        env={**kept, "CONDOR_CONFIG": str(file)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert not dump.stderr
    return dict(line.split("=", 1) for line in dump.stdout.splitlines())


def evaluated(folder: Path, job: dict[str, Any], name: str, *, at: int, slot: dict[str, Any], **changes: Any) -> object:
    """Return the value of the configuration's `name` for `job` at the time `at`, with the attributes of the slot."""
    text = written(**changes)
    names = parsed(folder, text, "STARTD_ATTRS")["STARTD_ATTRS"].split()
    values = parsed(folder, text, name, *names)
    # As in HTCondor's daemons: what the slot advertises has the old syntax of ClassAds, what the starter reads the new.
    text = "".join(f"{one} = {values[one]}\n" for one in (*names, *({name} & {"START"})))
    ad = classad2.parseOne(text.replace("time()", str(at)), classad2.ParserType.Old)
    ad.update(classad2.ClassAd(slot))
    expression = ad.lookup(name) if name in ad else classad2.ExprTree(values[name])
    return expression.eval(ad, classad2.ClassAd({"JobUniverse": 5, **job}))


def accepts(
    folder: Path, job: dict[str, Any], *, at: int = STARTED, slot: dict[str, Any] | None = None, **changes: Any
) -> bool:
    """Whether the slot's START takes `job` at the time `at`."""
    return evaluated(folder, job, "START", at=at, slot={"HasDocker": True, **(slot or {})}, **changes) is True


def image(folder: Path, job: dict[str, Any], **changes: Any) -> object:
    """The image that `job` gets if HTCondor does not find one by itself."""
    return evaluated(folder, job, "DEFAULT_CONTAINER_IMAGE", at=STARTED, slot={"HasDocker": True}, **changes)
