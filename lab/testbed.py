"""Start and stop the lab: the order of the steps, and which of them run in parallel."""

import fcntl
import json
import os
import shutil
from collections.abc import Callable, Iterator
from concurrent.futures import FIRST_EXCEPTION, Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from lab import binaries, dra, images, machine, network, network_policies, node, pki, registry, shell, teardown
from lab.errors import LabError
from lab.gpu import node as gpus
from lab.images import Images
from lab.pool import Pool
from lab.processes import Daemons, strays
from lab.progress import Progress
from lab.settings import HERE, Settings

LOCK = Path("/run/k8spilot-lab.lock")


@dataclass(frozen=True)
class Facts:
    """Facts about a running lab, kept as JSON for its users."""

    kubeconfig: str
    registry: str
    image: str
    pool_image: str
    pool_host: str


def up(settings: Settings, progress: Progress) -> Facts:
    """Start the parts of the lab that do not run; repair those that have failed. Raises LabError."""
    with alone(settings, progress):
        facts = _up_elsewhere(settings, progress) if settings.kubeconfig else _up_here(settings, progress)
        target = facts_file(settings)
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(json.dumps(asdict(facts), indent=1) + "\n")
        return facts


def down(settings: Settings, progress: Progress) -> None:
    """End the lab, and remove everything but the cache. Raises LabError."""
    with alone(settings, progress):
        if settings.kubeconfig is not None:
            with progress.step("remove the lab's namespaces from the cluster"):
                Pool(settings, "").remove()
            facts_file(settings).unlink(missing_ok=True)
            return
        machine.check_root()
        with progress.step("end the lab"):
            teardown.clean(settings, Daemons(settings))


def facts_file(settings: Settings) -> Path:
    """Return the file with the facts of a running lab."""
    if settings.kubeconfig is None:
        return settings.state / "lab.json"
    name = images.digest_of([str(settings.kubeconfig.resolve())])
    return settings.cache / f"clusters/{name}.json"


def _up_elsewhere(settings: Settings, progress: Progress) -> Facts:
    """Use the cluster of KUBECONFIG: build no node."""
    if not Path(settings.admin_kubeconfig).is_file():
        raise LabError(f"KUBECONFIG names {settings.kubeconfig}, which is no file: unset it to have a node built here")
    if shutil.which(str(node.kubectl(settings)[0])) is None:
        raise LabError("KUBECONFIG is set, so the lab uses that cluster with `kubectl`, which is not on PATH")
    if settings.image is None and settings.registry is None:
        raise LabError(
            "KUBECONFIG is set: name the project's image for that cluster in IMAGE, "
            "or in REGISTRY a registry (host:port) that this machine can push it to"
        )
    image = pool_image = settings.image
    if settings.registry is not None and (image is None or os.geteuid() == 0):
        machine.check_root()
        machine.ensure_packages(settings, progress)
        builder = Images(settings, progress)
        builder.hello()
        builder.busybox()
        if image is None:
            pool_image, image = builder.htcondor(), builder.project()
    assert image is not None
    assert pool_image is not None
    pool = Pool(settings, pool_image)
    with progress.step(f"{_verb(settings)} the HTCondor pool"):
        pool.ensure()
    return Facts(str(settings.kubeconfig), settings.registry or "", image, pool_image, pool.collector)


def _up_here(settings: Settings, progress: Progress) -> Facts:
    machine.check(settings)
    daemons = Daemons(settings)
    if _is_broken(settings, daemons):
        with progress.step("clear away what an earlier lab left"):
            teardown.clean(settings, daemons)
    machine.check_ports(daemons)
    machine.ensure_packages(settings, progress)
    settings.state.mkdir(parents=True, exist_ok=True)
    settings.state.chmod(0o711)
    (settings.state / "recipe").write_text(_recipe(settings))
    network.ensure(settings)
    network_policies.stop(settings)
    registry.ensure(settings, daemons, progress)
    builder = Images(settings, progress)
    pause = builder.pause()
    with SideBySide() as together:
        ready = together.begin(lambda: _start_node(settings, daemons, progress, pause))
        pool_image = together.begin(builder.htcondor)

        def start_pool() -> str:
            ready.result()
            pool = Pool(settings, pool_image.result())
            with progress.step(f"{_verb(settings)} the HTCondor pool"):
                pool.ensure()
            return pool.collector

        def build_rest() -> str:
            builder.hello()
            builder.busybox()
            pool_image.result()  # the project's image begins with its layers
            return settings.image or builder.project()

        def add_gpus() -> None:
            ready.result()
            gpus.ensure(settings, daemons)
            for driver in (dra.NVIDIA, dra.EXAMPLE):
                dra.stop(settings, driver)  # of a run that was killed

        image = together.begin(build_rest)
        together.begin(add_gpus)
        collector = together.begin(start_pool)
    return Facts(
        str(settings.admin_kubeconfig),
        settings.registry_address,
        image.result(),
        pool_image.result(),
        collector.result(),
    )


def _start_node(settings: Settings, daemons: Daemons, progress: Progress, pause: str) -> None:
    folders = binaries.of_node(settings, progress)
    binaries.link(folders, settings.bin)
    pki.ensure(settings)
    with progress.step(f"{_verb(settings)} the node"):
        node.start(settings, daemons, pause)
        node.wait_ready(settings, daemons)


def _verb(settings: Settings) -> str:
    """Return the verb of a step's title: a part of a new lab is started, a part of a running lab only checked."""
    return "check" if facts_file(settings).exists() else "start"


def _is_broken(settings: Settings, daemons: Daemons) -> bool:
    """Return whether there are remains of a lab that cannot be repaired."""
    core_runs = [daemons.find(name) is not None for name in node.core(settings)]
    if all(core_runs):
        return _read(settings.state / "recipe") != _recipe(settings)
    return any(core_runs) or bool(daemons.known()) or any(True for _ in strays(settings)) or network.remains()


def _recipe(settings: Settings) -> str:
    """Return a digest of everything that determines the node. A node with another digest is rebuilt."""
    return images.digest_of(
        [module.key() for module in binaries.node_modules(settings)],
        [HERE / "config", HERE / "node.py", HERE / "settings.py", HERE / "images/pause"],
    )


def _read(path: Path) -> str:
    return path.read_text() if path.exists() else ""


@contextmanager
def alone(settings: Settings, progress: Progress) -> Iterator[None]:
    """Let one `up` or `down` at a time work; others wait for it to end."""
    if settings.kubeconfig is None:
        machine.check_root()
    lock = LOCK if settings.kubeconfig is None else settings.cache / "lock"
    lock.parent.mkdir(parents=True, exist_ok=True)
    with lock.open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            with progress.step("wait for another `lab up` or `lab down` to end", remember=False):
                fcntl.flock(file, fcntl.LOCK_EX)
        yield


class SideBySide:
    """Tasks in threads of their own; when one fails, the others' programs are ended and its error is raised."""

    def __init__(self) -> None:
        self._threads = ThreadPoolExecutor(max_workers=16)  # more than tasks: they wait for each other
        self._begun: list[Future[Any]] = []

    def begin[T](self, task: Callable[[], T]) -> "Future[T]":
        """Start `task`; other tasks may wait for its result()."""
        future = self._threads.submit(task)
        self._begun.append(future)
        return future

    def __enter__(self) -> Self:
        """Begin."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, problem: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Wait for all tasks; raise the error of the one that failed first."""
        try:
            ended, _ = wait(self._begun, return_when=FIRST_EXCEPTION)
        except BaseException:
            shell.cancel()
            raise
        failed = [future for future in ended if future.exception() is not None]
        if failed or problem is not None:
            shell.cancel()
        self._threads.shutdown(wait=True)
        if failed and problem is None:
            failed[0].result()
