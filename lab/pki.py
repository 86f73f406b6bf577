"""Keys, certificates and kubeconfigs of the lab's cluster."""

import datetime as dt
import ipaddress
from dataclasses import dataclass
from pathlib import Path

import yaml
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from lab.settings import API_PORT, API_SERVICE_ADDRESS, NODE_ADDRESS, NODE_NAME, Settings

LIFE = dt.timedelta(days=3650)
EARLIER = dt.timedelta(hours=1)


@dataclass(frozen=True)
class Identity:
    """Subject of a certificate."""

    file: str
    name: str
    group: str | None = None
    hosts: tuple[str, ...] = ()
    """DNS names and addresses of a server; empty for a client."""
    has_kubeconfig: bool = True


IDENTITIES = (
    Identity(
        "apiserver",
        "kube-apiserver",
        hosts=(
            "localhost", "kubernetes", "kubernetes.default", "kubernetes.default.svc",
            "kubernetes.default.svc.cluster.local", "127.0.0.1", NODE_ADDRESS, API_SERVICE_ADDRESS,
        ),
        has_kubeconfig=False,
    ),
    Identity("apiserver-kubelet", "kube-apiserver-kubelet-client", "system:masters", has_kubeconfig=False),
    Identity("admin", "lab-admin", "system:masters"),
    Identity("kubelet", f"system:node:{NODE_NAME}", "system:nodes", hosts=(NODE_NAME, NODE_ADDRESS)),
    Identity("controller-manager", "system:kube-controller-manager"),
    Identity("scheduler", "system:kube-scheduler"),
    Identity("proxy", "system:kube-proxy"),
)  # fmt: skip


def ensure(settings: Settings) -> None:
    """Make all keys, certificates and kubeconfigs in the state folder, unless they are there already."""
    done = settings.pki / "done"
    if done.exists():
        return
    settings.pki.mkdir(parents=True, exist_ok=True)
    settings.pki.chmod(0o700)
    authority_key = ec.generate_private_key(ec.SECP256R1())
    authority = _authority(authority_key)
    _write_certificate(settings.pki / "ca.crt", authority)
    for identity in IDENTITIES:
        key = ec.generate_private_key(ec.SECP256R1())
        _write_key(settings.pki / f"{identity.file}.key", key)
        certificate = _certificate(identity, key, authority, authority_key)
        _write_certificate(settings.pki / f"{identity.file}.crt", certificate)
        if identity.has_kubeconfig:
            _write_kubeconfig(settings, identity.file)
    signing_key = ec.generate_private_key(ec.SECP256R1())
    _write_key(settings.pki / "service-account.key", signing_key)
    public = signing_key.public_key().public_bytes(
        serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
    )
    (settings.pki / "service-account.pub").write_bytes(public)
    done.touch()


def new_server(folder: Path, server: Identity = IDENTITIES[0]) -> None:
    """Make another authority (ca.crt), and a key and a certificate of it for `server`: its `file`.crt and .key."""
    authority_key, key = ec.generate_private_key(ec.SECP256R1()), ec.generate_private_key(ec.SECP256R1())
    authority = _authority(authority_key)
    _write_certificate(folder / "ca.crt", authority)
    _write_certificate(folder / f"{server.file}.crt", _certificate(server, key, authority, authority_key))
    _write_key(folder / f"{server.file}.key", key)


def _name(common: str, group: str | None = None) -> x509.Name:
    attributes = [x509.NameAttribute(NameOID.COMMON_NAME, common)]
    if group:
        attributes.append(x509.NameAttribute(NameOID.ORGANIZATION_NAME, group))
    return x509.Name(attributes)


def _builder(subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePublicKey) -> x509.CertificateBuilder:
    now = dt.datetime.now(dt.UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - EARLIER)
        .not_valid_after(now + LIFE)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key), critical=False)
    )


def _usage(*, authority: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=True, key_cert_sign=authority, crl_sign=authority, content_commitment=False,
        key_encipherment=False, data_encipherment=False, key_agreement=False, encipher_only=False, decipher_only=False,
    )  # fmt: skip


def _authority(key: ec.EllipticCurvePrivateKey) -> x509.Certificate:
    name = _name("k8spilot-lab")
    return (
        _builder(name, name, key.public_key())
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_usage(authority=True), critical=True)  # clients that verify strictly insist on it
        .sign(key, hashes.SHA256())
    )


def _certificate(
    identity: Identity,
    key: ec.EllipticCurvePrivateKey,
    authority: x509.Certificate,
    authority_key: ec.EllipticCurvePrivateKey,
) -> x509.Certificate:
    usages = [ExtendedKeyUsageOID.CLIENT_AUTH]
    if identity.hosts:
        usages.append(ExtendedKeyUsageOID.SERVER_AUTH)
    issuer_key = x509.AuthorityKeyIdentifier.from_issuer_public_key(authority_key.public_key())
    builder = (
        _builder(_name(identity.name, identity.group), authority.subject, key.public_key())
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_usage(authority=False), critical=True)
        .add_extension(x509.ExtendedKeyUsage(usages), critical=False)
        .add_extension(issuer_key, critical=False)
    )
    if identity.hosts:
        names = [_general_name(host) for host in identity.hosts]
        builder = builder.add_extension(x509.SubjectAlternativeName(names), critical=False)
    return builder.sign(authority_key, hashes.SHA256())


def _general_name(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def _write_certificate(path: Path, certificate: x509.Certificate) -> None:
    path.write_bytes(certificate.public_bytes(serialization.Encoding.PEM))


def _write_key(path: Path, key: ec.EllipticCurvePrivateKey) -> None:
    path.touch(mode=0o600)
    path.write_bytes(
        key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    )


def _write_kubeconfig(settings: Settings, user: str) -> None:
    pki = settings.pki
    cluster = {"server": f"https://{NODE_ADDRESS}:{API_PORT}", "certificate-authority": str(pki / "ca.crt")}
    credentials = {"client-certificate": str(pki / f"{user}.crt"), "client-key": str(pki / f"{user}.key")}
    document = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "lab", "cluster": cluster}],
        "users": [{"name": user, "user": credentials}],
        "contexts": [{"name": "lab", "context": {"cluster": "lab", "user": user}}],
        "current-context": "lab",
    }
    path = settings.admin_kubeconfig if user == "admin" else pki / f"{user}.kubeconfig"
    path.touch(mode=0o600)
    path.write_text(yaml.safe_dump(document, sort_keys=False))
