"""Checks of settings that are valid but wrong."""

from collections.abc import Iterator, Mapping
from typing import Final

from k8spilot.common.errors import BindError, PilotError
from k8spilot.condor.configuration import values
from k8spilot.condor.folders import Folders
from k8spilot.model.image_policy import ImagePolicy
from k8spilot.model.reference import Reference
from k8spilot.preflight.finding import Finding, fault, judged, warning
from k8spilot.preflight.slot_size import placeholder_faults
from k8spilot.settings import Settings
from k8spilot.settings.parsers import IMAGE
from k8spilot.settings.unknown_variables import ineffective

IGNORED: Final = "variables"
"""Subject of findings about variables that have no effect."""


def unknown_findings(environment: Mapping[str, str]) -> Iterator[Finding]:
    """Yield a finding for each variable that looks like a setting and has no effect."""
    for one in ineffective(environment):
        yield (fault if one.refused else warning)(IGNORED, one.words)


def settings_findings(settings: Settings) -> list[Finding]:
    """Check that the operator has replaced the example's values, and that HTCondor's configuration can be rendered."""
    return judged("settings", _faults(settings), "all values are valid")


def _faults(settings: Settings) -> Iterator[str]:
    yield from placeholder_faults(settings)
    if "condor" in settings.services:
        try:
            values.render(settings, Folders.of(settings), started=0)  # it parses the operator's expressions
        except PilotError as error:
            yield str(error)


def policy_findings(settings: Settings) -> list[Finding]:
    """Check whether the site's policy allows the operator's own images."""
    policy = ImagePolicy(settings.allowed_images, settings.require_digest)
    allowed = f"those of {', '.join(policy.allowed)}" if policy.allowed else "any image"
    how = ", named by a digest" if policy.needs_digest else ""
    return judged("images", _against(policy, settings), f"jobs may use {allowed}{how}")


def _against(policy: ImagePolicy, settings: Settings) -> Iterator[str]:
    """Yield the operator's images that the policy refuses, as far as they are known before a job's request."""
    named = [("K8SPILOT_DEFAULT_IMAGE", settings.default_image or "")]
    named += [("K8SPILOT_IMAGE_MAP", rule.replacement) for rule in settings.image_map]
    for name, image in named:
        reference = image.removeprefix("docker://")
        beginning, group, _ = reference.partition("\\")
        if group:
            if policy.allowed and not any(_meet(beginning, place) for place in policy.allowed):
                yield f"{name} has {image}, which K8SPILOT_ALLOWED_IMAGES does not allow; no job with it would run here"
        elif IMAGE.fullmatch(reference):
            try:
                policy.admit(Reference.parse(reference))
            except BindError as error:
                yield f"{name}: {error}; no job with it would run here"


def _meet(beginning: str, place: str) -> bool:
    """Return whether an image that begins so can lie in `place`."""
    return beginning.startswith(f"{place}/") or f"{place}/".startswith(beginning)
