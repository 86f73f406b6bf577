"""`k8spilot status`: the engine's status, requested over its socket.

It uses little of the standard library, and nothing else, so that a loop over a hundred pilots is fast.
"""

import json
import os
from datetime import UTC, datetime
from typing import Any, Final

from k8spilot.common import pilot_api, unix_http

SOCKET: Final = "/run/k8spilot/docker.sock"
"""Path of the engine's socket unless K8SPILOT_SOCKET sets another one (settings/fields.py)."""

FIT: Final = 0
NOT_FIT: Final = 1
NO_PILOT: Final = 2

_QUERY_SECONDS: Final = 20.0

Json = dict[str, Any]


class NoPilot(Exception):
    """Raised when there is no engine: there is no pilot here, or its engine has not started yet."""


def query(path: str) -> Json:
    """Return the status of the engine that listens at `path`; if it does not answer, a status with that fault.

    Raises:
        NoPilot: there is no such socket.
    """
    try:
        return dict(json.loads(unix_http.get(path, pilot_api.STATUS, _QUERY_SECONDS)))
    except (FileNotFoundError, NotADirectoryError):
        if "POD_NAME" in os.environ:  # as manifests/pilot-pod.yaml sets it
            words = "this pilot is not ready yet: it starts or waits for credentials; the pilot's log says more"
        else:
            words = f"there is no pilot here: it would listen at {path}"
        raise NoPilot(words) from None
    except PermissionError:
        raise NoPilot(f"only root and the group condor may query the pilot at {path}") from None
    except OSError as error:
        why = "is restarting, or hangs" if isinstance(error, TimeoutError) else f"is gone ({error.strerror})"
    except ValueError as error:
        why = f"sent an invalid answer ({error})"
    return {"fit": False, "problems": [f"the engine at {path} {why}; the pilot's log says more"]}


def text(status: Json) -> str:
    """Return the status as text for people."""
    lines = ["fit" if status["fit"] else "NOT FIT", *(f"  {problem}" for problem in status["problems"])]
    if "slots" not in status:
        return "\n".join(lines)
    lines[0] += f": pilot {status['pod']}, k8spilot {status['version']}"
    slots, engine = status["slots"], status["engine"]
    for slot in slots:
        lines += _slot(slot, "slot" if len(slots) == 1 else slot["name"])
    if equal := status.get("equal_slots"):
        lines.append(f"sizes     {equal}")
    lines.append(f"HTCondor  {_condor(status['htcondor'])}")
    if pool := status.get("pool"):
        lines.append(f"pool      {_pool(pool)}")
    if (gpus := status.get("gpus")) and (gpus["usable"] or gpus["problem"]):
        lines.append(f"GPUs      {gpus['words']}")
    lines.append(f"API       {_api(status['api'])}")
    if any(slot["payload_scoped"] is False for slot in slots):
        lines.append(
            "payload   can reach abstract sockets of the other containers: Linux 6.12 with Landlock would prevent that"
        )
    lines += [f"ignored   {words}" for words in status.get("ignored_settings") or ()]
    lines.append(f"engine    runs for {_age(engine['since'])}, restarts: {engine['restarts']}")
    if fault := status["last_fault"]:
        lines.append(f"last fault, {_age(fault['when'])} ago: {fault['what']}: {fault['words']}")
    else:
        lines.append("no fault since the engine's start")
    return "\n".join(lines)


def _slot(slot: Json, title: str) -> list[str]:
    lines = [f"{title:<9} {slot['state']} for {_age(slot['since'])}"]
    if slot["job"] or slot["image"]:
        lines.append(f"  job     {slot['job'] or 'not known yet'}{_since(', runs for ', slot['job_since'])}")
        lines.append(f"  image   {slot['image']} (attempt {slot['attempt']})")
    else:
        lines[0] += ", without a job"
    if found := slot["htcondor"]:
        job = f", job {found['job']} of {found.get('user', 'somebody')}" if "job" in found else ""
        lines.append(
            f"  claim   {found.get('state')}/{found.get('activity')}{_since(' for ', found.get('since'))}{job}"
        )
    return lines


def _condor(found: Json | None) -> str:
    if found is None:
        return "does not run here (K8SPILOT_SERVICES)"
    if not found["up"]:
        return "does not answer"
    ends = (
        [f"takes {'no new jobs' if found['retiring'] else 'jobs until ' + found['to_retire']}"]
        if "to_retire" in found
        else []
    )
    if "to_die" in found:
        ends.append(f"ends {found['to_die']} at the latest")
    return "; ".join(["runs", *ends])


def _pool(pool: Json) -> str:
    updated = f", last known update {_age(pool['last_update'])} ago" if pool["last_update"] else ""
    if not pool["in_pool"]:
        return f"NOT in the pool for {_age(pool['since'])}{updated}"
    return f"in the pool as {pool['slot']} of {pool['collector']} for {_age(pool['since'])}{updated}"


def _api(api: Json) -> str:
    heard = f"last heard {_age(api['last_contact'])} ago" if api["last_contact"] else "never heard"
    state = "can be reached" if api["reachable"] else f"cannot be reached for {_age(api['away_since'])}"
    return f"{state}, {heard}, {api['requests']} requests"


def _since(words: str, moment: str | None) -> str:
    return f"{words}{_age(moment)}" if moment else ""


def _age(moment: str) -> str:
    """Return the time since then: 12 s, 5 min 3 s, 2 h 5 min, 3 d 4 h."""
    seconds = max(0, int((datetime.now(UTC) - datetime.fromisoformat(moment)).total_seconds()))
    for size, unit, smaller, subunit in ((86400, "d", 3600, "h"), (3600, "h", 60, "min"), (60, "min", 1, "s")):
        if seconds >= size:
            return f"{seconds // size} {unit} {seconds % size // smaller} {subunit}"
    return f"{seconds} s"


def main(as_json: bool) -> int:
    """Show the status; return the program's exit status."""
    try:
        found = query(os.environ.get("K8SPILOT_SOCKET") or SOCKET)
    except NoPilot as error:
        print(json.dumps({"fit": False, "problems": [str(error)]}, indent=2) if as_json else error)  # noqa: T201
        return NO_PILOT
    print(json.dumps(found, indent=2) if as_json else text(found))  # noqa: T201
    return FIT if found["fit"] else NOT_FIT
