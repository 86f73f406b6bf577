"""ClassAd expressions that choose a job's image, over the job (TARGET) and the slot (MY).

Jobs name images in four ways: docker_image, container_image, +SingularityImage, or not at all. HTCondor's starter runs
the first with docker. It runs the second with docker if it begins with `docker:`. All other jobs must become docker
jobs, because no job runs in the pilot container. DEFAULT_CONTAINER_IMAGE names their image, according to the operator's
rules.
"""

import re
from collections.abc import Iterator
from typing import Final

from k8spilot.condor.configuration.classads import check, quoted
from k8spilot.condor.configuration.pools import Pool
from k8spilot.model.reference import FILE_IMAGE
from k8spilot.settings import Settings
from k8spilot.settings.parsers import IMAGE, ImageRule

DOCKER_JOB: Final = "TARGET.WantDocker =?= true || (TARGET.WantContainer =?= true && TARGET.WantDockerImage =?= true)"
"""Expression for a job that HTCondor runs with docker without further configuration."""

NOT_AVOIDED: Final = " || ".join(
    (
        "MY.K8SAvoidedImages is undefined || time() >= (MY.K8SAvoidUntil ?: 0)",
        "("
        + " && ".join(
            f"stringListMember(MY.{name}, MY.K8SAvoidedImages) isnt true"
            for name in ("K8SJobRegistry", "K8SJobRepository", "K8SJobImageName")
        )
        + ")",
    )
)
"""Expression for a job whose image the slot does not avoid (model/avoided_images.py)."""

_ANY: Final = "^(docker:(//)?)?(.*)$"
_NAMES: Final = ("DockerImage", "ContainerImageFullPath", "ContainerImage", "SingularityImage")
# The first part of a name is a registry if it has a character that no other part can have (reference/normalize.go in
# distribution/reference).
_REGISTRY: Final = "^([^/]*[.:A-Z][^/]*|localhost)/.*$"
_INDEX: Final = r"^index\.docker\.io/"
"""Another name of the default registry."""
_CLOSED: Final = (
    r"^(localhost|localhost\.localdomain|ip6-loopback|ip6-localhost|.*\.localhost|metadata\.google\.internal"
    r"|kubernetes\.default(\..*)?|(127|0)(\.[0-9]+){3}|169\.254(\.[0-9]+){2}|\[::1?\])(:[0-9]+)?$"
)
"""Usual spellings of hosts that are no registries (model/blocked_hosts.py knows the others)."""
# The last group always matches. An earlier group without a match is then empty instead of an error.
_PARTS: Final = "^([^@]*?)(:[^/@:]*)?(@.*)?$()"


def attributes(settings: Settings, pool: Pool) -> Iterator[tuple[str, str]]:
    """Yield attributes of the slot: the job's image, its registry, and attributes that jobs with images require.

    Raises:
        SettingsError: an expression or a rule of the operator is invalid.
    """
    yield "K8SNamedImage", " ?: ".join((*(f"TARGET.{name}" for name in _NAMES), '""'))
    yield "K8SJobImage", _plain(f"regexps({quoted(_ANY)}, {_job_image(settings, pool)}, {quoted(r'\3')})")
    yield from _names()
    yield "K8SJobImageRank", _rank()
    files = holds_files(settings, pool) or bool(settings.image_map)
    facts = {
        # HTCondor's own, for jobs with container_image. The starter detects the first two, with HasDocker.
        "HasSIF": files,
        "HasSandboxImage": files,
        # OSPool's. The job gets a container with that image, from a registry.
        "HasSingularity": True,
        "HAS_SINGULARITY": True,
        "SINGULARITY_CAN_USE_REGISTRY": True,
        "SINGULARITY_CAN_USE_SIF": files,
    }
    yield from ((name, str(value)) for name, value in facts.items())


def _names() -> Iterator[tuple[str, str]]:
    """Yield the registry, the repository and the full name of the job's image, as `docker pull` expands it.

    They are those of model/reference.py for every valid reference.
    """
    registry, parts, image = _plain(quoted(_REGISTRY)), _plain(quoted(_PARTS)), "MY.K8SJobImage"
    implied = f'ifThenElse(regexp("/", {image}), "docker.io/", "docker.io/library/")'
    full = f'strcat(ifThenElse(regexp({registry}, {image}), "", {implied}), {image})'
    whole = f"replace({quoted(_INDEX)}, {full}, {quoted('docker.io/')})"
    repository = f"regexps({parts}, {whole}, {quoted(r'\1')})"
    # A digest makes the tag irrelevant.
    last = f"regexps({parts}, {whole}, {quoted(r'\3')})"
    tag = f"regexps({parts}, {whole}, {quoted(r'\2')})"
    yield "K8SJobRepository", repository
    yield "K8SJobRegistry", f"regexps({quoted('^([^/]*)/')}, MY.K8SJobRepository, {quoted(r'\1')})"
    named = f'ifThenElse({last} != "", {last}, ifThenElse({tag} != "", {tag}, ":latest"))'
    yield "K8SJobImageName", f"strcat(MY.K8SJobRepository, {named})"


def _rank() -> str:
    """Return the rank of the job's image on this node."""
    # The node knows an image that was pulled by digest by that digest only. An image of the same repository may be the
    # same image.
    some = 'stringList_regexpMember(strcat("^", MY.K8SJobRepository, "[:@]"), MY.K8SNodeImages)'
    expression = (
        f"ifThenElse(stringListMember(MY.K8SJobImageName, MY.K8SNodeImages), 1.0, ifThenElse({some}, 0.5, 0.0))"
    )
    known = "isString(MY.K8SJobRepository) && isString(MY.K8SNodeImages)"
    return f"ifThenElse({known}, {expression}, 0.0)"


def policy(settings: Settings, pool: Pool) -> Iterator[str]:
    """Yield the site's rules for images as conditions over a job: where they are not met, the job is for another site.

    model/image_policy.py has the same rules, and decides: an expression here sees the name of the image only, and does
    not know every spelling of an address. Nothing is yielded if the site wants such jobs held.
    """
    if settings.refused_images == "hold":
        return
    is_file = [f"MY.K8SJobImage =?= {quoted(FILE_IMAGE)}"] if holds_files(settings, pool) else []
    if settings.allowed_images:
        places = "|".join(map(re.escape, settings.allowed_images))
        rule = f"regexp({_plain(quoted(f'^({places})(/|$)'))}, MY.K8SJobRepository)"
    else:
        rule = f"!regexp({_plain(quoted(_CLOSED))}, MY.K8SJobRegistry)"
    yield " || ".join((*is_file, rule))
    if settings.require_digest:
        yield " || ".join((*is_file, f"regexp({quoted('@sha256:')}, MY.K8SJobImage)"))


def holds_files(settings: Settings, pool: Pool) -> bool:
    """Return whether the slot takes, and then holds, jobs whose image is a file that no rule maps.

    The hold reason tells the user what to change. A pool of many sites leaves such jobs to the other sites by default.
    """
    return settings.unmapped_images == "hold" if settings.unmapped_images else not pool.is_osg


def configuration() -> str:
    """Return configuration lines that run every job in a container."""
    # If the value is not a string, START accepts no job. HTCondor would otherwise run the job without a container.
    image = f'ifThenElse(isString(MY.K8SJobImage) && MY.K8SJobImage != "", MY.K8SJobImage, {quoted(FILE_IMAGE)})'
    return "\n".join(
        (
            "USE_DEFAULT_CONTAINER = True",
            f'DEFAULT_CONTAINER_IMAGE = strcat("docker://", {image})',
            # HTCondor would give a job whose container_image is a file to apptainer. As a plain job it gets the image
            # above. A docker job is marked as a docker job, however it was submitted: only then does an interactive job
            # end with its session. The starter adds the output of this hook to its copy of the job's ad and evaluates
            # it there. The starter writes the ad to sed's input, and sed matches nothing in it. The hook is forced, so
            # that no job can name another hook.
            "STARTER_JOB_HOOK_KEYWORD = K8SPILOT",
            "K8SPILOT_HOOK_PREPARE_JOB = /usr/bin/sed",
            (
                "K8SPILOT_HOOK_PREPARE_JOB_ARGS = -n -e '1iWantContainer = WantDockerImage =?= true' "
                "-e '1iWantDocker = WantDockerImage =?= true || DockerImage isnt undefined'"
            ),
        )
    )


def _job_image(settings: Settings, pool: Pool) -> str:
    """Return the expression for the job's image.

    It is the image that the job names, the result of a rule, the marker that the engine refuses, or the operator's
    default.
    """
    named = "MY.K8SNamedImage"
    expression = quoted(FILE_IMAGE) if holds_files(settings, pool) else "undefined"
    for rule in reversed(settings.image_map):
        pattern, replacement = _rule(rule)
        expression = f"ifThenElse(regexp({pattern}, {named}), regexps({pattern}, {named}, {replacement}), {expression})"
    is_docker = f"{DOCKER_JOB} || regexp({quoted('^docker:')}, {named})"
    return f'ifThenElse({named} == "", {_default(settings)}, ifThenElse({is_docker}, {named}, {expression}))'


def _plain(text: str) -> str:
    """Return `text` with dollars escaped for the configuration, in which a dollar may begin a macro."""
    return text.replace("$", "$(DOLLAR)")


def _rule(rule: ImageRule) -> tuple[str, str]:
    """Return a rule's pattern and replacement as ClassAd strings."""
    pattern, replacement = quoted(f"(?:{rule.pattern})()"), quoted(rule.replacement)
    check(f'regexp({pattern}, "")', f"K8SPILOT_IMAGE_MAP has an invalid regular expression: {rule.pattern!r}")
    # The trial matches none of the groups, so that only a reference to a missing group is an error.
    pretended = quoted(f"(?!)(?:{rule.pattern})|()")
    check(
        f'regexps({pretended}, "", {replacement})',
        f"K8SPILOT_IMAGE_MAP has the replacement {rule.replacement!r}, whose group is not in {rule.pattern!r}",
    )
    return pattern, replacement


def _default(settings: Settings) -> str:
    """Return the image of jobs that name none: a reference, or the operator's own expression."""
    text = settings.default_image
    if text is None:
        return "undefined"
    if IMAGE.fullmatch(text):
        return quoted(text)
    check(text, f"K8SPILOT_DEFAULT_IMAGE is {text!r}, but it must be an image or a ClassAd expression", parse=True)
    return f"({text})"
