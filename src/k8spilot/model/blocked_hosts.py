"""Hosts that no user's image is asked of: what is there is no registry for jobs, but the node, or the cluster itself.

A name is judged as it is written, and looked up nowhere: one that a resolver takes for such an address passes.
"""

import ipaddress
import socket
from collections.abc import Iterable
from typing import Final

Address = ipaddress.IPv4Address | ipaddress.IPv6Address

_WITH_IPV4: Final = tuple(
    ipaddress.IPv6Network(one) for one in ("::/96", "::ffff:0:0/96", "64:ff9b::/96", "64:ff9b:1::/48")
)
"""IPv6 addresses whose last 32 bits are an IPv4 address: compatible, mapped (RFC 4291), translated (RFC 6052, 8215)."""
_METADATA: Final = frozenset(
    ipaddress.ip_address(one)
    for one in ("168.63.129.16", "100.100.100.200", "192.0.0.192", "fd00:ec2::254", "fd20:ce::254")
)
"""Where cloud providers have metadata services beside the link's own addresses: Azure, Alibaba, Oracle, AWS, Google."""
_METADATA_NAME: Final = "metadata.google.internal"
_LOOPBACK_NAMES: Final = frozenset({"localhost", "localhost.localdomain", "ip6-localhost", "ip6-loopback"})
_THIS_NETWORK: Final = ipaddress.IPv4Network("0.0.0.0/8")
_API_NAME: Final = ("kubernetes", "default")
"""How the names of the API server's Service begin in a cluster: kubernetes.default.svc.cluster.local."""


def closed_host(registry: str, api: Iterable[str] = (), pod: Iterable[str] = ()) -> str:
    """Say what the host of `registry` is, if no image of a user's may come from there; empty for any other host.

    Args:
        registry: host, or host:port, as in a reference.
        api: host:port of the API server; a registry may have another port of that host.
        pod: addresses of the own pod.
    """
    host = _host(registry)
    address = _address(host)
    if tuple(host.split("."))[:2] == _API_NAME or _is_of(
        (one for one in api if _port(one) == _port(registry)), host, address
    ):
        return "the Kubernetes API server"
    if host in _LOOPBACK_NAMES or host.endswith(".localhost") or _is_of(pod, host, address):  # RFC 6761
        return "the pod itself"
    if host == _METADATA_NAME or address in _METADATA:
        return "a cloud provider's metadata service"
    return "" if address is None else _kind(address)


def _is_of(hosts: Iterable[str], host: str, address: Address | None) -> bool:
    """Whether `hosts` have this host, by its name or by its address."""
    others = {_host(one) for one in hosts}
    return host in others or (address is not None and address in {_address(one) for one in others})


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


def _port(registry: str) -> str:
    """The port, which is that of HTTPS where none is named."""
    return registry.rpartition("]")[2].partition(":")[2] or "443"


def _address(host: str) -> Address | None:
    """The address that `host` is, in any spelling that a C library reads: 127.1, 0x7f000001, 2130706433."""
    try:
        if ":" in host:
            address = ipaddress.IPv6Address(host)
            if any(address in network for network in _WITH_IPV4) and int(address) > 1:
                return ipaddress.IPv4Address(address.packed[-4:])
            return address.sixtofour or (address.teredo[1] if address.teredo else address)
        return ipaddress.IPv4Address(socket.inet_aton(host))
    except (ValueError, OSError):
        return None
