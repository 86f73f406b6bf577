"""Images that are not as most are: their jobs run as with Docker, or are held with the reason."""

import gzip
import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from lab.jobs import BAD_NEWS
from lab.oci import BUSYBOX, CONFIG, LAYER, MANIFEST, Entry, OciImage, Pusher, digest_of, layer, shell
from lab.settings import PILOT_NAMESPACE, SESSION_LABEL
from tests.e2e.pool import MATCHED_SECONDS, WAITS, Pool, ads, hold_reason, result, until

ALONE = "an environment without a value"
"""CRI-O ends at it, so that a pilot of such a node does not bind the image."""
NOTHING = "nothing, and a job that brings its program"
"""An image that does not start in a user namespace: runc may not make /proc in a root folder that is the node's."""
NAMELESS = "a variable without a name"
"""CRI-O leaves it out."""

PASSWD = layer(Entry("etc"), Entry("etc/passwd", 0o644, b"own:x:1000:1000::/home/own:/bin/sh\n"))


def image(*layers: bytes, folder_mode: int = 0o755, architecture: str = "amd64", **config: Any) -> OciImage:
    """An image with a shell, and what is given."""
    return OciImage((shell(folder_mode), *layers), config, architecture)


@dataclass(frozen=True)
class Story:
    """An image, a job in it, and how it ends."""

    image: OciImage
    script: str = "echo fine"
    """For `/bin/sh -c`."""
    commands: Mapping[str, str] = field(default_factory=dict)
    """Submit commands in place of that shell."""
    code: int = 0
    out: str = "fine"
    err: str = ""


RUNS = {
    "a user with a name": Story(image(PASSWD, User="own"), "id -u", out="65534"),
    "a user with a number": Story(image(User="1000:1000"), "id -u", out="65534"),
    "a user that it does not have": Story(image(User="nobody-knows"), "id -u", out="65534"),
    "a user called root": Story(image(PASSWD, User="root"), "id -u", out="65534"),
    "no passwd": Story(image(), "test ! -e /etc/passwd && id", out="uid=65534 gid=65534 groups=65534"),
    "a passwd that nobody may read": Story(image(layer(Entry("etc", 0o700))), "cat /etc/passwd; echo fine"),
    "no tmp": Story(image(), "echo fine >/tmp/x && cat /tmp/x"),
    "a tmp of its own": Story(image(layer(Entry("tmp", 0o700))), "echo fine >/tmp/x && cat /tmp/x"),
    "volumes": Story(
        image(Volumes={"/data": {}, "/more/data": {}}), "test -d /data && test -d /more/data && echo fine"
    ),
    "a health check and triggers": Story(
        image(OnBuild=["RUN false"], Healthcheck={"Test": ["CMD", "false"], "Interval": 1}, ArgsEscaped=True)
    ),
    "a signal to stop that does not end a program": Story(image(StopSignal="SIGWINCH")),
    "a signal to stop with a number": Story(image(StopSignal="37")),
    "a signal to stop that is none": Story(image(StopSignal="SIGNONE")),
    "a working directory that is not there": Story(
        image(WorkingDir="/not/there"), "pwd | cut -c1-23", out="/var/lib/condor/execute"
    ),
    "a working directory that nobody may enter": Story(image(layer(Entry("own", 0o700)), WorkingDir="/own")),
    "an environment": Story(
        image(Env=["PATH=/bin", "MARK=a=b 'c' \"d\"\ttab\nline", "EMPTY="]),
        'test "${EMPTY-unset}" = "" && echo "$MARK"',
        out="a=b 'c' \"d\"\ttab\nline",
    ),
    ALONE: Story(image(Env=["PATH=/bin", "ALONE"])),
    NOTHING: Story(
        OciImage(),
        commands={"executable": "busybox", "transfer_executable": "true", "arguments": "echo fine"},
    ),
    "no command": Story(image(Cmd=[], Entrypoint=[])),
    "an entrypoint": Story(image(Entrypoint=["/bin/echo", "wrapped"]), "echo fine", out="wrapped /bin/sh -c echo fine"),
    "an entrypoint that is overridden": Story(
        image(Entrypoint=["/bin/echo", "wrapped"], Cmd=["not", "this"]),
        commands={"docker_override_entrypoint": "true"},
    ),
    "an entrypoint that is overridden and does not exist": Story(
        image(Entrypoint=["/no/such"]), commands={"docker_override_entrypoint": "true"}
    ),
    "an entrypoint that does not exist": Story(image(Entrypoint=["/no/such"]), code=127, out="", err="/no/such"),
    # containerd makes the root folder itself.
    "a root that nobody may enter": Story(image(layer(Entry(".", 0o700)))),
    "a bin that nobody may enter": Story(image(folder_mode=0o700), code=126, out="", err="Permission denied"),
}


def _job(pool: Pool, reference: str, story: Story) -> Any:
    commands = {
        "container_image": f"docker://{reference}",
        "executable": "/bin/sh",
        "arguments": f'"-c {_quoted(story.script)}"',
        **story.commands,
    }
    files = {"busybox": BUSYBOX.read_bytes()} if commands["executable"] == "busybox" else {}
    return pool.submit(commands, files=files)


def _is_crio(pool: Pool) -> bool:
    return pool.lab.settings.runtime_daemon == "crio"


def _tag(reference: str) -> str:
    """The reference without its digest."""
    return reference.partition("@")[0]


def _quoted(text: str) -> str:
    """One argument in HTCondor's new syntax, within its double quotes."""
    return "'" + text.replace("'", "''").replace('"', '""') + "'"


@pytest.mark.timeout(400)
def test_however_an_image_is_its_job_runs(pool: Pool, pusher: Pusher) -> None:
    begun = {
        name: _job(pool, _tag(pusher.push(f"e2e-odd:{number}", story.image)), story)
        for number, (name, story) in enumerate(RUNS.items())
        if not (name == ALONE and _is_crio(pool))
        if not (name == NOTHING and "user-namespace" in pool.lab.settings.components)
    }
    wrong = {}
    for name, jobs in begun.items():
        story, done = RUNS[name], result(jobs)
        if (done.code, done.text.strip()) != (story.code, story.out) or story.err not in done.stderr.decode():
            wrong[name] = (done.code, done.text, done.stderr.decode())
    assert not wrong


def test_a_job_whose_image_would_end_the_nodes_runtime_goes_back_and_other_jobs_run(pool: Pool, pusher: Pusher) -> None:
    if not _is_crio(pool):
        pytest.skip("only CRI-O ends at an entry without a value in an image's environment")
    refused = _job(pool, _tag(pusher.push("e2e-odd:ends-runtime", RUNS[ALONE].image)), RUNS[ALONE])
    refused.wait("JobEvictedEvent", "ShadowExceptionEvent", timeout=MATCHED_SECONDS + 30, ignore=BAD_NEWS)
    assert result(_job(pool, _tag(pusher.push("e2e-odd:ends-nothing", image())), Story(image()))).text == "fine\n"


def test_an_image_for_several_platforms(pool: Pool, pusher: Pusher) -> None:
    reference = pusher.push("e2e-odd:several", image(Env=["A=several"]), image(architecture="s390x"))
    assert result(_job(pool, _tag(reference), Story(image()))).text == "fine\n"


ODD_PLATFORMS: list[dict[str, Any]] = [
    {"variant": "v1"},
    {"architecture": "x86_64"},
    {"os": "Linux"},
    {"os.features": ["none"]},
    {"variant": "v2"},
    {},
]
"""Platforms of the first of two images, which some clients take and others do not."""


def test_of_an_image_with_odd_platforms_the_one_runs_that_was_looked_at(pool: Pool, pusher: Pusher) -> None:
    begun = []
    for number, platform in enumerate(ODD_PLATFORMS):
        first, second = (
            image(layer(Entry("runs", data=name.encode())), Entrypoint=["/bin/sh", "-c", f"echo {name}; cat /runs"])
            for name in ("first", "second")
        )
        reference = pusher.push(f"e2e-odd:platform-{number}", replace(first, platform=platform), second)
        begun.append(_job(pool, _tag(reference), Story(image())))
    told = [result(jobs).text.splitlines() for jobs in begun]
    assert told == [["second", "second"]] * (len(ODD_PLATFORMS) - 1) + [["first", "first"]]


def test_an_image_that_the_node_knows_by_a_tag_and_another_digest(pool: Pool, pusher: Pusher) -> None:
    # The status names an image by the first tag and the first digest that the node knows it by.
    one, other = image(Env=["A=known"]), image(Env=["A=known"], architecture="s390x")
    known, reference = pusher.push("e2e-odd:known", one), pusher.push("e2e-odd-known:several", one, other)
    pod = f"{pool.pod}-other"
    of = ("-n", PILOT_NAMESPACE, f"--labels={SESSION_LABEL}={pool.lab.settings.session}")
    pool.lab.kubectl("run", pod, *of, "--image", _tag(known), "--restart", "Never", "--", "true")
    try:
        until(lambda: "Succeeded" in pool.lab.kubectl("get", "pod", pod, "-n", PILOT_NAMESPACE, "-o", "yaml"), "it ran")
    finally:
        pool.lab.kubectl("delete", "pod", pod, "-n", PILOT_NAMESPACE, "--grace-period=0", "--force", "--wait=false")
    assert result(_job(pool, known.replace(":known@", "@"), Story(image()))).text == "fine\n"
    jobs = _job(pool, _tag(reference), Story(image(), f"{WAITS}echo fine"))
    assert result(jobs).text == "fine\n"
    assert ads(jobs)[0]["NumShadowStarts"] == 1


def test_an_image_that_cannot_run_holds_its_job_with_the_reason(pool: Pool, pusher: Pusher) -> None:
    whole = shell(0o711)
    half = gzip.compress(whole)[:5000]
    not_an_image = json.dumps({"name": "a chart", "version": "1"}).encode()
    cases = {
        "arm64": (pusher.push("e2e-odd:arm64", image(architecture="arm64")), "it is for linux/arm64"),
        "no platform": (
            pusher.push("e2e-odd:platforms", image(architecture="arm64"), image(architecture="s390x")),
            "none for linux/amd64",
        ),
        "half a layer": (
            _push(pusher, "half", half, digest_of(whole), kind=f"{LAYER}+gzip"),
            "unpacking failed" if _is_crio(pool) else "failed to extract layer",
        ),
        "not an image": (_push(pusher, "chart", b"chart", "", configuration=not_an_image), "not a container image"),
        "no configuration": (_push(pusher, "no-json", whole, "", configuration=b"nothing"), "not JSON"),
        "tmp is a file": (pusher.push("e2e-odd:tmp", image(layer(Entry("tmp", data=b"")))), "has something at /tmp "),
        NAMELESS: (pusher.push("e2e-odd:variable", image(Env=["=x"])), "environment variable"),
        "a directory that is a file": (pusher.push("e2e-odd:file", image(WorkingDir="/bin/sh")), "not a directory"),
        "a volume over the pilot's": (pusher.push("e2e-odd:volume", image(Volumes={"/k8spilot": {}})), "/k8spilot"),
    }
    if _is_crio(pool):
        del cases[NAMELESS]
    begun = {name: _job(pool, _tag(reference), Story(image())) for name, (reference, _words) in cases.items()}
    reasons = {name: hold_reason(jobs) for name, jobs in begun.items()}
    assert {name: reason for name, reason in reasons.items() if cases[name][1] not in reason} == {}
    assert {name: reason for name, reason in reasons.items() if "kubelet" in reason or "runc" in reason} == {}


def test_an_image_without_any_command_and_a_job_without_one(pool: Pool, pusher: Pusher) -> None:
    empty = pusher.push("e2e-odd:empty", image(Cmd=[], Entrypoint=[]))
    own = pusher.push("e2e-odd:own", image(Cmd=["/bin/echo", "its own"]))
    nothing = {"executable": "", "transfer_executable": "false"}
    held, done = (
        pool.submit({"container_image": f"docker://{_tag(reference)}", **nothing}) for reference in (empty, own)
    )
    assert "command" in hold_reason(held)
    assert result(done).stdout == b"its own\n"


def _push(
    pusher: Pusher, tag: str, data: bytes, diff_id: str, *, kind: str = LAYER, configuration: bytes | None = None
) -> str:
    """Push a manifest of one layer that may be anything; its reference."""
    if configuration is None:
        settings: dict[str, Any] = {"architecture": "amd64", "os": "linux", "config": {}}
        configuration = json.dumps({**settings, "rootfs": {"type": "layers", "diff_ids": [diff_id]}}).encode()
    parts = [
        {"mediaType": media, "digest": pusher.put_blob("e2e-odd", blob), "size": len(blob)}
        for media, blob in ((CONFIG, configuration), (kind, data))
    ]
    manifest = {"schemaVersion": 2, "mediaType": MANIFEST, "config": parts[0], "layers": parts[1:]}
    pusher.put_manifest("e2e-odd", tag, json.dumps(manifest).encode(), MANIFEST)
    return f"{pusher.address}/e2e-odd:{tag}"
