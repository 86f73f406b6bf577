"""The Lease: of several provisioners in a namespace, one is at work."""

import asyncio
import logging
from typing import Final

import aiohttp
from kubernetes.aio.client import V1Lease, V1ObjectMeta
from kubernetes.aio.leaderelection.electionconfig import Config
from kubernetes.aio.leaderelection.leaderelection import LeaderElection
from kubernetes.aio.leaderelection.leaderelectionrecord import LeaderElectionRecord
from kubernetes.aio.leaderelection.resourcelock.leaselock import LeaseLock

from k8spilot.common.errors import ClusterError
from k8spilot.provisioner.cluster import Cluster

logger = logging.getLogger(__name__)

LEASE: Final = "k8spilot-provisioner"
_DURATION, _DEADLINE, _RETRY = 15, 10, 2
"""Seconds, as of Kubernetes' own controllers (k8s.io/component-base, leaderelection defaults)."""
_RELEASE_SECONDS: Final = 5.0

# The library logs each failed request with a traceback, and tries again.
logging.getLogger("kubernetes.aio.leaderelection.resourcelock.leaselock").setLevel(logging.CRITICAL)
logging.getLogger("kubernetes.aio.leaderelection.leaderelection").setLevel(logging.CRITICAL)


class _Lease(LeaseLock):  # type: ignore[misc]  # the client's types are not followed
    """The library's lock. Its own way to create the object fails by its client's validation (kubernetes 37.0)."""

    def __init__(self, cluster: Cluster, identity: str) -> None:
        super().__init__(LEASE, cluster.namespace, identity, cluster.api)
        self._cluster = cluster

    async def create(self, name: str, namespace: str, election_record: LeaderElectionRecord) -> bool:
        """Create the object; return whether that was possible."""
        lease = V1Lease(
            api_version="coordination.k8s.io/v1",
            kind="Lease",
            metadata=V1ObjectMeta(name=name),
            spec=self.update_lease(election_record),
        )
        try:
            await self._cluster.request(
                "POST", self._cluster.path("leases"), body=self._cluster.api.sanitize_for_serialization(lease)
            )
        except ClusterError as error:
            logger.warning("The Lease %s cannot be created: %s.", name, error)
            return False
        return True


class Leadership:
    """Whether this process holds the Lease."""

    def __init__(self, cluster: Cluster, identity: str) -> None:
        """`identity` is the pod's name: a container that starts again in place goes on at once."""
        self._cluster = cluster
        self._identity = identity
        self.is_held = False
        self.changed = asyncio.Event()

    async def run(self) -> None:
        """Try to get and to keep the Lease, until cancelled."""
        lock = _Lease(self._cluster, self._identity)
        while True:
            election = LeaderElection(Config(lock, _DURATION, _DEADLINE, _RETRY, self._lead, self._stop))
            try:
                await election.run()
            except (aiohttp.ClientError, OSError) as error:
                logger.warning("The Lease %s cannot be renewed: %s.", LEASE, error)
            except Exception:
                self._set(held=False)
                raise
            self._set(held=False)
            await asyncio.sleep(_RETRY)

    async def release(self) -> None:
        """Give the Lease back, so that the next provisioner does not wait until it expires."""
        if not self.is_held:
            return
        path = self._cluster.path("leases", LEASE)
        try:
            async with asyncio.timeout(_RELEASE_SECONDS):
                await self._cluster.request("PATCH", path, body={"spec": {"holderIdentity": None}})
        except (ClusterError, TimeoutError) as error:
            logger.warning("The Lease %s is not given back: %s.", LEASE, error)
        self._set(held=False)

    async def _lead(self) -> None:
        self._set(held=True)

    async def _stop(self) -> None:
        self._set(held=False)

    def _set(self, *, held: bool) -> None:
        if held != self.is_held:
            logger.info("This provisioner %s the Lease %s.", "holds" if held else "does not hold", LEASE)
        self.is_held = held
        self.changed.set()
