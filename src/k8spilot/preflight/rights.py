"""What the pod's token may do: what the pilot needs, and what whoever steals the token would have beyond that."""

import asyncio
from collections.abc import Iterable, Iterator, Mapping
from http import HTTPStatus
from typing import Any, Final

from k8spilot.common.errors import ClusterError
from k8spilot.kube.client import Api, ApiRefusal
from k8spilot.preflight.finding import Finding, fault, good, warning
from k8spilot.settings import Settings

RIGHTS: Final[Mapping[str, tuple[str, ...]]] = {"pods": ("get", "list", "watch", "patch")}
"""What the pilot does: it reads and watches its own pod, and changes an image in it, which it names."""
WISHES: Final[Mapping[str, tuple[str, ...]]] = {"events": ("create", "patch")}
"""What it does where it may: it tells of itself in `kubectl describe pod`."""
OF_COMPONENTS: Final[Mapping[str, tuple[str, ...]]] = {"pods/ephemeralcontainers": ("patch",), "nodes": ("get",)}
"""What optional components give it."""

_OF_EVERYBODY: Final = frozenset({"authentication.k8s.io", "authorization.k8s.io"})
"""Groups in which every account may ask who it is and what it may (system:basic-user)."""
_MOST: Final = 12
"""Rights that are named."""
_EVERYTHING: Final = "do everything to everything"
_TRIED: Final = "k8spilot.invalid~1tried"

Json = dict[str, Any]


async def rights_findings(settings: Settings, api: Api) -> tuple[list[Finding], str]:
    """Ask the API server.

    Returns:
        Findings, and a sentence about what the token may do beyond what it needs; nothing if there is nothing.
    """
    missing = await _missing(settings, api)
    rules, more = await asyncio.gather(_rules(settings, api), _is_free(settings, api))
    if beyond := ", ".join(_shortened(list(excess(rules)))):
        beyond = (
            f"the pod's service account may do more than a pilot needs, and so may whoever steals its token: {beyond}; "
            "bind no roles to it but the project's"
        )
        missing.append(warning("rights", beyond))
    if more is not None:
        kept = (
            "an admission policy keeps it to its own pod"
            if not more
            else ("no admission policy keeps it from changing other pods of the namespace (components/own-pod does)")
        )
        missing.append(good("authority", kept))
    return missing or [good("rights", "the service account has those of the project's role")], beyond


async def _missing(settings: Settings, api: Api) -> list[Finding]:
    wanted = [(resource, verb) for kinds in (RIGHTS, WISHES) for resource, verbs in kinds.items() for verb in verbs]
    allowed = await asyncio.gather(*(_may(settings, api, resource, verb) for resource, verb in wanted))
    denied = {one for one, may in zip(wanted, allowed, strict=True) if not may}
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
                "`kubectl describe pod` tells less; apply the project's manifests there",
            )
        )
    return findings


async def _may(settings: Settings, api: Api, resource: str, verb: str) -> bool:
    review = {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SelfSubjectAccessReview",
        "spec": {
            "resourceAttributes": {
                "namespace": settings.pod_namespace,
                "verb": verb,
                "resource": resource,
                "version": "v1",
            }
        },
    }
    answer = await api.read("create", "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews", body=review)
    return bool(answer.get("status", {}).get("allowed"))


async def _rules(settings: Settings, api: Api) -> list[Json]:
    """All that the token may do in the namespace, as far as the authorizers tell."""
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
    """Whether the token may change what no pilot changes, tried for show; None where that does not tell."""
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
    """List what rules (authorization/v1 ResourceRule) allow beyond what a pilot uses: `get, list secrets`."""
    used = {**RIGHTS, **WISHES, **OF_COMPONENTS}
    found: dict[str, set[str]] = {}
    for rule in rules:
        groups = set(rule.get("apiGroups") or ())
        if groups and groups <= _OF_EVERYBODY:
            continue
        for resource in rule.get("resources") or ():
            known = set(used.get(resource, ())) if groups == {""} else set()
            names = rule.get("resourceNames") or ()
            of = "".join(f".{group}" for group in sorted(groups - {""}))
            what = f"{resource}{of}{f' named {chr(44).join(names)}' if names else ''}"
            found.setdefault(what, set()).update(set(rule.get("verbs") or ()) - known)
    for what, verbs in sorted(found.items()):
        if verbs:
            yield f"{'do everything to' if '*' in verbs else '/'.join(sorted(verbs))} {what}".replace(
                "to *.*", "to everything"
            )


def _shortened(rights: list[str]) -> list[str]:
    if _EVERYTHING in rights:
        return [_EVERYTHING]
    return rights if len(rights) <= _MOST else [*rights[:_MOST], f"and {len(rights) - _MOST} more"]
