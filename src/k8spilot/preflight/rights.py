"""Checks of the rights of the pod's token: rights that the pilot needs, and excess rights.

A thief of the token would have the excess rights.
"""

import asyncio
from collections.abc import Iterable, Iterator, Mapping
from http import HTTPStatus
from typing import Any, Final

from k8spilot.common.errors import ClusterError
from k8spilot.kube.client import Api, ApiRefusal
from k8spilot.preflight.finding import Finding, fault, good, warning
from k8spilot.settings import Settings

RIGHTS: Final[Mapping[str, tuple[str, ...]]] = {"pods": ("get", "list", "watch", "patch")}
"""Required rights: the pilot reads and watches its own pod, and changes an image in it, by name."""
WISHES: Final[Mapping[str, tuple[str, ...]]] = {"events": ("create", "patch")}
"""Optional rights: the pilot creates Events for `kubectl describe pod`."""
OF_COMPONENTS: Final[Mapping[str, tuple[str, ...]]] = {
    "pods/ephemeralcontainers": ("patch",),
    "pods/resize": ("patch",),
    "nodes": ("get",),
    "resourceclaims.resource.k8s.io": ("get",),
}
"""Rights that optional components and `k8spilot slots` grant."""

RELIST: Final[Mapping[str, tuple[str, ...]]] = {"pods/resize": ("patch",)}
"""Rights that the setting relist needs."""
CLAIMS: Final[Mapping[str, tuple[str, ...]]] = {"resourceclaims.resource.k8s.io": ("get",)}
"""Rights that a pilot with claims needs to compare their devices with what the payload container sees."""
_OF_EVERYBODY: Final = frozenset({"authentication.k8s.io", "authorization.k8s.io"})
"""API groups in which every account may ask who it is and what it may (system:basic-user)."""
_MOST_LISTED: Final = 12
"""Number of excess rights that the message lists."""
_EVERYTHING: Final = "do everything to everything"
_TRIED: Final = "k8spilot.invalid~1tried"

Json = dict[str, Any]


def wishes(settings: Settings, pod: Json) -> dict[str, tuple[str, ...]]:
    """Return the optional rights that a pilot with these settings uses in such a pod."""
    has_claims = bool(pod.get("spec", {}).get("resourceClaims"))
    return {**WISHES, **(RELIST if settings.relist else {}), **(CLAIMS if has_claims else {})}


async def rights_findings(settings: Settings, api: Api) -> tuple[list[Finding], str]:
    """Check the rights with the API server.

    Returns:
        Findings, and a sentence about excess rights; empty if there are none.
    """
    missing = await _missing(settings, api)
    rules, more = await asyncio.gather(_rules(settings, api), _is_free(settings, api))
    if beyond := ", ".join(_shortened(list(excess(rules)))):
        beyond = (
            f"the pod's service account may do more than a pilot needs, and a thief of its token could: {beyond}; "
            "bind only the project's roles to it"
        )
        missing.append(warning("rights", beyond))
    if more is not None:
        authority = (
            "an admission policy restricts it to its own pod"
            if not more
            else "no admission policy prevents changes of other pods in the namespace (components/own-pod does)"
        )
        missing.append(good("authority", authority))
    return missing or [good("rights", "the service account has the rights of the project's role")], beyond


async def _missing(settings: Settings, api: Api) -> list[Finding]:
    all_kinds = (RIGHTS, WISHES, RELIST if settings.relist else {})
    wanted = [(resource, verb) for kinds in all_kinds for resource, verbs in kinds.items() for verb in verbs]
    allowed = await asyncio.gather(*(_may(settings, api, resource, verb) for resource, verb in wanted))
    denied = {item for item, may in zip(wanted, allowed, strict=True) if not may}
    findings = []
    if verbs := [verb for resource, verb in wanted if (resource, verb) in denied and resource in RIGHTS]:
        findings.append(
            fault(
                "rights",
                f"the pod's service account may not {', '.join(verbs)} pods in the namespace {settings.pod_namespace}; "
                "apply the project's manifests there (kubectl apply -k) and set serviceAccountName in the pod",
            )
        )
    if ("events", "create") in denied:
        findings.append(
            warning(
                "rights",
                f"the pod's service account may not create events in the namespace {settings.pod_namespace}, so that "
                "`kubectl describe pod` shows no Events of the pilot; apply the project's manifests there",
            )
        )
    if any(resource in RELIST for resource, _ in denied):
        findings.append(
            warning(
                "rights",
                f"the pod's service account may not patch pods/resize in the namespace {settings.pod_namespace}, so "
                "that K8SPILOT_RELIST has no effect; apply the component relist there, or remove the setting",
            )
        )
    return findings


async def _may(settings: Settings, api: Api, resource: str, verb: str) -> bool:
    resource, _, part = resource.partition("/")
    review = {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SelfSubjectAccessReview",
        "spec": {
            "resourceAttributes": {
                "namespace": settings.pod_namespace,
                "verb": verb,
                "resource": resource,
                "subresource": part,
                "version": "v1",
            }
        },
    }
    answer = await api.read("create", "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews", body=review)
    return bool(answer.get("status", {}).get("allowed"))


async def _rules(settings: Settings, api: Api) -> list[Json]:
    """Return the token's rules in the namespace, as far as the authorizers report them."""
    review = {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SelfSubjectRulesReview",
        "spec": {"namespace": settings.pod_namespace},
    }
    try:
        answer = await api.read("create", "/apis/authorization.k8s.io/v1/selfsubjectrulesreviews", body=review)
    except ApiRefusal:
        return []
    return list(answer.get("status", {}).get("resourceRules") or ())


async def _is_free(settings: Settings, api: Api) -> bool | None:
    """Return whether the token may change a label, which no pilot changes, in a dry run; None if that shows nothing."""
    path = f"/api/v1/namespaces/{settings.pod_namespace}/pods/{settings.pod_name}"
    label = {"op": "add", "path": f"/metadata/labels/{_TRIED}", "value": ""}
    try:
        await api.read("patch", path, query={"dryRun": "All"}, body=[label])
    except ApiRefusal as error:
        is_policy = error.status in (HTTPStatus.FORBIDDEN, HTTPStatus.UNPROCESSABLE_ENTITY)
        return False if is_policy and "admission" in str(error).lower() else None
    except ClusterError:
        return None
    return True


def excess(rules: Iterable[Json]) -> Iterator[str]:
    """Yield the excess rights in rules (authorization/v1 ResourceRule): `get, list secrets`."""
    used = {**RIGHTS, **WISHES, **OF_COMPONENTS}
    verbs_of: dict[str, set[str]] = {}
    for rule in rules:
        groups = set(rule.get("apiGroups") or ())
        if groups and groups <= _OF_EVERYBODY:
            continue
        for resource in rule.get("resources") or ():
            names = rule.get("resourceNames") or ()
            suffix = "".join(f".{group}" for group in sorted(groups - {""}))
            used_verbs = set(used.get(f"{resource}{suffix}", ())) if len(groups) == 1 else set()
            subject = f"{resource}{suffix}{f' named {chr(44).join(names)}' if names else ''}"
            verbs_of.setdefault(subject, set()).update(set(rule.get("verbs") or ()) - used_verbs)
    for subject, verbs in sorted(verbs_of.items()):
        if verbs:
            yield f"{'do everything to' if '*' in verbs else '/'.join(sorted(verbs))} {subject}".replace(
                "to *.*", "to everything"
            )


def _shortened(rights: list[str]) -> list[str]:
    if _EVERYTHING in rights:
        return [_EVERYTHING]
    return rights if len(rights) <= _MOST_LISTED else [*rights[:_MOST_LISTED], f"and {len(rights) - _MOST_LISTED} more"]
