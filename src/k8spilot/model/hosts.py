"""Hosts that no user's image is asked of: what is there is no registry for jobs, but the node, or the cluster itself.

A name is judged as it is written, and looked up nowhere: one that a resolver takes for such an address passes.
"""

import ipaddress
import socket
from collections.abc import Iterable
from typing import Final

Address = ipaddress.IPv4Address | ipaddress.IPv6Address

_WITH_IPV4: Final = tuple(ipaddress.IPv6Network(one) for one in ("::/96", "::ffff:0:0/96", "64:ff9b::/96"))
"""IPv6 addresses whose last 32 bits are an IPv4 address: compatible, mapped (RFC 4291), translated (RFC 6052)."""
_THIS_NETWORK: Final = ipaddress.IPv4Network("0.0.0.0/8")
_API_NAME: Final = ("kubernetes", "default")
"""How the names of the API server's Service begin in a cluster: kubernetes.default.svc.cluster.local."""


def own(registry: str, closed: Iterable[str] = ()) -> str:
    """What `registry` is, if that is a host which no user's image is to be asked of; empty for any other.

    Args:
        registry: host, or host:port, as in a reference.
        closed: more such hosts, without a port: the API server's.
    """
    host = _host(registry)
    others = {_host(one) for one in closed}
    address = _address(host)
    if (
        tuple(host.split("."))[:2] == _API_NAME
        or host in others
        or address in {_address(one) for one in others} - {None}
    ):
        return "the Kubernetes API server"
    if host == "localhost" or host.endswith(".localhost"):  # RFC 6761
        return "the pod itself"
    return "" if address is None else _kind(address)


def _kind(address: Address) -> str:
    if address.is_loopback or address.is_unspecified or (address.version == 4 and address in _THIS_NETWORK):
        return "the pod itself"
    if address.is_link_local:
        return "an address of the node's own link, as cloud providers' metadata services have"
    return "a multicast address" if address.is_multicast else ""


def _host(registry: str) -> str:
    """Without port, brackets, zone, and the dot of a full name; in small letters."""
    if registry.startswith("["):
        host = registry[1:].partition("]")[0]
    elif registry.count(":") > 1:
        host = registry
    else:
        host = registry.partition(":")[0]
    return host.partition("%")[0].rstrip(".").lower()


def _address(host: str) -> Address | None:
    """The address that `host` is, in any spelling that a C library reads: 127.1, 0x7f000001, 2130706433."""
    try:
        if ":" in host:
            address = ipaddress.IPv6Address(host)
            within = any(address in network for network in _WITH_IPV4) and int(address) > 1
            return ipaddress.IPv4Address(address.packed[-4:]) if within else address.sixtofour or address
        return ipaddress.IPv4Address(socket.inet_aton(host))
    except (ValueError, OSError):
        return None
