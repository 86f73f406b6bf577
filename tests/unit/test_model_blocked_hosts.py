"""Hosts that are no registries of anybody's, in every spelling."""

import ipaddress
import socket

import pytest
from hypothesis import strategies as st

from k8spilot.common.errors import ImageError, ImageNotAllowed
from k8spilot.model.blocked_hosts import closed_host
from k8spilot.model.image_policy import ImagePolicy
from k8spilot.model.reference import Reference
from tests.fuzz.drawing import drawn

API = ("10.96.0.1", "[fd00:96::1]:443")

POD = "the pod itself"
LINK = "a link-local address of the node, as of cloud providers' metadata services"
METADATA = "a cloud provider's metadata service"
SERVER = "the Kubernetes API server"
MULTICAST = "a multicast address"

HOSTS = {
    "localhost": POD,
    "LocalHost:5000": POD,
    "localhost.": POD,
    "a.b.localhost": POD,
    "127.0.0.1": POD,
    "127.255.1.2:80": POD,
    "127.1": POD,
    "127.0.1:5000": POD,
    "2130706433": POD,
    "2130706433:9618": POD,
    "0x7f000001": POD,
    "0X7F.1": POD,
    "0177.0.0.1": POD,
    "017700000001": POD,
    "0": POD,
    "0.0.0.0": POD,  # noqa: S104
    "0.1.2.3": POD,
    "[::1]": POD,
    "[::1]:5000": POD,
    "[::]:5000": POD,
    "[0:0:0:0:0:0:0:1]": POD,
    "[::ffff:127.0.0.1]": POD,
    "[::ffff:7f00:1]:80": POD,
    "[::7f00:1]": POD,
    "[64:ff9b::7f00:1]": POD,
    "[2002:7f00:1::]": POD,
    "169.254.169.254": LINK,
    "169.254.1:80": LINK,
    "2852039166": LINK,
    "0xa9fea9fe": LINK,
    "0xA9.0xFE.43518": LINK,
    "[::ffff:a9fe:a9fe]": LINK,
    "[64:ff9b::a9fe:a9fe]": LINK,
    "[fe80::1]:5000": LINK,
    "[fe80::1%eth0]:5000": LINK,
    "[FEBF::1]": LINK,
    "224.0.0.1": MULTICAST,
    "[ff02::1]": MULTICAST,
    "10.96.0.1": SERVER,
    "10.96.0.1:443": SERVER,
    "10.6291457": SERVER,
    "0x0a600001": SERVER,
    "[::ffff:a60:1]:443": SERVER,
    "[fd00:96:0::1]:443": SERVER,
    "kubernetes.default": SERVER,
    "localhost.localdomain": POD,
    "ip6-loopback:5000": POD,
    "[64:ff9b:1::a9fe:a9fe]": LINK,
    "[2001:0:1:2:3:4:5601:5601]": LINK,
    "168.63.129.16": METADATA,
    "100.100.100.200:80": METADATA,
    "[fd00:ec2::254]": METADATA,
    "metadata.google.internal": METADATA,
    "kubernetes.default.svc.cluster.local:443": SERVER,
}
OTHERS = [
    "docker.io",
    "registry.example:5000",
    "10.96.0.2:5000",
    "10.96.0.1:5000",
    "192.168.1.1:5000",
    "[fd00::1]:5000",
    "[2001:db8::1]:5000",
    "localhost.example",
    "notlocalhost:5000",
    "kubernetes.example",
    "127.0.0.1.nip.example",
    "127.0.0.256",
    "1.2.3.4.5",
    "0x7g.1",
]


@pytest.mark.parametrize("host", HOSTS)
def test_a_host_that_is_no_registry_is_known_in_every_spelling(host: str) -> None:
    assert closed_host(host, API) == HOSTS[host]


@pytest.mark.parametrize("host", OTHERS)
def test_any_other_host_is_left_alone(host: str) -> None:
    assert closed_host(host, API) == ""


@drawn(
    100,
    address=st.integers(0, 2**32 - 1).map(ipaddress.IPv4Address),
    how=st.lists(st.sampled_from(["{}", "{:#x}", "{:#X}", "0{:o}"]), min_size=4, max_size=4),
    parts=st.integers(1, 4),
)
def test_each_spelling_of_an_address_is_judged_as_that_address(
    address: ipaddress.IPv4Address, how: list[str], parts: int
) -> None:
    """A C library reads one to four numbers, each decimal, octal or hexadecimal, the last of which has what is left."""
    values = [*address.packed[: parts - 1], int.from_bytes(address.packed[parts - 1 :])]
    spelled = ".".join(form.format(value) for form, value in zip(how, values, strict=False))
    assert socket.inet_aton(spelled) == address.packed
    plain = closed_host(str(address), API)
    assert (
        closed_host(spelled, API)
        == closed_host(f"{spelled}:443", API)
        == closed_host(f"[::ffff:{address}]", API)
        == plain
    )
    closed = address.is_loopback or address.is_link_local or address.is_multicast or address.packed[0] == 0
    assert bool(plain) is (closed or str(address) in (*API, "168.63.129.16", "100.100.100.200", "192.0.0.192"))


def test_the_own_pods_addresses_are_no_registries() -> None:
    assert (
        closed_host("10.1.2.3:9618", API, ["10.1.2.3", "fd00::7"])
        == closed_host("[fd00::7]", API, ["10.1.2.3", "fd00::7"])
        == POD
    )


@drawn(100, address=st.ip_addresses(v=6))
def test_an_address_of_six_is_judged_however_it_is_written(address: ipaddress.IPv6Address) -> None:
    plain = closed_host(f"[{address}]", API)
    assert closed_host(f"[{address.exploded.upper()}]:443", API) == closed_host(str(address), API) == plain
    if address.is_loopback or address.is_link_local or address.is_multicast or address.is_unspecified:
        assert plain


@drawn(100, text=st.text(max_size=40))
def test_any_text_is_judged(text: str) -> None:
    assert isinstance(closed_host(text, API), str)


def _refusal(policy: ImagePolicy, image: str) -> str:
    with pytest.raises(ImageNotAllowed) as refused:
        policy.admit(Reference.parse(image))
    return str(refused.value)


@pytest.mark.parametrize("host", HOSTS)
def test_no_image_of_such_a_host_is_admitted(host: str) -> None:
    image = f"{host}/a/b:1"
    try:
        Reference.parse(image)
    except ImageError:
        return  # it is no reference at all
    if Reference.parse(image).repository.startswith("docker.io/"):
        return  # nor has it a registry: a number alone is a part of a name
    assert f"is {HOSTS[host]}, not a registry for jobs" in _refusal(ImagePolicy(api=API), image)


def test_the_refusal_is_a_sentence_and_says_what_to_do() -> None:
    assert _refusal(ImagePolicy(api=API), "169.254.169.254/latest/meta-data:1") == (
        f"image 169.254.169.254/latest/meta-data:1 is not allowed here: 169.254.169.254 is {LINK}, not a registry for "
        "jobs; use another registry, or ask the site to add this one to K8SPILOT_ALLOWED_IMAGES"
    )


def test_an_operator_can_allow_one() -> None:
    policy = ImagePolicy(["127.0.0.1:5000", "docker.io"], api=API)
    policy.admit(Reference.parse("127.0.0.1:5000/a"))
    policy.admit(Reference.parse("busybox"))
    for image in ("127.0.0.1/a", "127.1:5000/a", "localhost:5000/a", "10.96.0.1:443/a"):
        assert "site allows images of" in _refusal(policy, image)
