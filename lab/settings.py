"""Names, addresses, versions and folders of the lab: the one place where they are chosen."""

import os
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path

from lab.errors import LabError

HERE = Path(__file__).resolve().parent
CHECKOUT = HERE.parent

GO_VERSION = "1.26.6"
KUBERNETES_VERSIONS = {
    "1.33": "v1.33.13",
    "1.34": "v1.34.4",
    "1.35": "v1.35.4",
    "1.36": "v1.36.3",
    "1.37": "v1.37.2",
}
KUBERNETES = "1.36"
"""Default of K8SPILOT_LAB_KUBERNETES."""
HTCONDOR_SUITES = {"23.9": "trixie", "25.14": "forky"}
"""Debian's suites by the minor version of HTCondor that they have."""
HTCONDOR = "25.14"
"""Default of K8SPILOT_LAB_HTCONDOR."""
DEBIAN_SUITE = HTCONDOR_SUITES[HTCONDOR]
RUNTIMES = ("containerd-1.7", "containerd-2.4", "crio-1.36")
RUNTIME = "containerd-2.4"
"""Default of K8SPILOT_LAB_RUNTIME."""

BRIDGE = "k8spilot0"
POD_NETWORK = "10.234.0.0/16"
NODE_ADDRESS = "10.234.0.1"
SERVICE_NETWORK = "10.235.0.0/16"
API_SERVICE_ADDRESS = "10.235.0.1"
COLLECTOR_SERVICE_ADDRESS = "10.235.96.18"

NODE_NAME = "lab"
API_PORT = 6443
ETCD_PORT = 2379
ETCD_PEER_PORT = 2380
KUBELET_PORT = 10250
REGISTRY_PORT = 5000
PROXY_METRICS_PORT = 10249

# Every container of the lab's node runs below this cgroup, so that its processes can be told from all others.
CGROUP = "k8spilot-lab"

POOL_NAMESPACE = "pool"
PILOT_NAMESPACE = "pilots"
CENTRAL_MANAGER = "central-manager"
ACCESS_POINT = "access-point"
POOL_DOMAIN = "pool.lab"

MINIMUM_FREE_GIB = 6

SESSION_LABEL = "k8spilot-lab/session"
"""Label of the objects that a session of tests makes in the cluster."""
SESSION_ATTRIBUTE = "LabSession"
"""Attribute of the jobs that a session of tests submits."""
SESSION_VARIABLE = "K8SPILOT_LAB_SESSION"
"""Environment variable with the name of the session of tests, for its workers and their programs."""


@dataclass(frozen=True)
class Settings:
    """Folders of this machine, and choices of the environment."""

    cache: Path
    """Folder of data that later labs use again: programs, images, the registry's data, times of long steps."""
    state: Path
    """Folder of the running lab's data; `down` removes it."""
    kubeconfig: Path | None
    """The user's own cluster (KUBECONFIG); None: the lab builds a node."""
    image: str | None
    """The project's image in a registry that the cluster can reach (IMAGE); None: it is built."""
    registry: str | None
    """host:port of a registry to push to (REGISTRY); None: the lab's own."""
    mirror: str | None
    """Debian mirror for the images; None: the one that this machine's own apt uses."""
    kubernetes: str = KUBERNETES
    """Minor version of the node's Kubernetes (K8SPILOT_LAB_KUBERNETES): a key of KUBERNETES_VERSIONS."""
    htcondor: str = HTCONDOR
    """Minor version of the pool's HTCondor (K8SPILOT_LAB_HTCONDOR): a key of HTCONDOR_SUITES. Pilots keep theirs."""
    runtime: str = RUNTIME
    """The node's container runtime (K8SPILOT_LAB_RUNTIME): one of RUNTIMES."""
    components: tuple[str, ...] = ()
    """Folders of components/ that every pilot of the lab has (K8SPILOT_LAB_COMPONENTS, with spaces between)."""
    session: str = ""
    """Name of the session of tests (SESSION_VARIABLE), by which its pods and jobs are found; empty: there is none."""

    @classmethod
    def from_environment(cls) -> "Settings":
        """Read the environment; unset variables have their defaults. Raises LabError."""
        own = Path("/var/lib/k8spilot-lab")
        named = os.environ.get("KUBECONFIG") or None
        foreign = Path(named.split(":")[0]) if named else None
        if foreign is not None and foreign.resolve() == (own / "kubeconfig").resolve():
            foreign = None  # the lab's own cluster, named by somebody who wants to talk to it
        default_cache = Path.home() / ".cache/k8spilot-lab"
        return cls(
            cache=Path(os.environ.get("K8SPILOT_LAB_CACHE") or default_cache).expanduser().absolute(),
            state=own,
            kubeconfig=foreign,
            image=os.environ.get("IMAGE") or None,
            registry=os.environ.get("REGISTRY") or None,
            mirror=os.environ.get("K8SPILOT_LAB_MIRROR") or None,
            kubernetes=_version("K8SPILOT_LAB_KUBERNETES", KUBERNETES, KUBERNETES_VERSIONS),
            htcondor=_version("K8SPILOT_LAB_HTCONDOR", HTCONDOR, HTCONDOR_SUITES),
            runtime=_version("K8SPILOT_LAB_RUNTIME", RUNTIME, RUNTIMES),
            components=_components(),
            session=os.environ.get(SESSION_VARIABLE, ""),
        )

    @property
    def bin(self) -> Path:
        """Links to the node's programs, as the running lab uses them."""
        return self.state / "bin"

    @property
    def logs(self) -> Path:
        """Logs of the running lab's processes."""
        return self.state / "logs"

    @property
    def overlays(self) -> Path:
        """Kustomizations of pilots that were deployed."""
        return (self.state if self.kubeconfig is None else self.cache) / "pilots"

    @property
    def pki(self) -> Path:
        """Keys and certificates of the running lab."""
        return self.state / "pki"

    @property
    def admin_kubeconfig(self) -> Path:
        """The kubeconfig with all rights in the lab's cluster, or the user's own."""
        return self.kubeconfig or self.state / "kubeconfig"

    @property
    def images(self) -> Path:
        """Folder in which the node's runtime keeps images. A containerd cannot read the folder of a later version."""
        return self.cache / ("containerd" if self.runtime == RUNTIME else self.runtime)

    @property
    def runtime_daemon(self) -> str:
        """Name of the node's container runtime as a daemon: `containerd` or `crio`."""
        return self.runtime.partition("-")[0]

    @property
    def runtime_agent(self) -> str:
        """First word of the User-Agent in the node's requests to registries."""
        return {"crio": "cri-o"}.get(self.runtime_daemon, self.runtime_daemon)

    @property
    def downloads(self) -> Path:
        """Folder to which the node's runtime downloads layers."""
        own = "io.containerd.content.v1.content/ingest" if self.runtime_daemon == "containerd" else "downloads"
        return self.images / own

    @property
    def runtime_socket(self) -> Path:
        """Socket of the node's container runtime."""
        return self.state / f"{self.runtime_daemon}.sock"

    @property
    def registry_address(self) -> str:
        """host:port of the registry, the same for the machine, the node and the pods."""
        return self.registry or f"{NODE_ADDRESS}:{REGISTRY_PORT}"


def _version(variable: str, usual: str, known: Collection[str]) -> str:
    """Read a version from the environment. Raises LabError: the lab does not have it."""
    found = os.environ.get(variable) or usual
    if found not in known:
        raise LabError(f"{variable} is {found!r}: the lab has {', '.join(known)}")
    return found


def _components() -> tuple[str, ...]:
    """Read K8SPILOT_LAB_COMPONENTS. Raises LabError: there is no such component."""
    names = tuple(os.environ.get("K8SPILOT_LAB_COMPONENTS", "").split())
    for name in names:
        if not (CHECKOUT / "components" / name / "kustomization.yaml").is_file():
            raise LabError(f"K8SPILOT_LAB_COMPONENTS names {name!r}, which is no folder of {CHECKOUT / 'components'}")
    return names
