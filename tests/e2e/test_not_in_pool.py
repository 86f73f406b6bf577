"""A pilot that its pool does not take says so, is not ready, and ends with the reason."""

import base64
import json
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import yaml

from lab import pilot
from lab.api import Lab
from lab.settings import PILOT_NAMESPACE, POOL_NAMESPACE
from tests.e2e.pool import until
from tests.e2e.test_observing import events

LIMIT_SECONDS = 40
VOLUMES = yaml.safe_load((Path(__file__).parents[2] / "manifests/pilot-pod.yaml").read_text())["spec"]["volumes"]
TOKEN_VOLUME = [volume["name"] for volume in VOLUMES].index("pool-token")

WORDS = {
    "forged": "does not authenticate this pilot (methods tried: IDTOKENS, FS; token token: issuer pool.lab, key POOL, "
    "subject pilot@pool.lab, ",
    "reader": "authenticates this pilot as pilot@pool.lab (IDTOKENS), but does not authorise it to advertise a slot",
    "lost": "cm.invalid: no such host",
}


def _with_token(name: str, token: str) -> dict[str, Any]:
    """Part of an overlay: another Secret in the place of the pool's."""
    path = f"/spec/volumes/{TOKEN_VOLUME}/secret/secretName"
    return {
        "secretGenerator": [{"name": name, "literals": [f"token={token}"], "options": {"disableNameSuffixHash": True}}],
        "patches": [pilot.change({"op": "replace", "path": path, "value": name})],
    }


@pytest.fixture
def refused(lab: Lab, owner: str) -> Iterator[dict[str, str]]:
    """The pods by what is wrong with them; all at once, since each takes its time."""
    secret = json.loads(lab.kubectl("get", "secret", "pool-token", "-n", PILOT_NAMESPACE, "-o", "json"))
    token = base64.b64decode(secret["data"]["token"]).decode().strip()
    of_reader = ("condor_token_create", "-identity", "pilot@pool.lab", "-authz", "READ")
    names = {key: f"e2e-{owner}-{key}" for key in WORDS}
    overlays = {
        "forged": _with_token(f"{names['forged']}-token", f"{token.rpartition('.')[0]}.{'A' * 43}"),
        "reader": _with_token(
            f"{names['reader']}-token",
            lab.kubectl("exec", "-n", POOL_NAMESPACE, "central-manager", "--", *of_reader).strip(),
        ),
        "lost": {},
    }
    try:
        for key, name in names.items():
            host = "cm.invalid" if key == "lost" else lab.pool_host
            environment = {"CONDOR_HOST": host, "K8SPILOT_JOIN_TIMEOUT_SECONDS": str(LIMIT_SECONDS)}
            pilot.delete(lab, name)
            pilot.delete_events(lab, name)
            lab.kubectl("apply", "-k", str(pilot.write_overlay(lab, name, environment, overlays[key])))
        yield names
    finally:
        pilot.discard(lab, *names.values())
        secrets = [f"{names[key]}-token" for key in ("forged", "reader")]
        lab.kubectl("delete", "secret", *secrets, "-n", PILOT_NAMESPACE, "--ignore-not-found")


@pytest.mark.landing
@pytest.mark.timeout(300)
def test_a_pilot_that_the_pool_does_not_take_is_not_fit_and_ends_with_the_reason(
    lab: Lab, refused: dict[str, str]
) -> None:
    for key, name in refused.items():
        found = until(partial(_of, lab, name, "NotInPool"), "the Event is there", 90)
        assert any(WORDS[key] in one["message"] for one in found), (key, found)
    for key, name in refused.items():
        ended = until(partial(_ended, lab, name), "the pilot has ended", 120)
        assert ended is not None
        assert ended["exitCode"] == 1
        assert ended["message"].startswith(f"The pilot ends: the slot was not in the pool within {LIMIT_SECONDS} s: ")
        assert WORDS[key] in ended["message"]
        conditions = {one["type"]: one for one in _pod(lab, name)["status"]["conditions"]}
        assert conditions["Ready"]["status"] == "False"
        assert not _of(lab, name, "Fit")
        assert any(WORDS[key] in one["message"] for one in _of(lab, name, "Drained"))
        log = until(partial(_log_of_the_ended, lab, name, ended["message"]), "the message is the last line of the log")
        errors = {line.split()[2] for line in log.splitlines() if " ERROR " in line}
        assert {"condor.startd:", "k8spilot.condor.daemons.pool_watch:", "k8spilot.supervisor:"} <= errors


def _of(lab: Lab, name: str, reason: str) -> list[dict[str, Any]]:
    return [one for one in events(lab, name) if one["reason"] == reason]


def _pod(lab: Lab, name: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(lab.kubectl("get", "pod", name, "-n", PILOT_NAMESPACE, "-o", "json"))
    return found


def _ended(lab: Lab, name: str) -> dict[str, Any] | None:
    """The first end of the pilot container that can still be seen."""
    statuses = _pod(lab, name)["status"].get("containerStatuses", ())
    return next((one["lastState"].get("terminated") for one in statuses), None)


def _log_of_the_ended(lab: Lab, name: str, last: str) -> str:
    """The log of the ended pilot container; empty if its last line is not `last`, or while the kubelet has none."""
    log = lab.kubectl("logs", name, "-n", PILOT_NAMESPACE, "-c", "pilot", "--previous").strip()
    return log if log.splitlines()[-1:] and log.splitlines()[-1].endswith(last) else ""
