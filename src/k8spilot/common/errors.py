"""What can go wrong, told to people.

The text of every error here is one sentence that says what is wrong, where, and what to do about it.
The same text is the job's hold reason, the log line and what `kubectl describe` shows.
"""


class PilotError(Exception):
    """Something that a person has to know; its text is a sentence for that person."""


class SettingsError(PilotError):
    """The operator's environment variables do not make sense."""


class PreflightError(PilotError):
    """The pod, its rights or its volumes are not what a pilot needs."""


class BindError(PilotError):
    """The job's image could not be made to run in the payload container; the job is to be told."""


class ClusterRefused(BindError):
    """The Kubernetes API does not let the payload container have the job's image: a policy, an invalid reference."""


class ImageError(BindError):
    """The registry says that the image is not to be had, or the reference to it is invalid."""


class ImageNotAllowed(BindError):
    """The operator does not let jobs have the image."""


class NotNow(BindError):
    """The image could not be bound for a reason that has nothing to do with the job, and may be over soon."""


class ImageNotNow(NotNow):
    """As that, and it lies with the image's registry or with how the node comes to it."""


class ClusterError(NotNow):
    """The Kubernetes API did not do what it was asked."""

    retry_after: float | None = None
    """Seconds that the server wants to be left alone, if it says so."""


class Displaced(NotNow):
    """Somebody else has changed the payload container's image since we did."""


class RegistryUnreachable(PilotError):
    """The registry could not be asked; this says nothing about the image."""


class Shortage(PilotError):
    """The node has none left, for the moment, of something that all of its pods share."""


class PayloadLost(PilotError):
    """The payload container ended under the job, so that the job has no result."""


class Refused(PilotError):
    """A request that a pod cannot fulfil, or that has come at the wrong time."""


class Untimely(Refused):
    """A request for a slot or a name that another has."""


def first_cause(group: BaseExceptionGroup[BaseException]) -> BaseException:
    """The error in a group: tasks that run side by side fail one at a time here."""
    error: BaseException = group
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error
