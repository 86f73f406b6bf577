"""Resources that a job uses, as HTCondor reports them, and those that it must not use."""

import json
import urllib.request

import pytest

from lab.api import Lab
from lab.http import opened
from tests.e2e.pool import Pool, ads, cpu_seconds, result

BUSY = r"""exec perl -e '
use IO::Socket::INET;
my ($megabytes, $seconds, $host, $path) = @ARGV;
my $memory = "a" x ($megabytes * 1024 * 1024);
open(my $file, ">", "made"); print $file "b" x (1024 * 1024) for 1 .. $megabytes; close($file);
my $server = IO::Socket::INET->new(PeerAddr => $host) or die;
print $server "GET $path HTTP/1.0\r\nHost: $host\r\n\r\n"; my ($bytes, $buffer) = (0, "");
while (my $count = sysread($server, $buffer, 1 << 20)) { $bytes += $count }
open(my $zero, "<", "/dev/zero"); my ($user, $system) = (0, 0);
while ($user + $system < $seconds) {
    if ($user < 2 * $system) { for (1 .. 200000) { $user++ } } else { sysread($zero, $buffer, 1 << 24) }
    ($user, $system) = times;
}
print "$user $system $bytes\n";
' $2 $3 $4 $5"""

MEMORY = """perl -e '$x = "a"; $x x= {megabytes} * 1024 * 1024; print length($x), "\\n"; $| = 1; sleep {seconds};'"""

_ATTRIBUTES = ("RemoteUserCpu", "RemoteSysCpu", "NetworkInputMb", "ResidentSetSize_RAW", "DiskUsage_RAW")


def _largest_blob(lab: Lab, repository: str, tag: str) -> str:
    """Path of the largest layer of an image in the lab's registry: something large to fetch."""
    url = f"http://{lab.registry}/v2/{repository}"
    kinds = "application/vnd.oci.image.manifest.v1+json, application/vnd.docker.distribution.manifest.v2+json"
    request = urllib.request.Request(f"{url}/manifests/{tag}", headers={"Accept": kinds})  # noqa: S310 -- the lab's
    with opened(request, timeout=10) as answer:
        layers = json.load(answer)["layers"]
    return f"/v2/{repository}/blobs/{max(layers, key=lambda layer: int(layer['size']))['digest']}"


@pytest.mark.cluster
def test_what_a_job_uses_is_told_within_a_tenth(pool: Pool) -> None:
    megabytes, seconds = 300, 15
    repository, _, tag = pool.lab.pool_image.removeprefix(f"{pool.lab.registry}/").partition(":")
    blob = _largest_blob(pool.lab, repository, tag)
    arguments = f"$(Process) {megabytes} {seconds} {pool.lab.registry} {blob}"
    jobs = pool.shell(BUSY, image="debian:forky", arguments=arguments, request_memory="512M", request_disk="1G")
    done = result(jobs, timeout=90)
    assert done.code == 0, done.stderr
    user, system, received = (float(word) for word in done.text.split())

    told = {name: float(ads(jobs)[0][name]) for name in _ATTRIBUTES}
    assert told["RemoteUserCpu"] == pytest.approx(user, rel=0.1, abs=1)
    assert told["RemoteSysCpu"] == pytest.approx(system, rel=0.1, abs=1)
    assert told["NetworkInputMb"] == pytest.approx(received / 1e6, rel=0.1)
    assert told["ResidentSetSize_RAW"] == pytest.approx(megabytes * 1024, rel=0.1)
    assert told["DiskUsage_RAW"] == pytest.approx(megabytes * 1024, rel=0.1)
    # And in the event log.
    assert cpu_seconds(done.event["RunRemoteUsage"]) == pytest.approx([user, system], rel=0.1, abs=1)
    assert done.event["MemoryUsage"] == pytest.approx(megabytes, rel=0.1)


@pytest.mark.cluster
def test_more_memory_than_the_slot_has_is_a_hold_with_that_reason(pool: Pool) -> None:
    jobs = pool.shell(MEMORY.format(megabytes=1500, seconds=60), image="debian:forky")
    facts = jobs.held().attributes
    # CONDOR_HOLD_CODE::JobOutOfResources, and the subcode and words of docker_proc.cpp.
    assert (facts["HoldReasonCode"], facts["HoldReasonSubCode"]) == (34, 102), facts
    assert facts["HoldReason"].endswith("Docker job has gone over memory limit of 1024 Mb"), facts
    assert result(pool.shell("echo next", user="bob")).stdout == b"next\n"


@pytest.mark.cluster
def test_a_child_that_is_out_of_memory_alone_is_a_hold_with_that_reason(pool: Pool) -> None:
    # With cgroup v1 the kernel kills the child, and its parent ends well; with v2 all of it dies (memory.oom.group).
    jobs = pool.shell(f"{MEMORY.format(megabytes=1500, seconds=60)}; echo $?; sleep 1", image="debian:forky")
    facts = jobs.held().attributes
    assert (facts["HoldReasonCode"], facts["HoldReasonSubCode"]) == (34, 102), facts
    assert facts["HoldReason"].endswith("Docker job has gone over memory limit of 1024 Mb"), facts
    assert result(pool.shell("echo next", user="bob")).stdout == b"next\n"
