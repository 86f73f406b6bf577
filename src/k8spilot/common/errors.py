"""Errors whose text is a sentence for people.

The text says what is wrong, where, and what to do about it. The same text is the job's hold reason, the log line and
the message in `kubectl describe`. After NotNow, its subclasses and PayloadLost, the job goes back to the queue. After
NotHere it does so too, unless the operator wants such jobs held. Other errors of a bind or a request hold the job
(docker/creation.py).
"""

from typing import Literal

Scope = Literal["registry", "repository", "image"]
"""Part of an image's name that an error is about."""


class PilotError(Exception):
    """Base class of errors with a sentence for a person."""


class SettingsError(PilotError):
    """Raised when the operator's environment variables are invalid."""


class PreflightError(PilotError):
    """Raised when the pod, its rights or its volumes do not meet a pilot's requirements."""


class BindError(PilotError):
    """Raised when the job's image cannot run in the payload container; HTCondor reports the sentence to the user."""


class _Scoped(BindError):
    """Base class of errors after which the slot takes no jobs with such images for a time."""

    scope: Scope
    """Part of the image's name that the reason is about."""

    def __init__(self, words: str, scope: Scope = "image") -> None:
        super().__init__(words)
        self.scope = scope


class NotHere(_Scoped):
    """Raised when the image cannot run at this site for a reason that another site may not have."""


class ClusterRefused(NotHere):
    """Raised when the Kubernetes API rejects the job's image: a policy, or an invalid reference."""


class ImageError(BindError):
    """Raised when no site can run the image: the registry says that it does not exist, or it is invalid."""


class ImageNotAllowed(NotHere):
    """Raised when the site's policy does not allow the image."""


class ImageNotHere(NotHere):
    """Raised when this site has no access to the image: no name, no credentials, a certificate that is not trusted."""


class NotNow(BindError):
    """Raised when the image cannot be bound for a reason that is not the job's and may pass soon."""


class ImageNotNow(_Scoped, NotNow):
    """Raised when the reason is the image, its registry, or the node's access to it."""


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


class PayloadKilled(PayloadLost):
    """Raised when an unknown sender's signal ended the payload container's first process under the job."""

    number: int
    """The signal."""

    def __init__(self, words: str, number: int) -> None:
        super().__init__(words)
        self.number = number


class JobKillsContainer(PilotError):
    """Raised when a job has ended its payload container's first process again; HTCondor holds the job."""


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
