"""Errors whose text is a sentence for people.

The text says what is wrong, where, and what to do about it. The same text is the job's hold reason, the log line and
the message in `kubectl describe`. After NotNow, its subclasses and PayloadLost, the job goes back to the queue. Other
errors of a bind or a request hold the job (docker/create/handler.py).
"""


class PilotError(Exception):
    """Base class of errors with a sentence for a person."""


class SettingsError(PilotError):
    """Raised when the operator's environment variables are invalid."""


class PreflightError(PilotError):
    """Raised when the pod, its rights or its volumes do not meet a pilot's requirements."""


class BindError(PilotError):
    """Raised when the job's image cannot run in the payload container; HTCondor reports the sentence to the user."""


class ClusterRefused(BindError):
    """Raised when the Kubernetes API rejects the job's image: a policy, or an invalid reference."""


class ImageError(BindError):
    """Raised when the registry does not provide the image, or the reference is invalid."""


class ImageNotAllowed(BindError):
    """Raised when the site's policy does not allow the image."""


class NotNow(BindError):
    """Raised when the image cannot be bound for a reason that is not the job's and may pass soon."""


class ImageNotNow(NotNow):
    """Raised when the reason is the image's registry or the node's access to it."""


class ClusterError(NotNow):
    """Raised when a request to the Kubernetes API fails."""

    retry_after: float | None = None
    """Seconds to wait before the next request, if the server says so."""


class Displaced(NotNow):
    """Raised when another client has changed the payload container's image."""


class RegistryUnreachable(PilotError):
    """Raised when the registry is unreachable; the image may exist."""


class Shortage(PilotError):
    """Raised when the node has run out of a resource that all of its pods share."""


class PayloadLost(PilotError):
    """Raised when the payload container ended under the job, so that the job has no result."""


class Refused(PilotError):
    """Raised when a pod cannot fulfil a request, or the request comes at the wrong time."""


class Untimely(Refused):
    """Raised when a request is for a slot or a name in use."""


def first_cause(group: BaseExceptionGroup[BaseException]) -> BaseException:
    """Return the first error in a group. Tasks that run in parallel fail one at a time here."""
    error: BaseException = group
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error
