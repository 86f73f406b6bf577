"""The Events that a pilot publishes on its own pod: reason, type, and when each one is published.

The publisher of an Event takes its type from this table. The reference page of Events is generated from it.
"""

from collections.abc import Mapping
from typing import Final, Literal, NamedTuple

EventType = Literal["Normal", "Warning"]
"""Type in the Kubernetes API: `Warning` is for Events that need attention."""

EventReason = Literal[
    "Fit",
    "NotFit",
    "InPool",
    "NotInPool",
    "MoreRights",
    "SettingIgnored",
    "EqualSlots",
    "Bound",
    "ImageRefused",
    "JobRefused",
    "ImageLeft",
    "ImageUnavailable",
    "NotBound",
    "JobLost",
    "BlackHole",
    "StillPulling",
    "ApiUnreachable",
    "Recovered",
    "HTCondorHangs",
    "GpuMismatch",
    "GpusUnmeasured",
    "MetricsPortTaken",
    "Draining",
    "Drained",
]


class EventKind(NamedTuple):
    """Properties of all Events with one reason."""

    type: EventType
    when: str
    """Time or condition of the Event, in one or two sentences for the reference page."""
    action: str = ""
    """Action of the operator, in a sentence; empty if none is needed."""


EVENTS: Final[Mapping[EventReason, EventKind]] = {
    "Fit": EventKind("Normal", "At the start, when all preflight checks have passed and the pool has the slot."),
    "NotFit": EventKind(
        "Warning",
        "At the start, one for each fault of the preflight checks, at most eight. The container then ends with exit "
        "code 2, but waits ten minutes for a Secret that alone is missing.",
        "Do what the message says; the kubelet starts the container again.",
    ),
    "InPool": EventKind("Normal", "A collector of the pool has the slot's ad, after the start or an absence."),
    "NotInPool": EventKind(
        "Warning",
        "No collector of the pool has the slot's ad: at the start, or later for more than 150 s. The message says why, "
        "such as no such host, nobody answers, not authenticated, or not authorised.",
        "Do what the message says. A pilot that is never in the pool ends after `K8SPILOT_JOIN_TIMEOUT_SECONDS`.",
    ),
    "MoreRights": EventKind(
        "Warning",
        "At the start, if the service account has rights that a pilot does not need.",
        "Remove these rights from the account.",
    ),
    "SettingIgnored": EventKind(
        "Warning",
        "At the start, one for each variable of the pilot that looks like a setting and has no effect, at most eight.",
        "Do what the message says, or remove the variable.",
    ),
    "EqualSlots": EventKind(
        "Warning",
        "At the start, when the manifest asks for a partitionable slot and the pod's containers cannot be resized. "
        "The message says why.",
        "None, if slots of equal size will do. Otherwise remove the cause, and replace the pod.",
    ),
    "Bound": EventKind("Normal", "The first time that an image runs in this pilot."),
    "ImageRefused": EventKind(
        "Warning",
        "HTCondor holds a job: its image does not exist, is invalid or does not start, or it is not for this site and "
        "`K8SPILOT_REFUSED_IMAGES` is `hold`. The message is the hold reason.",
        "Look at the image's name, and at the rest of the message.",
    ),
    "JobRefused": EventKind(
        "Warning",
        "HTCondor holds a job: its request cannot be fulfilled, it has used too much disk, cannot be started, or has "
        "killed its container again. The message is the hold reason.",
    ),
    "ImageLeft": EventKind(
        "Warning",
        "The site has no access to a job's image, or does not allow it. The job goes back to the queue, and the slot "
        "avoids that image, repository or registry for ten minutes or more.",
        "If the site should run it, look at DNS, the pull secret, the allowed images and the cluster's policies.",
    ),
    "ImageUnavailable": EventKind(
        "Warning",
        "An image was not available within `K8SPILOT_PATIENCE_SECONDS`: its registry did not provide it, or the node "
        "could not store it. The job goes back to the queue, and the slot avoids that image or registry.",
        "Look at the registry, at the network to it, and at the node's disk.",
    ),
    "NotBound": EventKind(
        "Warning",
        "The API server failed, or another client changed the image. The job goes back to the queue.",
        "An audit log tells who changed the pod; pilot pods keep no `managedFields`.",
    ),
    "JobLost": EventKind("Warning", "A job has ended without a result, and goes back to the queue."),
    "BlackHole": EventKind(
        "Warning",
        "The last jobs of three users failed within 30 s each, one after another. The slot takes no job for ten "
        "minutes, and for twice as long each time that it happens again.",
        "Look at the jobs' errors and at the node: a disk, a network, a GPU, a registry that answers wrongly.",
    ),
    "StillPulling": EventKind(
        "Warning",
        "A bind was given up, and the node goes on pulling its image. The slot takes no job until the pull ends.",
        "Delete the pod if the pull does not end.",
    ),
    "ApiUnreachable": EventKind(
        "Warning", "The API server could not be reached for more than 30 s. It is published afterwards."
    ),
    "Recovered": EventKind(
        "Warning",
        "The engine died and was started again.",
        "Look at the container's log and at its memory limit if this happens often.",
    ),
    "HTCondorHangs": EventKind(
        "Warning",
        "A daemon of HTCondor has not answered for 60 s, and the pilot has ended the jobs of all its slots. After 85 s "
        "it kills the daemon.",
        "A job can cause this: look at whose jobs ran.",
    ),
    "GpuMismatch": EventKind(
        "Warning",
        "The pod's GPUs are not those that it asks for. It is published once in the life of a pod.",
        "Run `k8spilot gpu probe` and look at the device plugin.",
    ),
    "GpusUnmeasured": EventKind(
        "Warning",
        "The use of the GPUs cannot be measured. The message says why.",
        "Do what the message says, or accept jobs without GPU usage.",
    ),
    "MetricsPortTaken": EventKind(
        "Warning",
        "Another process listens on the metrics port. The pilot tries again every 20 s.",
        "Look at whose job ran: only a job can have taken the port.",
    ),
    "Draining": EventKind("Normal", "The pilot begins to end. HTCondor takes no more jobs and vacates one that runs."),
    "Drained": EventKind("Normal", "No job runs any more, and the pilot ends. The message has the reason."),
}
