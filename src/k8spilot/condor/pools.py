"""Which pool the pilot joins: its central managers, brokers and rules."""

import zlib
from dataclasses import dataclass
from typing import Final

from k8spilot.settings import Settings


@dataclass(frozen=True, slots=True)
class Pool:
    """Where a pilot reports to, and what that pool wants of it."""

    condor_host: str
    """CONDOR_HOST: the central managers, separated by commas."""
    collector_host: str
    """COLLECTOR_HOST: where the pilot's own updates go."""
    ccb_address: str
    """CCB_ADDRESS: the brokers through which the pilot is reached; empty for none."""
    group: str = ""
    """GLIDECLIENT_Group, which the pool's accounting knows; empty for none."""
    start: tuple[str, ...] = ()
    """ClassAd expressions that every job of this pool must fulfil."""
    is_osg: bool = False
    """It is one of the OSG's pools, whose jobs look for the OSG's attributes."""
    is_itb: bool = False
    """It is the one in which the OSG tests its pool."""


@dataclass(frozen=True, slots=True)
class _Known:
    """A pool that is known by name."""

    managers: tuple[str, ...]
    brokers: tuple[str, ...]
    suffix: str
    """What names one of several broker processes behind a host; {} is its number."""
    count: int
    """How many of them there are."""
    own_collector: bool
    """Updates go to the collector of that number as well, not to the main one."""
    group: str
    start: tuple[str, ...]


# Without a project a job cannot be accounted for; the test jobs of one pool must not run in the other.
_PROJECT: Final = "TARGET.ProjectName isnt undefined"
# 40 hours, which OSPool promises to jobs of that category.
_LONG: Final = 'TARGET.JobDurationCategory isnt "Long" || GLIDEIN_ToDie - time() > 144000'
_KNOWN: Final = {
    "ospool": _Known(
        managers=("cm-1.ospool.osg-htc.org", "cm-2.ospool.osg-htc.org"),
        brokers=("ccb-1.ospool.osg-htc.org", "ccb-2.ospool.osg-htc.org"),
        suffix="?sock=collector{}",
        count=10,
        own_collector=True,
        group="main-container",
        start=(_PROJECT, _LONG, "TARGET.ITB_Sites =!= true"),
    ),
    "itb": _Known(
        managers=("cm-1.ospool-itb.osg-htc.org", "cm-2.ospool-itb.osg-htc.org"),
        brokers=("ccb-1.ospool-itb.osg-htc.org", "ccb-2.ospool-itb.osg-htc.org"),
        suffix="?sock=collector{}",
        count=10,
        own_collector=True,
        group="itb-container",
        start=(_PROJECT, _LONG, "TARGET.ITB_Sites =?= true"),
    ),
    "path-facility": _Known(
        managers=("cm-1.facility.path-cc.io", "cm-2.facility.path-cc.io"),
        brokers=("cm-1.facility.path-cc.io", "cm-2.facility.path-cc.io"),
        suffix=":9618?sock=collector962{}",
        count=5,
        own_collector=False,
        group="path-container",
        start=(_PROJECT, _LONG),
    ),
}
_SYNONYMS: Final = {"prod-ospool": "ospool", "itb-ospool": "itb", "prod-path-facility": "path-facility"}


def resolve(settings: Settings) -> Pool:
    """Find the pool that `settings` name.

    Where a pool has several brokers, the pod's uid chooses one: pods spread over all of them, and a pilot
    that starts again in place comes back to its own.
    """
    number = zlib.crc32(settings.pod_uid.encode() or settings.pod_name.encode())
    name = _SYNONYMS.get(settings.pool or "", settings.pool or "")
    if settings.condor_host is None and (known := _KNOWN.get(name)):
        # The last kind of pool numbers its brokers from 0, the others from 1.
        first = 1 if known.own_collector else 0
        suffix = known.suffix.format(first + number % known.count)
        return Pool(
            condor_host=",".join(known.managers),
            collector_host=",".join(host + (suffix if known.own_collector else "") for host in known.managers),
            ccb_address=",".join(host + suffix for host in known.brokers) if settings.use_ccb else "",
            group=known.group,
            start=known.start,
            is_osg=True,
            is_itb=name == "itb",
        )
    hosts = settings.condor_host or name
    return Pool(condor_host=hosts, collector_host=hosts, ccb_address=_brokers(settings, hosts, number))


def _brokers(settings: Settings, hosts: str, number: int) -> str:
    """CCB_ADDRESS of a pool that is known by its hosts alone."""
    if not settings.use_ccb:
        return ""
    low, high = settings.ccb_range_low, settings.ccb_range_high
    if low is None or high is None:
        return "$(COLLECTOR_HOST)"
    port = low + number % (high - low + 1)
    return ",".join(f"{host}:{port}" for host in hosts.split(","))
