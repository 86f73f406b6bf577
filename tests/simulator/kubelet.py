"""The kubelet's dealings with the payload container.

What it does, as on a real node (Kubernetes 1.36), and what of it is a trap:

- A changed image: the running container gets SIGTERM, SIGKILL at the end of the pod's grace period; the next one
  starts at once. The status follows a moment later, and until then shows the container before.
- One change a sync: the next waits for the relist, which also is when an exit is noticed. A resize demands one.
- An image that cannot be pulled: the old container is gone; waiting with ErrImagePull in the runtime's words, then
  ImagePullBackOff; a change to a good image is taken at once.
- A reference that a container ran before (image changes count as restarts): CrashLoopBackOff for long.
"""

import asyncio
import contextlib
import logging
import sys
from collections import Counter
from collections.abc import Callable
from typing import Any, Final

from k8spilot.model.quantity import quantity
from k8spilot.settings import SlotSettings
from tests.simulator.api_server import ApiServer, Pod
from tests.simulator.container import LocalContainer, now
from tests.simulator.images import LocalImage
from tests.simulator.node import Failure, Node
from tests.simulator.pod import payload_bind, payload_image, payload_resources, payload_status

logger = logging.getLogger(__name__)

COMMAND: Final = ("/k8spilot/bin/payload-init", "/k8spilot/payload.sock")
_PATH: Final = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


class Kubelet:
    """Runs a payload container of the pod in `server`. Tests may look at what it did."""

    def __init__(self, server: ApiServer, node: Node, slot: SlotSettings) -> None:
        self._server = server
        self._node = node
        self._timing = node.timing
        self._slot = slot
        self._wake = asyncio.Event()
        self._tasks: set[asyncio.Task[Any]] = set()
        self._starts: Counter[str] = Counter()
        self._changed_to = ""
        """The reference of the last change of image; an ended container of it is restarted."""
        self._failing = ""
        """The reference that cannot be pulled, while that is so."""
        self.container: LocalContainer | None = None
        self.ended: LocalContainer | None = None
        """The container before it."""
        self.restarts = -1
        self.back_offs = 0
        """Number of times that a container had to wait in CrashLoopBackOff."""
        self.starts: list[str] = []
        """References of all containers started, in order."""
        self._failures: dict[str, Failure] = {}
        self.failed_pulls = 0
        self._held: dict[str, asyncio.Event] = {}
        self._resources: dict[str, Any] = {}
        """Resources of the running container."""
        node.kubelets.append(self)
        self.lags = False
        """Whether the kubelet acts on images only: it has not seen the last changes of the pod's resources."""
        self.resizes = True
        """Whether the kubelet resizes containers; otherwise the pod's condition says that it defers the change."""
        self.runtime = "containerd"
        """Prefix of the ids of containers."""
        self.late_syncs = 0
        """Relists on demand that a sync of the pod as it was before takes, so that the change waits for another."""
        self._resized = asyncio.Event()
        self._awake = asyncio.Event()
        self._awake.set()

    async def run(self) -> None:
        """Be the kubelet until cancelled."""
        watch = self._spawn(self._watch_spec())
        self._spawn(self._watch_size())
        try:
            while True:
                await self._awake.wait()
                async with self._node.turn:
                    is_changed = await self._sync()
                if is_changed:
                    await self._relist()
                    continue
                await self._wake.wait()
                await self._awake.wait()
                self._wake.clear()
        finally:
            watch.cancel()
            for task in self._tasks:
                task.cancel()
            if self.container is not None:
                await self.container.kill()

    def fail_pulls(
        self, repository: str, words: str, *, reason: str = "ErrImagePull", times: int = sys.maxsize
    ) -> None:
        """Let pulls from `repository` fail `times` times in the runtime's `words`, though the registry has it."""
        self._failures[repository] = Failure(words, reason, times)

    def hold(self, repository: str) -> asyncio.Event:
        """Let pulls from `repository` take until the event is set; the kubelet does nothing else for the pod then."""
        return self._held.setdefault(repository, asyncio.Event())

    def stand_still(self) -> None:
        """Begin nothing, until `go_on`: a kubelet that is stopped, or on a node that has far too much to do."""
        self._awake.clear()

    def go_on(self) -> None:
        """Do what is to be done by now."""
        self._awake.set()

    def _wanted(self, pod: Pod) -> str:
        return payload_image(pod, self._slot.container)

    async def _watch_spec(self) -> None:
        seen = [""]
        while True:
            pod = await self._server.until(lambda pod: self._wanted(pod) != seen[-1], seconds=1e9)
            seen.append(self._wanted(pod))
            self._wake.set()

    async def _relist(self) -> None:
        """Wait for the next look at the containers: a resize demands one."""
        self._resized.clear()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self._timing.relist):
                await self._resized.wait()
                while self.late_syncs:
                    self.late_syncs -= 1
                    self._resized.clear()
                    await self._resized.wait()

    async def _watch_size(self) -> None:
        seen = [payload_resources(self._server.pod, self._slot.container)]
        while True:
            pod = await self._server.until(
                lambda pod: payload_resources(pod, self._slot.container) != seen[-1], seconds=1e9
            )
            seen.append(payload_resources(pod, self._slot.container))
            self._resized.set()
            self._later(self._timing.status, self.show_size if self.resizes else self._show_deferred)

    @property
    def is_larger(self) -> bool:
        """Whether the running container has more memory than the spec asks for."""
        if self.container is None or not self.container.running or not self._resources:
            return False
        wanted = payload_resources(self._server.pod, self._slot.container)
        return quantity(self._resources["limits"]["memory"]) > quantity(wanted["limits"]["memory"])

    def show_size(self) -> None:
        """Give the running container the resources in the spec, and show that.

        No container gets less memory before its use was measured, which is long after its start, and until then no
        container of the pod is resized.
        """
        if self.lags:
            return
        if any(one.is_larger for one in self._node.kubelets):
            self._show(lambda status: None)  # the kubelet has seen the change: the pod's observedGeneration
            return
        if self.container is not None and self.container.running:
            resources = self._resources = payload_resources(self._server.pod, self._slot.container)
            self._show(lambda status: status.update(resources=resources))

    def _show_deferred(self) -> None:
        words = "Node didn't have enough resource: cpu, requested: 4000, used: 1000, capacity: 4000"
        condition = {"type": "PodResizePending", "status": "True", "reason": "Deferred", "message": words}
        self._spawn(self._server.update(lambda pod: pod["status"].update(conditions=[condition])))

    async def _sync(self) -> bool:
        """Bring the container to what the spec asks for; whether anything was done."""
        if self._server.deleted:
            return False
        pod = self._server.pod
        wanted = self._wanted(pod)
        running = self.container is not None and self.container.running
        if running and self.container is not None and self.container.image == wanted:
            return False
        if self.container is not None:
            await self.container.stop(self._timing.grace)
            ended = self.ended = self.container
            self.container = None
            if not running:  # by itself: the relist has seen it before its task did
                self._show(lambda status: self._show_ended(status, ended))
        for repository, pulled in self._held.items():
            if wanted.startswith(repository):
                self._node.quiet.clear()
                await pulled.wait()
                self._node.quiet.set()
        image = self._node.images.find(wanted)
        failure = self._pull_error(wanted, image)
        if image is None or failure is not None:
            self._refuse(wanted, failure or Failure("not found", "ErrImagePull", 1))
            return False
        self._failing = ""
        if self._is_backing_off(wanted):
            self._wait(wanted, "CrashLoopBackOff", f"back-off restarting failed container {self._slot.container}")
            return False
        await self._start(wanted, image, payload_bind(pod, self._slot.bind_annotation))
        return True

    def _is_backing_off(self, wanted: str) -> bool:
        """Whether `wanted` has to wait. A container that ended by itself is restarted at once, the first time."""
        allowed = 2 if self._changed_to == wanted else 1
        if self._starts[wanted] < allowed:
            self._changed_to = wanted
            return False
        if self._changed_to != f"{wanted} waits":
            self.back_offs += 1
            logger.warning("CrashLoopBackOff: %s was used before.", wanted)
            self._changed_to = f"{wanted} waits"
            self._later(self._timing.back_off, lambda: self._forgive(wanted))
        return True

    def _forgive(self, wanted: str) -> None:
        self._starts[wanted] = 0
        self._wake.set()

    async def _start(self, wanted: str, image: LocalImage, bind: str) -> None:
        lagging = self.lags and self._resources
        resources = self._resources if lagging else payload_resources(self._server.pod, self._slot.container)
        container = await LocalContainer.start(
            self._node.programs,
            self._node.folder,
            uid=self._slot.uid,
            groups=image.groups,
            image=wanted,
            image_id=f"{image.repository}@{image.digest}",
            runtime=self.runtime,
            # The volumes first: mounts of an image can be below /tmp.
            mounts=[*self._node.volumes.mounts(self._slot.sub_path), *image.mounts],
            environment={
                "PATH": _PATH,
                "HOME": "/",
                "HOSTNAME": "pilot",
                "KUBERNETES_SERVICE_HOST": "10.96.0.1",
                "KUBERNETES_SERVICE_PORT": "443",
                **image.environment,
                "K8SPILOT_BIND": bind,
            },
            command=COMMAND,
        )
        self.container = container
        self._resources = resources
        self._starts[wanted] += 1
        self.starts.append(wanted)
        self.restarts += 1
        self._spawn(self._see_end(container))
        self._later(self._timing.status, self._show_running)

    async def _see_end(self, container: LocalContainer) -> None:
        await container.process.wait()
        await asyncio.sleep(self._timing.relist)
        if self.container is container:
            self.ended = container
            self._show(lambda status: self._show_ended(status, container))
            self._wake.set()

    # --- status ---

    def _show_running(self) -> None:
        container = self.container
        if container is None or not container.running:
            return

        def change(status: dict[str, Any]) -> None:
            status |= {
                "image": container.image,
                "imageID": container.image_id,
                "containerID": container.identifier,
                "restartCount": self.restarts,
                "ready": True,
                "state": {"running": {"startedAt": container.started}},
            }
            status["resources"] = self._resources
            if self.ended is not None:
                status["lastState"] = {"terminated": self.ended.terminated}

        self._show(change)
        for one in self._node.kubelets:
            if one.resizes:
                one.show_size()

    def _show_ended(self, status: dict[str, Any], container: LocalContainer) -> None:
        if status.get("containerID") == container.identifier:
            status["state"] = {"terminated": container.terminated}
            status["ready"] = False

    def _wait(self, wanted: str, reason: str, message: str) -> None:
        def change(status: dict[str, Any]) -> None:
            status["image"] = wanted
            status["ready"] = False
            status["state"] = {"waiting": {"reason": reason, "message": message}}
            if self.ended is not None:
                status["lastState"] = {"terminated": self.ended.terminated}

        self._show(change)

    def _pull_error(self, wanted: str, image: LocalImage | None) -> Failure | None:
        for repository, failure in self._failures.items():
            if wanted.startswith(repository) and failure.left > 0:
                failure.left -= 1
                return failure
        if image is None:
            words = f'rpc error: code = NotFound desc = failed to pull and unpack image "{wanted}": {wanted}: not found'
            return Failure(words, "ErrImagePull", 1)
        return None

    def _refuse(self, wanted: str, failure: Failure) -> None:
        self.failed_pulls += 1
        again = self._failing == wanted and failure.reason == "ErrImagePull"
        self._failing = wanted
        reason = "ImagePullBackOff" if again else failure.reason
        message = f'Back-off pulling image "{wanted}": ErrImagePull: {failure.words}' if again else failure.words

        def show() -> None:
            if self._wanted(self._server.pod) == wanted:
                self._wait(wanted, reason, message)

        self._later(self._timing.pull_error, show)
        self._later(self._timing.pull_again, self._wake.set)

    def _show(self, change: Callable[[dict[str, Any]], None]) -> None:
        def update(pod: Pod) -> None:
            change(payload_status(pod, self._slot.container))
            pod["status"]["lastSeen"] = now()
            if not self.lags:
                pod["status"]["observedGeneration"] = pod["metadata"].get("generation", 1)

        async def publish() -> None:
            await self._node.quiet.wait()
            await self._server.update(update)

        self._spawn(publish())

    # --- tasks ---

    def _later(self, seconds: float, action: Callable[[], None]) -> None:
        async def act() -> None:
            await asyncio.sleep(seconds)
            action()

        self._spawn(act())

    def _spawn(self, work: Any) -> asyncio.Task[Any]:
        task = asyncio.create_task(work)
        self._tasks.add(task)

        def done(task: asyncio.Task[Any]) -> None:
            self._tasks.discard(task)
            if not task.cancelled():
                with contextlib.suppress(AssertionError):  # the pod has been deleted
                    task.result()

        task.add_done_callback(done)
        return task
