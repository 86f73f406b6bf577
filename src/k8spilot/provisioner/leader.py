"""The Lease: of several provisioners in a namespace, one is at work."""

import asyncio
import logging
import math
import time
from collections.abc import Callable
from typing import Any, Final

import aiohttp
from kubernetes.aio.client import V1Lease, V1ObjectMeta
from kubernetes.aio.leaderelection.electionconfig import Config
from kubernetes.aio.leaderelection.leaderelection import LeaderElection
from kubernetes.aio.leaderelection.leaderelectionrecord import LeaderElectionRecord
from kubernetes.aio.leaderelection.resourcelock.leaselock import LeaseLock

from k8spilot.common.errors import ClusterError
from k8spilot.provisioner.cluster import NamespaceClient

logger = logging.getLogger(__name__)

LEASE: Final = "k8spilot-provisioner"
_DURATION, _DEADLINE, _RETRY = 15, 10, 2
"""Seconds, as of Kubernetes' own controllers (k8s.io/component-base, leaderelection defaults)."""
_REQUEST_SECONDS: Final = 5.0
"""Limit of a request: the library has none."""

# The library logs each failed request with a traceback, and tries again.
logging.getLogger("kubernetes.aio.leaderelection.resourcelock.leaselock").setLevel(logging.CRITICAL)
logging.getLogger("kubernetes.aio.leaderelection.leaderelection").setLevel(logging.CRITICAL)


class _Lease(LeaseLock):  # type: ignore[misc]  # the client's types are not followed
    """The library's lock. Its own way to create the object fails by its client's validation (kubernetes 37.0)."""

    def __init__(
        self, cluster: NamespaceClient, identity: str, renewed: Callable[[float], None], seen: Callable[[str], None]
    ) -> None:
        """Initialize without I/O.

        Args:
            cluster: the cluster.
            identity: whoever asks for the Lease.
            renewed: called after each change of the Lease, with the time of its request (time.monotonic).
            seen: called with the holder of the Lease after each read of it.
        """
        super().__init__(LEASE, cluster.namespace, identity, cluster.api)
        self._cluster = cluster
        self._renewed = renewed
        self._seen = seen

    async def get(self, name: str, namespace: str) -> tuple[bool, Any]:
        """Return whether the object exists, and its record or the error. Raises TimeoutError."""
        try:
            async with asyncio.timeout(_REQUEST_SECONDS):
                found: tuple[bool, Any] = await super().get(name, namespace)
        except TimeoutError:
            raise TimeoutError(f"the API server did not answer within {_REQUEST_SECONDS:.0f} s") from None
        if found[0]:
            self._seen(found[1].holder_identity or "")
        return found

    async def update(self, name: str, namespace: str, updated_record: LeaderElectionRecord) -> bool:
        """Renew or take over the Lease; return whether that was possible."""
        began = time.monotonic()
        try:
            async with asyncio.timeout(_REQUEST_SECONDS):
                is_renewed = bool(await super().update(name, namespace, updated_record))
        except TimeoutError:
            return False
        if is_renewed:
            self._renewed(began)
        return is_renewed

    async def create(self, name: str, namespace: str, election_record: LeaderElectionRecord) -> bool:
        """Create the object; return whether that was possible."""
        lease = V1Lease(
            api_version="coordination.k8s.io/v1",
            kind="Lease",
            metadata=V1ObjectMeta(name=name),
            spec=self.update_lease(election_record),
        )
        began = time.monotonic()
        try:
            await self._cluster.request(
                "POST", self._cluster.path("leases"), body=self._cluster.api.sanitize_for_serialization(lease)
            )
        except ClusterError as error:
            logger.warning("The Lease %s cannot be created: %s.", name, error)
            return False
        self._renewed(began)
        return True


class Leadership:
    """Whether this process holds the Lease."""

    def __init__(self, cluster: NamespaceClient, identity: str) -> None:
        """`identity` is the pod's name: a container that starts again in place goes on at once."""
        self._cluster = cluster
        self._identity = identity
        self._renewed = -math.inf
        """Time of the last request that renewed the Lease (time.monotonic)."""
        self.is_elsewhere = False
        """Whether another process had the Lease when it was read last."""
        self.acquired = asyncio.Event()
        """Set when the Lease was held for the first time."""

    @property
    def is_held(self) -> bool:
        """Whether the Lease is held. A process that was stopped for a while, or gets no answers, finds it expired."""
        return time.monotonic() - self._renewed < _DURATION

    async def run(self) -> None:
        """Try to get and to keep the Lease, until cancelled."""
        lock = _Lease(self._cluster, self._identity, self._renew, self._see)
        while True:
            configuration = Config(
                lock,
                lease_duration=_DURATION,
                renew_deadline=_DEADLINE,
                retry_period=_RETRY,
                onstarted_leading=self._lead,
                onstopped_leading=self._stop,
            )
            election = LeaderElection(configuration)
            try:
                await election.run()
            except (aiohttp.ClientError, OSError) as error:
                logger.warning("The Lease %s cannot be renewed: %s.", LEASE, error)
            await asyncio.sleep(_RETRY)

    async def release(self) -> None:
        """Give the Lease back, so that the next provisioner does not wait until it expires."""
        if not self.is_held:
            return
        path = self._cluster.path("leases", LEASE)
        try:
            async with asyncio.timeout(_REQUEST_SECONDS):
                await self._cluster.request("PATCH", path, body={"spec": {"holderIdentity": None}})
        except (ClusterError, TimeoutError) as error:
            logger.warning("The Lease %s is not given back: %s.", LEASE, error)
        await self._stop()

    def _renew(self, when: float) -> None:
        self._renewed = when

    def _see(self, holder: str) -> None:
        self.is_elsewhere = holder not in ("", self._identity)
        if self.is_elsewhere:
            self._renewed = -math.inf

    async def _lead(self) -> None:
        logger.info("This provisioner holds the Lease %s.", LEASE)
        self.acquired.set()

    async def _stop(self) -> None:
        logger.info("This provisioner does not hold the Lease %s any more.", LEASE)
        self._renewed = -math.inf
