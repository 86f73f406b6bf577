"""The kubectl commands that tests give most often, executed in this process by `kube_api`. The program does all others.

A command that is executed here has the arguments, the output and the errors of kubectl. A command with an argument or a
form that is unknown here is left to the program.
"""

import json
import re
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final

from lab.errors import LabError
from lab.kube_api import ApiRefusal, Json, KubeApi, connect
from lab.patience import scaled
from lab.shell import run

Command = Callable[[KubeApi, float], str]
"""Function that executes a command within some seconds and returns the standard output that kubectl would write."""
Options = Mapping[str, str]
Query = list[tuple[str, str | int]]

_CORE: Final = "/api/v1"
_KINDS: Final = {
    "node": (_CORE, "nodes"),
    "namespace": (_CORE, "namespaces"),
    "pod": (_CORE, "pods"),
    "event": (_CORE, "events"),
    "secret": (_CORE, "secrets"),
    "service": (_CORE, "services"),
    "configmap": (_CORE, "configmaps"),
    "job": ("/apis/batch/v1", "jobs"),
}
_OF_THE_CLUSTER: Final = frozenset({"node", "namespace"})
_SHORT: Final = {"-n": "--namespace", "-c": "--container", "-o": "--output", "-l": "--selector", "-i": "--stdin"}
_SWITCHES: Final = frozenset(
    {"--ignore-not-found", "--show-managed-fields", "--wait", "--force", "--previous", "--stdin"}
)
_MOST_INPUT_CHARACTERS: Final = 64 * 1024
"""Limit of a command's standard input. A larger input could deadlock with a command that waits for its output's
reader."""
_STEP: Final = re.compile(r"\.([A-Za-z][\w-]*)|\[(\d+|\*)\]")
_NOT_FOUND: Final = 404


class _ForTheProgram(Exception):
    """Raised when only the program kubectl can execute the command."""


def perform(
    program: Sequence[str | Path],
    kubeconfig: Path,
    arguments: Sequence[str],
    *,
    what: str,
    stdin: str | None = None,
    timeout: float,
) -> str:
    """Execute a command of kubectl here, or by `program` where only that can; return its standard output.

    `what` completes the sentence "could not ..."; `timeout` is in seconds of a machine of usual speed. Raises LabError.
    """
    if (command := known(arguments, stdin)) is None:
        return run([*program, *arguments], what=what, stdin=stdin, timeout=timeout)
    limit = scaled(timeout)
    try:
        return command(connect(kubeconfig), limit)
    except TimeoutError as problem:
        raise LabError(f"could not {what}: `kubectl` did not end within {limit:g} s") from problem
    except LabError as problem:
        raise LabError(f"could not {what}: {problem}") from problem


def known(arguments: Sequence[str], stdin: str | None = None) -> Command | None:
    """Return the function that executes a kubectl command line; None if only the program can."""
    verb, *rest = arguments
    try:
        if verb == "exec":
            return _exec(rest, stdin)
        return _COMMANDS[verb](rest) if stdin is None and verb in _COMMANDS else None
    except _ForTheProgram:
        return None


def _parse(words: Iterable[str], allowed: str) -> tuple[list[str], dict[str, str]]:
    """Separate words from options, of which `allowed` and --namespace are known; a switch is "true" or "false"."""
    left, names, options = iter(words), [], {}
    for word in left:
        if not word.startswith("-") or word == "-":
            names.append(word)
            continue
        flag, equals, value = word.partition("=")
        flag = _SHORT.get(flag, flag)
        if flag not in (*allowed.split(), "--namespace"):
            raise _ForTheProgram
        options[flag] = value if equals else "true" if flag in _SWITCHES else next(left, "")
    return names, options


def _number(options: Options, flag: str, unit: str = "", default: int = 0) -> int:
    if flag not in options:
        return default
    if not re.fullmatch(rf"-?\d+{unit}", options[flag]):
        raise _ForTheProgram
    return int(options[flag].removesuffix(unit))


@dataclass(frozen=True)
class _Target:
    """Objects of a kind: those of `names`, or the whole list."""

    kind: str
    list_path: str
    names: tuple[str, ...]

    @classmethod
    def of(cls, words: Sequence[str], options: Options) -> "_Target":
        """Read `pod`, `pods`, `pod NAME...` or `pod/NAME`."""
        if not words:
            raise _ForTheProgram
        kind, slash, name = words[0].partition("/")
        names = (name, *words[1:]) if slash else tuple(words[1:])
        singular = kind.removesuffix("s")
        if singular not in _KINDS or any("/" in one for one in names):
            raise _ForTheProgram
        group, plural = _KINDS[singular]
        if singular in _OF_THE_CLUSTER:
            return cls(singular, f"{group}/{plural}", names)
        if "--namespace" not in options:
            raise _ForTheProgram
        return cls(singular, f"{group}/namespaces/{options['--namespace']}/{plural}", names)

    @property
    def word(self) -> str:
        """The kind as kubectl writes it before a name: job.batch."""
        group = self.list_path.split("/")[2] if self.list_path.startswith("/apis/") else ""
        return f"{self.kind}.{group}" if group else self.kind

    def path(self, name: str) -> str:
        """Path of one of its objects."""
        return f"{self.list_path}/{name}"


# --- get ---


def _get(words: Sequence[str]) -> Command:
    flags = "--output --selector --field-selector --ignore-not-found --show-managed-fields"
    names, options = _parse(words, flags)
    target = _Target.of(names, options)
    if len(target.names) > 1:
        raise _ForTheProgram
    return partial(_do_get, target, options, _printer(options.get("--output", ""), target))


def _do_get(target: _Target, options: Options, printer: Callable[[Json], str], api: KubeApi, timeout: float) -> str:
    selectors = {"--selector": "labelSelector", "--field-selector": "fieldSelector"}
    query: Query = [(name, options[flag]) for flag, name in selectors.items() if flag in options]
    try:
        path = target.path(target.names[0]) if target.names else target.list_path
        found = api.get(path, query, timeout=timeout)
    except ApiRefusal as problem:
        if problem.code == _NOT_FOUND and options.get("--ignore-not-found") == "true":
            return ""
        raise
    if not target.names:
        kind = {"apiVersion": found["apiVersion"], "kind": found["kind"].removesuffix("List")}
        items = [{**kind, **item} for item in found["items"]]
        found = {"apiVersion": "v1", "kind": "List", "metadata": {"resourceVersion": ""}, "items": items}
    if options.get("--show-managed-fields") != "true":
        for item in found["items"] if not target.names else (found,):
            item["metadata"].pop("managedFields", None)
    return printer(found)


def _printer(form: str, target: _Target) -> Callable[[Json], str]:
    if form == "json":
        return lambda found: json.dumps(found, indent=4) + "\n"
    if form == "name":
        return lambda found: "".join(
            f"{target.word}/{one['metadata']['name']}\n" for one in ((found,) if target.names else found["items"])
        )
    if match := re.fullmatch(r"jsonpath=\{(.*)\}", form):
        steps = _STEP.findall(match[1])
        if "".join(f".{name}" if name else f"[{index}]" for name, index in steps) == match[1]:
            return lambda found: " ".join(map(_text, _select([found], steps)))
    raise _ForTheProgram


def _select(found: list[Any], steps: Sequence[tuple[str, str]]) -> list[Any]:
    """Return the values that a JSONPath of names, positions and [*] selects; like kubectl, leave out missing ones."""
    for name, index in steps:
        if name:
            found = [one[name] for one in found if isinstance(one, dict) and name in one]
        elif index == "*":
            found = [part for one in found for part in one]
        else:
            if any(int(index) >= len(one) for one in found):
                raise LabError(f"error: error executing jsonpath: array index out of bounds: index {index}")
            found = [one[int(index)] for one in found]
    return found


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, separators=(",", ":"))


# --- delete, wait ---


def _delete(words: Sequence[str]) -> Command:
    names, options = _parse(words, "--ignore-not-found --wait --grace-period --force --cascade")
    target = _Target.of(names, options)
    grace = _number(options, "--grace-period", default=-1)
    force = options.get("--force") == "true"
    cascade = options.get("--cascade", "background")
    if not target.names or cascade not in {"background", "foreground"} or (force and grace > 0):
        raise _ForTheProgram
    request: Json = {"apiVersion": "v1", "kind": "DeleteOptions", "propagationPolicy": cascade.capitalize()}
    if force:
        request["gracePeriodSeconds"] = 0
    elif grace >= 0:
        request["gracePeriodSeconds"] = max(grace, 1)  # kubectl ends nothing at once unless it is forced to
    return partial(_do_delete, target, options, request)


def _do_delete(target: _Target, options: Options, request: Json, api: KubeApi, timeout: float) -> str:
    deadline = time.monotonic() + timeout
    said, ends = [], []
    for name in target.names:
        try:
            answer = api.delete(target.path(name), request, timeout=timeout)
        except ApiRefusal as problem:
            if problem.code == _NOT_FOUND and options.get("--ignore-not-found") == "true":
                continue
            raise
        details = answer.get("details", {}) if answer.get("kind") == "Status" else answer["metadata"]
        ends.append((name, details.get("uid")))
        where = f" from {options['--namespace']} namespace" if "/namespaces/" in target.list_path else ""
        said.append(f'{target.word} "{name}" deleted{where}\n')
    if options.get("--wait", "true") == "true":
        for name, uid in ends:
            _follow(api, target, name, partial(_is_another, uid), deadline)
    return "".join(said)


def _is_another(uid: str, found: Json | None) -> bool:
    return found is None or found["metadata"]["uid"] != uid


def _wait(words: Sequence[str]) -> Command:
    names, options = _parse(words, "--for --timeout")
    target = _Target.of(names, options)
    condition = options.get("--for", "").removeprefix("condition=")
    if len(target.names) != 1 or not condition.isalpha() or condition == options["--for"]:
        raise _ForTheProgram
    return partial(_do_wait, target, condition, scaled(_number(options, "--timeout", "s", default=30)))


def _do_wait(target: _Target, condition: str, patience: float, api: KubeApi, timeout: float) -> str:
    def is_met(found: Json | None) -> bool:
        if found is None:
            raise LabError(f"Error from server (NotFound): {target.kind}s {json.dumps(name)} not found")
        conditions = found.get("status", {}).get("conditions", ())
        return any(one["type"] == condition and one["status"] == "True" for one in conditions)

    name = target.names[0]
    try:
        _follow(api, target, name, is_met, time.monotonic() + min(patience, timeout))
    except TimeoutError as problem:
        if timeout < patience:
            raise
        raise LabError(f"error: timed out waiting for the condition on {target.kind}s/{name}") from problem
    return f"{target.word}/{name} condition met\n"


def _follow(
    api: KubeApi, target: _Target, name: str, is_enough: Callable[[Json | None], bool], deadline: float
) -> None:
    """Return when `is_enough` is true of the object, or of None if there is none. Raises TimeoutError."""
    query: Query = [("fieldSelector", f"metadata.name={name}")]
    while (left := deadline - time.monotonic()) > 0:
        listed = api.get(target.list_path, query, timeout=left)
        if is_enough(next(iter(listed["items"]), None)):
            return
        since: Query = [("resourceVersion", listed["metadata"]["resourceVersion"])]
        for event in api.watch(target.list_path, [*query, *since], timeout=left):
            if event["type"] == "ERROR":  # a version that is too old, for instance: look anew
                break
            if is_enough(None if event["type"] == "DELETED" else event["object"]):
                return
    raise TimeoutError


# --- logs, exec ---


def _logs(words: Sequence[str]) -> Command:
    names, options = _parse(words, "--container --tail --since --limit-bytes --previous")
    if len(names) != 1 or "--namespace" not in options:
        raise _ForTheProgram
    query: Query = [
        (name, _number(options, flag, unit))
        for flag, name, unit in (
            ("--tail", "tailLines", ""),
            ("--since", "sinceSeconds", "s"),
            ("--limit-bytes", "limitBytes", ""),
        )
        if flag in options
    ]
    if options.get("--previous") == "true":
        query.append(("previous", "true"))
    return partial(_do_logs, _Target.of(("pod", *names), options), options, query)


def _do_logs(target: _Target, options: Options, query: Query, api: KubeApi, timeout: float) -> str:
    name = target.names[0]
    chosen: Query = [("container", _container(api, target, options, timeout))]
    return api.read(f"{target.path(name)}/log", [*chosen, *query], timeout=timeout).decode(errors="replace")


def _exec(words: Sequence[str], stdin: str | None) -> Command:
    if "--" not in words or len(stdin or "") > _MOST_INPUT_CHARACTERS:
        raise _ForTheProgram
    end = words.index("--")
    names, options = _parse(words[:end], "--container --stdin")
    if len(names) != 1:
        raise _ForTheProgram
    target = _Target.of(("pod", *names), options)
    given = (stdin or "").encode() if options.get("--stdin") == "true" else None
    return partial(_do_exec, target, options, list(words[end + 1 :]), given)


def _do_exec(
    target: _Target, options: Options, command: Sequence[str], stdin: bytes | None, api: KubeApi, timeout: float
) -> str:
    query: Query = [
        ("container", _container(api, target, options, timeout)),
        *(("command", word) for word in command),
        ("stdout", "true"),
        ("stderr", "true"),
    ]
    if stdin is not None:
        query.append(("stdin", "true"))
    return api.execute(f"{target.path(target.names[0])}/exec", query, stdin, timeout=timeout)


def _container(api: KubeApi, target: _Target, options: Options, timeout: float) -> str:
    """Return the name of the container that is named, or of the pod's default one."""
    if "--container" in options:
        return options["--container"]
    pod = api.get(target.path(target.names[0]), timeout=timeout)
    default = pod["metadata"].get("annotations", {}).get("kubectl.kubernetes.io/default-container")
    return str(default or pod["spec"]["containers"][0]["name"])


_COMMANDS: Final[dict[str, Callable[[Sequence[str]], Command]]] = {
    "get": _get,
    "delete": _delete,
    "wait": _wait,
    "logs": _logs,
}
