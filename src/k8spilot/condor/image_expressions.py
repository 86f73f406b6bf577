"""Which image a job gets, as ClassAd expressions over the job (TARGET) and the slot (MY).

Jobs name images in four ways: docker_image, container_image, +SingularityImage, or not at all. HTCondor's starter runs
the first with docker, and the second if it begins with `docker:`. Everything else has to come out as a docker image,
too, since nothing runs in the pilot container: DEFAULT_CONTAINER_IMAGE says which, from the operator's rules.
"""

from collections.abc import Iterator
from typing import Final

from k8spilot.condor.classads import check, quoted
from k8spilot.condor.pools import Pool
from k8spilot.model.reference import FILE_IMAGE
from k8spilot.settings import Settings
from k8spilot.settings.parsers import IMAGE, ImageRule

DOCKER_JOB: Final = "TARGET.WantDocker =?= true || (TARGET.WantContainer =?= true && TARGET.WantDockerImage =?= true)"
"""A job that HTCondor runs with docker by itself."""

_ANY: Final = "^(docker:(//)?)?(.*)$"
_NAMES: Final = ("DockerImage", "ContainerImageFullPath", "ContainerImage", "SingularityImage")
# A registry is told from a first part of a name by what no such part can have (reference/normalize.go in
# distribution/reference).
_REGISTRY: Final = "^([^/]*[.:A-Z][^/]*|localhost)/.*$"
# With a last group that is always there, a group before it that took no part is empty, and no error.
_PARTS: Final = "^([^@]*?)(:[^/@:]*)?(@.*)?$()"


def attributes(settings: Settings, pool: Pool) -> Iterator[tuple[str, str]]:
    """Attributes of the slot: the job's image, its registry, and what jobs with images look for.

    Raises:
        SettingsError: an expression or a rule of the operator cannot be used.
    """
    first, third = r"\1", r"\3"
    yield "K8SNamedImage", " ?: ".join((*(f"TARGET.{name}" for name in _NAMES), '""'))
    yield "K8SJobImage", _plain(f"regexps({quoted(_ANY)}, {_job_image(settings, pool)}, {quoted(third)})")
    registry, image = _plain(quoted(_REGISTRY)), 'MY.K8SJobImage ?: ""'
    found = f"regexps({registry}, {image}, {quoted(first)})"
    yield "K8SJobRegistry", f'ifThenElse(regexp({registry}, {image}), {found}, "docker.io")'
    yield from _rank()
    files = holds_files(settings, pool) or bool(settings.image_map)
    facts = {
        # HTCondor's own, for jobs with container_image; the starter finds the first two by itself, with HasDocker.
        "HasSIF": files,
        "HasSandboxImage": files,
        # OSPool's. What the job gets is a container with that image, from a registry.
        "HasSingularity": True,
        "HAS_SINGULARITY": True,
        "SINGULARITY_CAN_USE_REGISTRY": True,
        "SINGULARITY_CAN_USE_SIF": files,
    }
    yield from ((name, str(value)) for name, value in facts.items())


def _rank() -> Iterator[tuple[str, str]]:
    """The job's image by its whole name, as `docker pull` understands it, and how much of it is on the node."""
    registry, parts, image = _plain(quoted(_REGISTRY)), _plain(quoted(_PARTS)), "MY.K8SJobImage"
    implied = f'ifThenElse(regexp("/", {image}), "docker.io/", "docker.io/library/")'
    whole = f'strcat(ifThenElse(regexp({registry}, {image}), "", {implied}), {image})'
    repository = f"regexps({parts}, {whole}, {quoted(chr(92) + '1')})"
    # A digest makes the tag mean nothing.
    last = f"regexps({parts}, {whole}, {quoted(chr(92) + '3')})"
    tag = f"regexps({parts}, {whole}, {quoted(chr(92) + '2')})"
    yield "K8SJobRepository", repository
    named = f'ifThenElse({last} != "", {last}, ifThenElse({tag} != "", {tag}, ":latest"))'
    yield "K8SJobImageName", f"strcat(MY.K8SJobRepository, {named})"
    # An image that was pulled by its digest is known by that alone: one of that repository may be the one.
    some = 'stringList_regexpMember(strcat("^", MY.K8SJobRepository, "[:@]"), MY.K8SNodeImages)'
    found = f"ifThenElse(stringListMember(MY.K8SJobImageName, MY.K8SNodeImages), 1.0, ifThenElse({some}, 0.5, 0.0))"
    known = "isString(MY.K8SJobRepository) && isString(MY.K8SNodeImages)"
    yield "K8SJobImageRank", f"ifThenElse({known}, {found}, 0.0)"


def holds_files(settings: Settings, pool: Pool) -> bool:
    """Whether jobs whose image is a file that no rule maps are taken, and held, so that their users learn of it.

    In a pool of many sites they are left to the others unless the operator wants it otherwise.
    """
    return settings.unmapped_images == "hold" if settings.unmapped_images else not pool.is_osg


def configuration() -> str:
    """Lines of configuration that bring every job into a container."""
    # Not a string is what no job could be taken with; HTCondor would do without a container then.
    image = f'ifThenElse(isString(MY.K8SJobImage) && MY.K8SJobImage != "", MY.K8SJobImage, {quoted(FILE_IMAGE)})'
    return "\n".join(
        (
            "USE_DEFAULT_CONTAINER = True",
            f'DEFAULT_CONTAINER_IMAGE = strcat("docker://", {image})',
            # A job with a container_image that is a file would be given to apptainer. As a plain job it gets the image
            # that stands above. And a docker job is called one however it was submitted, since an interactive job
            # ends with its session only then. The starter adds what this prints to its copy of the job's ad, and
            # evaluates it there; sed reads the ad that the starter writes to it, and looks at nothing in it.
            # Forced, so that no job can name another hook.
            "STARTER_JOB_HOOK_KEYWORD = K8SPILOT",
            "K8SPILOT_HOOK_PREPARE_JOB = /usr/bin/sed",
            (
                "K8SPILOT_HOOK_PREPARE_JOB_ARGS = -n -e '1iWantContainer = WantDockerImage =?= true' "
                "-e '1iWantDocker = WantDockerImage =?= true || DockerImage isnt undefined'"
            ),
        )
    )


def _job_image(settings: Settings, pool: Pool) -> str:
    """The image: as the job names it, as a rule maps it, the marker that is refused, or the operator's default."""
    named = "MY.K8SNamedImage"
    found = quoted(FILE_IMAGE) if holds_files(settings, pool) else "undefined"
    for rule in reversed(settings.image_map):
        pattern, replacement = _rule(rule)
        found = f"ifThenElse(regexp({pattern}, {named}), regexps({pattern}, {named}, {replacement}), {found})"
    is_docker = f"{DOCKER_JOB} || regexp({quoted('^docker:')}, {named})"
    return f'ifThenElse({named} == "", {_default(settings)}, ifThenElse({is_docker}, {named}, {found}))'


def _plain(text: str) -> str:
    """`text` for the configuration, in which a dollar may begin a macro."""
    return text.replace("$", "$(DOLLAR)")


def _rule(rule: ImageRule) -> tuple[str, str]:
    """The pattern and the replacement, as ClassAd strings."""
    pattern, replacement = quoted(f"(?:{rule.pattern})()"), quoted(rule.replacement)
    check(f'regexp({pattern}, "")', f"K8SPILOT_IMAGE_MAP has the regular expression {rule.pattern!r}, which is none")
    # Tried without a match of any of its groups, so that only one that it does not have is an error.
    pretended = quoted(f"(?!)(?:{rule.pattern})|()")
    check(
        f'regexps({pretended}, "", {replacement})',
        f"K8SPILOT_IMAGE_MAP has the replacement {rule.replacement!r}, with a group that is not in {rule.pattern!r}",
    )
    return pattern, replacement


def _default(settings: Settings) -> str:
    """The image of jobs that name none: a reference, or the operator's own expression."""
    text = settings.default_image
    if text is None:
        return "undefined"
    if IMAGE.fullmatch(text):
        return quoted(text)
    check(text, f"K8SPILOT_DEFAULT_IMAGE is {text!r}, which is neither an image nor a ClassAd expression", parse=True)
    return f"({text})"
