"""Queries of the pool's collectors: whether they have the slot's ad, and why not.

Three questions, each only after the one before: a TCP connection, the slot's ad (condor_status), and the authorization
to advertise (condor_ping, ADVERTISE_STARTD). A token without READ gets no ads: then the authorization counts. The
answers come from HTCondor's tools, and no job can influence them: neither reads anything that a job writes.
"""

import asyncio
import math
import os
import re
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from k8spilot.common.logs import one_line
from k8spilot.condor import credentials, tokens
from k8spilot.condor.configuration.pools import resolve
from k8spilot.condor.configuration.values import machine_name
from k8spilot.condor.folders import Folders
from k8spilot.condor.tools import output_of
from k8spilot.settings import Settings

PORT: Final = 9618
"""Default port of the collector (condor_collector, COLLECTOR_PORT)."""
_HOST: Final = re.compile(r"(?P<host>\[[0-9A-Fa-f:]+\]|[^:?\[\]]+)(?::(?P<port>\d+))?(?:\?.*)?")
_CONNECT_SECONDS: Final = 5.0
_TOOL_SECONDS: Final = 8.0
_LATE: Final = -1000
"""In the place of the exit status of a tool that did not end in time."""
_WORDS: Final = 300
"""Longest quotation of a tool's message."""

# Output of condor_ping -verbose (ping.cpp, print_useful_info_2).
_AUTHORIZED: Final = re.compile(r"^Authorized: +(TRUE|FALSE)$", re.MULTILINE)
_IDENTITY: Final = re.compile(r"^Remote Mapping: +(\S+)$", re.MULTILINE)
_METHOD: Final = re.compile(r"^Authenticated using: +(\S+)$", re.MULTILINE)
# HTCondor's error stack (authentication.cpp, condor_secman.cpp).
_TRIED: Final = re.compile(r"\bAUTHENTICATE:\d+:Failed to authenticate using (\w+)")
_NOT_AUTHENTICATED: Final = re.compile(r"\bAUTHENTICATE:\d+:")
_DENIED: Final = re.compile(r'Received "DENIED" from server for user (\S+) using method (\w+)')
_AD: Final = re.compile(r"^(\d+) <([^<>\s?]+)[?>]\S* (\S+)$", re.MULTILINE)
"""LastHeardFrom, MyAddress and K8SPodUID, as condor_status -af prints them."""
_ADDRESS: Final = re.compile(r"<([^<>\s?]+)[?>]")
"""Beginning of the startd's address file (condor_sinful.cpp)."""


@dataclass(frozen=True, slots=True)
class Answer:
    """Answer of one collector, or of all."""

    collector: str
    updated: float | None = None
    """When the collector last took the slot's ad (its own clock); None without an ad."""
    identity: str = ""
    """Identity and method by which the collector authorises this pilot to advertise; empty if it does not."""
    problem: str = ""
    """Why this collector does not have the slot, a phrase; empty if it has."""
    late: bool = False
    """Whether the collector's answer exceeded the time limit."""


class Collectors:
    """The collectors that HTCondor's configuration names."""

    def __init__(self, settings: Settings, folders: Folders) -> None:
        self._settings = settings
        self._folders = folders
        self._hosts: list[str] = []
        self.slot = f"slot1@{machine_name(settings)}"
        """Name of the slot in the pool."""

    async def hosts(self) -> list[str]:
        """Return COLLECTOR_HOST, which an operator's configuration can set, too."""
        if self._hosts:
            return self._hosts
        status, output = await self._tool("condor_config_val", "COLLECTOR_HOST")
        if status == 0 and (found := _split(output)):
            self._hosts = found
            return found
        return _split(resolve(self._settings).collector_host)

    async def query(self) -> Answer:
        """Ask all collectors at once for the slot's ad. One that has it is enough."""
        return _best(await asyncio.gather(*(self._query(host) for host in await self.hosts())))

    async def ping(self) -> Answer:
        """Ask all collectors at once whether this pilot may advertise a slot."""
        return _best(await asyncio.gather(*(self._ping(host) for host in await self.hosts())))

    async def _query(self, host: str) -> Answer:
        if problem := await unreachable(host):
            return Answer(host, problem=problem)
        query = ("-constraint", f'Name == "{self.slot}"', "-af", "LastHeardFrom", "MyAddress", "K8SPodUID")
        status, output = await self._tool("condor_status", "-pool", host, *query)
        found = _AD.search(output) if status == 0 else None
        # An ad with another address is that of an earlier startd.
        if found is not None and found[2] == self._startds_address():
            return Answer(host, updated=float(found[1]))
        if status == _LATE:
            return Answer(host, problem=_late(host), late=True)
        answer = await self._ping(host)
        if found is not None and found[3] != self._settings.pod_uid and float(found[1]) > self._startds_beginning():
            return Answer(host, identity=answer.identity, problem=_doubled(host, self.slot))
        if status == 0 and not answer.problem:
            problem = f"{host} accepts this pilot as {answer.identity}, but has no ad of {self.slot}"
            return Answer(host, identity=answer.identity, problem=problem)
        return answer

    async def _ping(self, host: str) -> Answer:
        if problem := await unreachable(host):
            return Answer(host, problem=problem)
        command = ("condor_ping", "-verbose", "-type", "collector", "-pool", host, "ADVERTISE_STARTD")
        status, output = await self._tool(*command)
        identity = _identity(output)
        if status == 0 and (authorized := _AUTHORIZED.search(output)) is not None:
            if authorized[1] == "TRUE":
                return Answer(host, identity=identity)
            return Answer(host, problem=_not_authorised(host, identity))
        return Answer(host, problem=self._problem(host, status, output), late=status == _LATE)

    def _problem(self, host: str, status: int, output: str) -> str:
        """Return why a ping failed, a phrase."""
        if (denied := _DENIED.search(output)) is not None:
            return _not_authorised(host, f"{one_line(denied[1])} ({denied[2]})")
        if _NOT_AUTHENTICATED.search(output):
            methods = list(dict.fromkeys(_TRIED.findall(output)))
            known = tokens.described(credentials.installed_tokens(self._folders), time.time())
            tried = f"methods tried: {', '.join(methods)}" if methods else "no common method"
            return (
                f"{host} does not authenticate this pilot ({'; '.join(filter(None, (tried, known)))}); put a token of "
                "this pool into the Secret pool-token"
            )
        if status == _LATE:
            return _late(host)
        lines = [line.strip() for line in output.splitlines() if line.strip() and "failed!" not in line]
        reply = one_line(" ".join(lines))[:_WORDS] or f"condor_ping ended with {status}"
        return f"the service at {host} does not answer as a collector ({reply}); check CONDOR_HOST or POOL"

    def _startds_address(self) -> str:
        try:
            match = _ADDRESS.match(self._address_file.read_text())
        except (OSError, ValueError):
            return ""
        return match[1] if match is not None else ""

    def _startds_beginning(self) -> float:
        """Return when the startd wrote its address, in seconds since the epoch; the far future if it has not."""
        try:
            return self._address_file.stat().st_mtime
        except OSError:
            return math.inf

    @property
    def _address_file(self) -> Path:
        return self._folders.log / ".startd_address"

    async def _tool(self, *command: str) -> tuple[int, str]:
        """Run a tool; the status is _LATE if it did not end in time, and 127 if it cannot be run."""
        try:
            async with asyncio.timeout(_TOOL_SECONDS):
                return await output_of(self._settings, self._folders, *command)
        except TimeoutError:
            return _LATE, ""
        except OSError as error:
            return 127, f"{command[0]}: {error.strerror}"


async def unreachable(host: str) -> str:
    """Return why there is no TCP connection to a collector, a phrase; empty if there is."""
    match = _HOST.fullmatch(host)
    if match is None:
        return f"{host!r} is not a valid host"
    name, port = match["host"].strip("[]"), int(match["port"] or PORT)
    loop = asyncio.get_running_loop()
    try:
        async with asyncio.timeout(_CONNECT_SECONDS):
            try:
                await loop.getaddrinfo(name, port)
            except OSError as error:
                return f"{host}: no such host ({error.strerror or error}); check CONDOR_HOST or POOL, and the pod's DNS"
            _, writer = await asyncio.open_connection(name, port)
        writer.close()
    except TimeoutError:
        why = f"no answer within {_CONNECT_SECONDS:.0f} s"
    except OSError as error:
        why = os.strerror(error.errno).lower() if error.errno else str(error)
    else:
        return ""
    return (
        f"{host}: nobody answers on port {port} ({why}); check CONDOR_HOST or POOL, and let the network policies allow "
        "TCP to it"
    )


def _split(hosts: str) -> list[str]:
    return [host for host in re.split(r"[,\s]+", hosts) if host]


def _identity(output: str) -> str:
    mapped, method = _IDENTITY.search(output), _METHOD.search(output)
    return f"{one_line(mapped[1]) if mapped else 'unknown'} ({method[1] if method else 'no method'})"


def _doubled(host: str, slot: str) -> str:
    """Return what is wrong if two slots have one name: a collector tells ads apart by it (hashkey.cpp)."""
    return (
        f"{host} has an ad of {slot} from another pod, and a pool keeps one ad for each name; give the sites of the "
        "pool different names (GLIDEIN_ResourceName), or set GLIDEIN_RANDOMIZE_NAME=true"
    )


def _late(host: str) -> str:
    return f"{host} accepts connections, but does not answer HTCondor's requests within {_TOOL_SECONDS:.0f} s"


def _not_authorised(host: str, identity: str) -> str:
    return (
        f"{host} authenticates this pilot as {identity}, but does not authorise it to advertise a slot "
        "(ADVERTISE_STARTD); ask the pool's administrators to allow it, or for a token with that authorization"
    )


def _best(answers: Sequence[Answer]) -> Answer:
    """Return the answer of a collector that has the slot or accepts the pilot, or else what all of them said."""
    if with_ad := [answer for answer in answers if answer.updated is not None]:
        return max(with_ad, key=lambda answer: answer.updated or 0.0)
    for answer in answers:
        if not answer.problem:
            return answer
    return Answer(
        ", ".join(answer.collector for answer in answers),
        identity=next((answer.identity for answer in answers if answer.identity), ""),
        problem="; ".join(answer.problem for answer in answers) or "COLLECTOR_HOST names no collector",
        late=any(answer.late for answer in answers),
    )
