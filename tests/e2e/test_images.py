"""Images that are right, wrong, strange or not there."""

import secrets

import pytest

from lab.oci import OciImage, Pusher, shell
from tests.e2e.pool import IMAGE_HOLD, Pool, hold_reason, result, slot_takes_a_job_of_bob
from tests.runner.tiers import each_day


def test_an_image_with_one_static_program_and_nothing_else(pool: Pool) -> None:
    done = result(
        pool.submit({"container_image": pool.image("hello"), "executable": "/hello", "arguments": "\"7 'a b'\""})
    )
    assert done.code == 7
    assert done.text.splitlines()[-1] == "argument 2: a b"


@pytest.mark.quick
def test_an_image_pushed_a_moment_ago_with_an_entrypoint(pool: Pool) -> None:
    mark = secrets.token_hex(4)
    pushed = pool.lab.push_image(
        "e2e-entrypoint",
        "ARG BASE\nFROM $BASE\n"
        f'ENV MARK={mark} PATH=/usr/bin:/bin\nWORKDIR /var/tmp\nENTRYPOINT ["/usr/bin/env", "WRAPPED=yes"]\n',
    )
    # HTCondor leaves the entrypoint in its place: the executable is its argument.
    done = result(
        pool.submit(
            {
                "container_image": f"docker://{pushed}",
                "executable": "/usr/bin/env",
                "environment": '"OWN=1"',
            }
        )
    )
    assert {f"MARK={mark}", "WRAPPED=yes", "OWN=1"} <= set(done.text.splitlines())


def test_an_image_named_by_digest(pool: Pool) -> None:
    # By which of its repositories the node knows an image is not for us to choose; that one may have gone by now.
    container = pool.status()["status"]["containerStatuses"][0]
    digest = container["imageID"].rpartition("@")[2]
    done = result(
        pool.submit(
            {
                "container_image": f"{pool.image('k8spilot')}@{digest}",
                "executable": "/usr/bin/id",
                "arguments": "-u",
            }
        )
    )
    # The project's own image has an entrypoint, `k8spilot`, which knows no such command.
    assert done.code == 2
    assert b"/usr/bin/id" in done.stderr


@pytest.mark.quick
def test_an_image_that_does_not_exist(pool: Pool) -> None:
    jobs = pool.submit({"container_image": pool.image("no-such-image:1.0")})
    reason = hold_reason(jobs, IMAGE_HOLD)
    assert "no-such-image:1.0" in reason
    assert "unknown" in reason  # the registry's own word
    slot_takes_a_job_of_bob(pool)


INVALID = ("Upper/Case:tag", "a" * 300, "no space", "docker://twice", "double//slash", "image@sha256:123", "image:")
"""Names that no image can have."""
SAYS_SO = "is not a valid image reference; write it as [registry/]repository[:tag][@digest]"


def test_references_that_are_none(pool: Pool) -> None:
    jobs = {name: pool.submit({"container_image": pool.image(name)}) for name in INVALID}
    jobs["twice"] = pool.submit({"container_image": f"docker://{pool.image('busybox')}"})
    reasons = {name: hold_reason(one) for name, one in jobs.items()}
    assert not {name: reason for name, reason in reasons.items() if SAYS_SO not in reason}
    slot_takes_a_job_of_bob(pool)


def test_a_reference_with_a_line_break_in_it(pool: Pool) -> None:
    jobs = pool.submit({"container_image": pool.image("busybox"), "+ContainerImage": r'"docker://busy\nbox"'})
    assert SAYS_SO in hold_reason(jobs)


def test_every_way_to_name_an_image(pool: Pool, pusher: Pusher) -> None:
    first, second = (
        pusher.push("e2e-names", OciImage([shell()], {"Env": ["PATH=/bin", f"VERSION={version}"]})) for version in "12"
    )
    by_tag, _, digest = second.partition("@")
    ways = {
        by_tag: "2",
        by_tag.removesuffix(":latest"): "2",
        second: "2",
        f"{by_tag.removesuffix(':latest')}@{digest}": "2",
        # The tag is ignored where there is a digest, as Docker does.
        first: "1",
        f"{by_tag}-that-does-not-exist@{digest}": "2",
    }
    begun = [
        (pool.shell("echo $VERSION", container_image=f"docker://{name}"), version) for name, version in ways.items()
    ]
    assert [result(jobs).text.strip() for jobs, _ in begun] == [version for _, version in begun]


def test_a_tag_that_was_moved_means_the_new_image(pool: Pool, pusher: Pusher) -> None:
    name = f"e2e-moved:{secrets.token_hex(4)}"
    for version in "12":
        pusher.push(name, OciImage([shell()], {"Env": ["PATH=/bin", f"VERSION={version}"]}))
        assert result(pool.shell("echo $VERSION", container_image=pool.image(name))).text.strip() == version


@pytest.mark.parametrize("policy", each_day(("missing",), ("always", "missing", "whatever")))
def test_a_pull_policy(pool: Pool, pusher: Pusher, policy: str) -> None:
    # HTCondor passes on `always` and knows no other; each bind asks the registry what the tag means in any case.
    name = f"e2e-policy:{secrets.token_hex(4)}"
    for version in "12":
        pusher.push(name, OciImage([shell()], {"Env": ["PATH=/bin", f"VERSION={version}"]}))
        job = pool.shell("echo $VERSION", container_image=pool.image(name), docker_pull_policy=policy)
        assert result(job).text.strip() == version


@pytest.mark.parametrize(
    ("commands", "words"),
    [
        pytest.param({"docker_network_type": "host"}, "the pod's network", marks=pytest.mark.nightly),
        ({"docker_network_type": "none"}, "the pod's network"),
    ],
)
def test_what_a_pod_cannot_do_is_refused_with_the_reason(pool: Pool, commands: dict[str, str], words: str) -> None:
    jobs = pool.submit(commands)
    assert words in hold_reason(jobs, IMAGE_HOLD)
    slot_takes_a_job_of_bob(pool)


def test_dockers_own_name_for_the_usual_network_is_fine(pool: Pool) -> None:
    assert result(pool.submit({"docker_network_type": "bridge"})).code == 0


def test_a_job_for_another_network_takes_no_slot_and_harms_none(pool: Pool) -> None:
    # Its starter would take docker off the machine.
    jobs = pool.submit({"docker_network_type": "mine"})
    slot_takes_a_job_of_bob(pool)
    jobs.look()
    assert [event.kind for event in jobs.events] == ["SubmitEvent"]


def test_an_input_file_that_cannot_be_read(pool: Pool) -> None:
    jobs = pool.shell("cat data", files={"data": "x"}, transfer_input_files="data", hold="true")
    pool.lab.access_point("alice", f"rm {jobs.folder}/data")  # condor_submit had seen to it that it was there
    jobs.command("condor_release")
    facts = jobs.held().attributes
    assert facts["HoldReasonCode"] == 13  # TransferInputError
    assert "data" in facts["HoldReason"]
    assert "No such file" in facts["HoldReason"]
    slot_takes_a_job_of_bob(pool)
