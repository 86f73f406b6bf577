"""Hosts that the pilot never queries for a user's image: addresses of the node, the pod or the cluster.

The check uses the name as written, without a lookup: a name that a resolver maps to such an address passes.
"""

import ipaddress
import socket
from collections.abc import Iterable
from typing import Final

Address = ipaddress.IPv4Address | ipaddress.IPv6Address

_WITH_IPV4: Final = tuple(
    ipaddress.IPv6Network(item) for item in ("::/96", "::ffff:0:0/96", "64:ff9b::/96", "64:ff9b:1::/48")
)
"""IPv6 networks whose addresses end in an IPv4 address: compatible, mapped (RFC 4291), translated (RFC 6052, 8215)."""
METADATA: Final = frozenset(
    ipaddress.ip_address(item)
    for item in ("168.63.129.16", "100.100.100.200", "192.0.0.192", "fd00:ec2::254", "fd20:ce::254")
)
"""Metadata services of cloud providers outside of link-local addresses: Azure, Alibaba, Oracle, AWS, Google."""
_METADATA_NAME: Final = "metadata.google.internal"
_LOOPBACK_NAMES: Final = frozenset({"localhost", "localhost.localdomain", "ip6-localhost", "ip6-loopback"})
_THIS_NETWORK: Final = ipaddress.IPv4Network("0.0.0.0/8")
_API_NAME: Final = ("kubernetes", "default")
"""Beginning of the names of the API server's Service: kubernetes.default.svc.cluster.local."""


def closed_host(registry: str, api: Iterable[str] = (), pod: Iterable[str] = ()) -> str:
    """Return what the host of `registry` is, if it is blocked; an empty text for any other host.

    Args:
        registry: host, or host:port, as in a reference.
        api: host:port of the API server. A registry may use another port of that host.
        pod: addresses of the own pod.
    """
    host = _host(registry)
    address = _address(host)
    if tuple(host.split("."))[:2] == _API_NAME or _is_of(
        (item for item in api if _port(item) == _port(registry)), host, address
    ):
        return "the Kubernetes API server"
    if host in _LOOPBACK_NAMES or host.endswith(".localhost") or _is_of(pod, host, address):  # RFC 6761
        return "the pod itself"
    if host == _METADATA_NAME or address in METADATA:
        return "a cloud provider's metadata service"
    return "" if address is None else _kind(address)


def _is_of(hosts: Iterable[str], host: str, address: Address | None) -> bool:
    """Return whether `hosts` contain this host, by name or address."""
    others = {_host(item) for item in hosts}
    return host in others or (address is not None and address in {_address(item) for item in others})


def _kind(address: Address) -> str:
    if address.is_loopback or address.is_unspecified or (address.version == 4 and address in _THIS_NETWORK):
        return "the pod itself"
    if address.is_link_local:
        return "a link-local address of the node, as of cloud providers' metadata services"
    return "a multicast address" if address.is_multicast else ""


def _host(registry: str) -> str:
    """Return the host without port, brackets, zone and final dot, in lower case."""
    if registry.startswith("["):
        host = registry[1:].partition("]")[0]
    elif registry.count(":") > 1:
        host = registry
    else:
        host = registry.partition(":")[0]
    return host.partition("%")[0].rstrip(".").lower()


def _port(registry: str) -> str:
    """Return the port; by default the port of HTTPS."""
    return registry.rpartition("]")[2].partition(":")[2] or "443"


def _address(host: str) -> Address | None:
    """Return the address that `host` means in any spelling of a C library: 127.1, 0x7f000001, 2130706433."""
    try:
        if ":" in host:
            address = ipaddress.IPv6Address(host)
            if any(address in network for network in _WITH_IPV4) and int(address) > 1:
                return ipaddress.IPv4Address(address.packed[-4:])
            return address.sixtofour or (address.teredo[1] if address.teredo else address)
        return ipaddress.IPv4Address(socket.inet_aton(host))
    except (ValueError, OSError):
        return None
