"""Attacks by the words that a user writes into the submit file, which come to stand on docker's command line."""

import json
from collections.abc import Mapping
from contextlib import ExitStack

import pytest

from lab.api import Lab
from lab.errors import LabError
from lab.jobs import Jobs, submit
from lab.levels import Level
from tests.attacks.ground import BASELINE_FIRST, MARK, Ground, attacked
from tests.e2e.pool import hold_reason, runs, until

LABEL = "--label=org.htcondorproject=False"
WORDS: Mapping[str, Mapping[str, str]] = {
    "an image that takes the label of HTCondor away": {
        "docker_image": LABEL,
        "executable": "--entrypoint=/bin/sh",
        "arguments": "\"IMAGE -c 'sleep 300'\"",
    },
    "an image that gives another name": {
        "docker_image": LABEL,
        "executable": f"--name={MARK}",
        "arguments": "\"--entrypoint=/bin/sh IMAGE -c 'sleep 300'\"",
    },
    "an image that writes a file among the sandboxes": {
        "docker_image": f"--cidfile=/var/lib/condor/execute/slot/{MARK}",
        "executable": "IMAGE",
        "arguments": "true",
    },
    "an image that reads a file of HTCondor's": {
        "docker_image": "--env-file=/run/k8spilot/condor/condor_config#x:y",
        "executable": "IMAGE",
        "arguments": "env",
    },
    "an image that reads without end": {
        "docker_image": LABEL,
        "executable": "--security-opt=seccomp=/dev/zero",
        "arguments": "IMAGE",
    },
    "an image that is an option and its value": {"docker_image": "--name", "executable": MARK, "arguments": "IMAGE"},
    "an image that ends the options": {"docker_image": "--", "executable": "IMAGE", "arguments": "true"},
    "an image that is help": {"docker_image": "--help", "executable": "IMAGE"},
    "an entrypoint that is an option": {
        "docker_image": LABEL,
        "executable": "--privileged",
        "docker_override_entrypoint": "true",
        "arguments": "IMAGE",
    },
}


def _submit(ground: Ground, words: Mapping[str, str]) -> Jobs:
    image = f"{ground.lab.registry}/busybox"
    commands = {name: text.replace("IMAGE", image) for name, text in words.items()}
    return submit(ground.lab, "alice", {"universe": "docker", **commands}, pilot=ground.pod)


@pytest.fixture(scope="module")
def held(lab: Lab, battlefield: str, level: Level) -> dict[str, str]:
    """Why each job was held, by the name of its words: all are in the queue at once."""
    with attacked(lab.at(level), battlefield) as ground, ExitStack() as cleanup:
        jobs = {one: _submit(ground, words) for one, words in WORDS.items()}
        for job in jobs.values():
            cleanup.callback(job.remove)
        return {one: hold_reason(job) for one, job in jobs.items()}


@BASELINE_FIRST  # words for docker's client, which is the same program
@pytest.mark.parametrize("name", WORDS)
def test_docker_takes_no_option_of_a_users_by(held: dict[str, str], name: str) -> None:
    """The jobs are held one after the other, with a sentence for the user; the slot is the next job's at once."""
    assert "is not the name of an image; set container_image or docker_image" in held[name]


@BASELINE_FIRST
@pytest.mark.usefixtures("held")
def test_after_all_of_those_words_the_next_user_finds_nothing(ground: Ground) -> None:
    ground.is_fit()
    assert MARK not in ground.inside("ls -R /var/lib/condor/execute; docker ps -a")


def test_what_people_run_by_hand_keeps_the_slot_from_no_job(ground: Ground) -> None:
    """With whatever name and labels: it is removed when the next job comes, which sees nothing of it."""
    image = f"{ground.lab.registry}/busybox"
    script = f"trap '' TERM; while :; do sleep 1; : {MARK}; done"
    by_hand = f'docker run -d --name by-hand --label org.htcondorproject=False {image} sh -c "{script}"'
    ground.inside(by_hand)
    runs(ground, "sleep 1")
    ground.is_fit()
    with pytest.raises(LabError, match="No such"):
        ground.inside("docker inspect by-hand")


def test_a_job_does_not_outlive_its_starter(ground: Ground) -> None:
    """Also where the startd removes no container: a job has means to keep it from that (a fork bomb, for one)."""
    jobs = ground.alice("trap '' TERM; while :; do sleep 1; done")
    jobs.wait("ExecuteEvent")
    runs(ground, "sleep 1")
    ground.inside("rm /var/lib/condor/execute/slot/dir_*.recover; pkill -KILL condor_starter")
    jobs.command("condor_hold")
    until(lambda: not ground.processes(), "nothing of the job runs any more", 60)
    until(
        lambda: json.loads(ground.inside("k8spilot status --json; true"))["slots"][0]["state"] == "idle",
        "the payload container is nobody's",
    )
    ground.is_fit()
