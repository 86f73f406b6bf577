"""Jobs of mixed sizes on one pod of eight payload containers, looked at every second in four places."""

import random
from collections.abc import Iterator
from typing import Any, Final

import pytest

from k8spilot.model.slot_sizes import Size, total
from lab import jobs, pilot
from lab.api import Lab
from lab.jobs import Jobs
from lab.settings import CHECKOUT
from tests.e2e.pool import Pool, ads, result
from tests.e2e.size_looks import JobProcess, Look, Looks

CONTAINERS: Final = 8
LIMITS: Final = {"cpu": "16", "memory": "4096Mi", "ephemeral-storage": "10400Mi"}
# The node of the lab is small: the pod requests a small part of what it may use.
REQUESTS: Final = {"cpu": "160m", "memory": "512Mi", "ephemeral-storage": "400Mi"}
COUNT: Final = 64
CPUS: Final = (1, 2, 3, 4)
MEMORY_MB: Final = (64, 128, 200, 256, 384, 512, 768, 1024)
QUANTUM_MB: Final = 128
"""HTCondor rounds the memory of a dynamic slot up to a multiple of it (MODIFY_REQUEST_EXPR_REQUESTMEMORY)."""
TABLE: Final = CHECKOUT / "build/slot-sizes.md"


@pytest.fixture(scope="module")
def pod(lab: Lab, owner: str) -> Iterator[str]:
    """A pilot pod with eight payload containers."""
    name = f"e2e-{owner}-mixed"
    value = {"limits": LIMITS, "requests": REQUESTS}
    change = pilot.change({"op": "replace", "path": "/spec/initContainers/1/resources", "value": value})
    pilot.deploy(lab, name, overlay={"patches": [change]}, slots=CONTAINERS)
    jobs.wait_in_pool(lab, name)
    yield name
    pilot.discard(lab, name)


def listed(values: list[Any]) -> str:
    """A value for each job, as a submit command."""
    return f"$CHOICE(Process,{','.join(map(str, values))})"


@pytest.mark.nightly  # two minutes
@pytest.mark.timeout(600)
def test_no_process_of_64_jobs_of_mixed_size_runs_in_a_container_of_another_size_than_the_promised_one(
    pool: Pool,
) -> None:
    draw = random.Random(64)
    cpus, memory = [draw.choice(CPUS) for _ in range(COUNT)], [draw.choice(MEMORY_MB) for _ in range(COUNT)]
    looks = Looks(pool, CONTAINERS)
    with looks.going_on():
        submitted = pool.shell(
            "sleep $((3 + $1 % 4)); echo done",
            count=COUNT,
            request_cpus=listed(cpus),
            request_memory=listed([f"{one}M" for one in memory]),
            request_disk="20M",
        )
        for number in range(COUNT):
            submitted.ended(number, timeout=400)
    seen = {one.job: (look, one) for look in looks.looks for one in look.running}
    claims = _claims(submitted)
    report = _report(looks, submitted, seen, claims)
    TABLE.parent.mkdir(exist_ok=True)
    TABLE.write_text(report)
    assert not looks.faults, looks.faults
    assert len(seen) > COUNT // 2, "most jobs were seen while they ran"
    running = sum(len(look.running) for look in looks.looks)
    assert looks.fresh > 0.9 * running, "the collector mostly knew which job ran"
    assert all(result(submitted, number).stdout == b"done\n" for number in range(COUNT))
    for _, one in seen.values():
        rounded = -(-one.requested.memory // QUANTUM_MB) * QUANTUM_MB
        first_of_its_claim = claims[one.job][1]
        assert one.requested.fits_in(one.promised), one
        assert one.promised == Size(one.requested.cpu, rounded) or not first_of_its_claim, one


def _claims(submitted: Jobs) -> dict[str, tuple[str, bool]]:
    """The claim of each job, and whether the job was the first one of it."""
    found: dict[str, tuple[str, bool]] = {}
    known: set[str] = set()
    for ad in sorted(ads(submitted), key=lambda ad: int(ad["JobStartDate"])):
        claim = str(ad["LastPublicClaimId"])
        found[f"{ad['ClusterId']}.{ad['ProcId']}"] = claim.split("#")[-2], claim not in known
        known.add(claim)
    return found


def _report(
    looks: Looks, submitted: Jobs, seen: dict[str, tuple[Look, JobProcess]], claims: dict[str, tuple[str, bool]]
) -> str:
    """The table of all jobs that were seen, and how much of the pod they used."""
    rows = [
        "| Job | Container | Requested | HTCondor's slot | Pod's spec | Pod's status | cgroup | Claim |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for job, (look, one) in sorted(seen.items(), key=lambda item: int(item[0].split(".")[1])):
        claim, is_first = claims[job]
        sizes = (one.requested, one.promised, look.spec[one.number], look.status[one.number], one.cgroup)
        cells = [job, f"payload-{one.number}", *map(_cell, sizes), claim if is_first else f"{claim}, reused"]
        rows.append(f"| {' | '.join(cells)} |")
    return "\n".join([*_summary(looks, submitted, seen, claims), "", *rows, ""])


def _summary(
    looks: Looks, submitted: Jobs, seen: dict[str, tuple[Look, JobProcess]], claims: dict[str, tuple[str, bool]]
) -> Iterator[str]:
    whole = Size(int(LIMITS["cpu"]) * 1000, int(LIMITS["memory"].removesuffix("Mi")))
    last_start = max(one.at for one in submitted.events if one.kind == "ExecuteEvent")
    first_start = min(one.at for one in submitted.events if one.kind == "ExecuteEvent")
    busy = [look for look in looks.looks if first_start + 1 <= look.at < last_start]
    processes = [total(one.promised for one in look.running) for look in busy]
    slots = [total(size for _, size in look.ads.values()) for look in busy]
    larger = [one for _, one in seen.values() if one.promised != one.requested]
    reused = [one for one in larger if not claims[one.job][1]]
    beyond = [
        one
        for one in reused
        if one.promised.memory - one.requested.memory >= QUANTUM_MB or one.promised.cpu != one.requested.cpu
    ]
    yield f"{len(looks.looks)} looks, {len(busy)} of them while jobs waited; {len(looks.faults)} disagreements."
    running = sum(len(look.running) for look in looks.looks)
    yield f"Processes of jobs seen: {running}, {looks.fresh} of them with the slot's ad of that job."
    yield ""
    yield f"- Budget of all jobs: {whole}."
    for what, sizes in (("job processes in their containers", processes), ("HTCondor's dynamic slots", slots)):
        if sizes:
            cpu = sum(size.cpu for size in sizes) / len(sizes) / whole.cpu
            memory = sum(size.memory for size in sizes) / len(sizes) / whole.memory
            yield f"- Used while jobs waited, by {what}: CPU {cpu:.2f}, memory {memory:.2f} of the budget (mean)."
    most = max((total(look.spec.values()).memory for look in looks.looks), default=0)
    yield f"- Largest sum of the memory limits in the spec: {most} MiB."
    yield f"- Jobs: {submitted.count}, seen: {len(seen)}, claims: {len({claim for claim, _ in claims.values()})}."
    yield f"- Jobs whose slot was larger than their request: {len(larger)}; of these in a reused claim: {len(reused)}, "
    yield f"  beyond the rounding to {QUANTUM_MB} MiB: {len(beyond)}."


def _cell(size: Size | None) -> str:
    return "-" if size is None else f"{size.cpu / 1000:g}, {size.memory} MiB"
