"""The pool that the pilot joins: its central managers, brokers and rules."""

import zlib
from dataclasses import dataclass
from typing import Final

from k8spilot.settings import Settings


@dataclass(frozen=True, slots=True)
class Pool:
    """Addresses of a pool, and its conditions."""

    condor_host: str
    """CONDOR_HOST: the central managers, separated by commas."""
    collector_host: str
    """COLLECTOR_HOST: the collectors that receive the pilot's updates."""
    ccb_address: str
    """CCB_ADDRESS: the brokers that relay connections to the pilot; empty for none."""
    group: str = ""
    """GLIDECLIENT_Group, for the pool's accounting; empty for none."""
    start: tuple[str, ...] = ()
    """ClassAd expressions that every job of this pool must meet."""
    is_osg: bool = False
    """Whether the pool is one of the OSG's, whose jobs require the OSG's attributes."""
    is_itb: bool = False
    """Whether the pool is the OSG's integration test bed (ITB)."""


@dataclass(frozen=True, slots=True)
class _Known:
    """A pool that has a name."""

    managers: tuple[str, ...]
    brokers: tuple[str, ...]
    suffix: str
    """Suffix that selects one of several broker processes on a host; {} is its number."""
    count: int
    """Number of broker processes on a host."""
    own_collector: bool
    """Whether updates also go to the collector of that number instead of the main one."""
    group: str
    start: tuple[str, ...]


# A job without a project cannot be accounted for. Test jobs of one pool must not run in the other.
_PROJECT: Final = "TARGET.ProjectName isnt undefined"
# OSPool promises 40 hours to jobs of that category.
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
    "dev-path-facility": _Known(
        managers=("htcondor-cm-path.osgdev.chtc.io", "htcondor-cm-path.osg-dev.river.chtc.io"),
        brokers=("htcondor-cm-path.osgdev.chtc.io", "htcondor-cm-path.osg-dev.river.chtc.io"),
        suffix=":9618?sock=collector962{}",
        count=5,
        own_collector=False,
        group="path-container",
        start=(_PROJECT, _LONG),
    ),
}
_SYNONYMS: Final = {"prod-ospool": "ospool", "itb-ospool": "itb", "prod-path-facility": "path-facility"}


def resolve(settings: Settings) -> Pool:
    """Return the pool that `settings` name.

    The pod's uid selects one of several brokers. Pods spread over all brokers, and a pilot that restarts in place
    returns to its own broker.
    """
    number = zlib.crc32(settings.pod_uid.encode() or settings.pod_name.encode())
    name = settings.pool or ""
    name = "itb" if settings.itb and name == "ospool" else _SYNONYMS.get(name, name)
    if settings.condor_host is None and (known := _KNOWN.get(name)):
        # Pools without own collectors number their brokers from 0, the others from 1.
        first = 1 if known.own_collector else 0
        suffix = known.suffix.format(first + number % known.count)
        return Pool(
            condor_host=",".join(known.managers),
            collector_host=",".join(host + (suffix if known.own_collector else "") for host in known.managers),
            ccb_address=",".join(host + suffix for host in known.brokers) if settings.use_ccb else "",
            group=known.group,
            start=known.start,
            is_osg=True,
            is_itb=settings.itb or name == "itb",
        )
    hosts = settings.condor_host or name
    return Pool(
        condor_host=hosts,
        collector_host=hosts,
        ccb_address=_brokers(settings, hosts, number),
        is_itb=settings.itb,
    )


def _brokers(settings: Settings, hosts: str, number: int) -> str:
    """Return CCB_ADDRESS of a pool that the settings name by host."""
    if not settings.use_ccb:
        return ""
    low, high = settings.ccb_range_low, settings.ccb_range_high
    if low is None or high is None:
        return "$(COLLECTOR_HOST)"
    port = low + number % (high - low + 1)
    return ",".join(f"{host}:{port}" for host in hosts.split(","))
