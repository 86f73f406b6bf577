"""The pool: idle jobs, HTCondor's negotiation, claims, and the end of pilots without jobs."""

from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from bench.provisioning.clock import Clock
from bench.provisioning.demand import Job, Size
from bench.provisioning.pods import Phase, Pod

CYCLE_SECONDS = 20.0
"""Time from one negotiation to the next."""
MATCH_SECONDS = 2.0
"""Time from a match to the job's start."""
REUSE_SECONDS = 1.0
"""Time from the end of a job to the start of the next one in the same claim."""

Key = tuple[str, Size]
"""User and size of jobs. A claim continues with the next job of the same key."""


@dataclass(frozen=True, slots=True)
class Life:
    """Lifetime of pilots."""

    idle_seconds: float
    """Time without a job, after which it ends."""
    seconds: float
    """Time for which it takes jobs."""


class Pool:
    """Idle jobs and the pilots that run them."""

    def __init__(self, clock: Clock, life: Life, end: Callable[[Pod], None]) -> None:
        """Make an empty pool; `end` is called with each pod whose pilot ends."""
        self._clock = clock
        self._life = life
        self._end = end
        self._queues: dict[Key, deque[Job]] = {}
        self._pods: dict[Pod, None] = {}
        self._pods_of: dict[Job, Pod] = {}
        """Pods of the jobs that have begun."""
        self._claims_of: dict[str, int] = {}
        self.running = 0
        """Jobs that are matched or run."""

    @property
    def idle(self) -> dict[Key, int]:
        """Return the numbers of idle jobs."""
        return {key: len(queue) for key, queue in self._queues.items() if queue}

    def submit(self, job: Job) -> None:
        """Take an idle job."""
        self._queues.setdefault((job.user, job.size), deque()).append(job)

    def remove(self, job: Job) -> None:
        """Remove a job, unless it has ended."""
        if job.is_over:
            return
        job.removed = self._clock.now
        if job in self._pods_of:
            self._finish(job, self._pods_of[job])
        else:
            self._queues[job.user, job.size].remove(job)

    def join(self, pod: Pod) -> None:
        """Take a pilot."""
        pod.phase, pod.joined, pod.free, pod.changed = Phase.IN_POOL, self._clock.now, pod.shape.size, self._clock.now
        self._pods[pod] = None
        self._watch_idle(pod)
        self._clock.at(pod.started + self._life.seconds, lambda: self._retire(pod))

    def negotiate(self) -> None:
        """Match idle jobs with free slots. Users take turns, the one with the fewest claims first."""
        users = sorted({user for user, _ in self.idle}, key=lambda user: (self._claims_of.get(user, 0), user))
        free = sorted((pod for pod in self._pods if pod.free.cpus), key=lambda pod: (pod.free.cpus, pod.number))
        turns = deque((user, deque(self._keys(user))) for user in users)
        while turns and free:
            user, keys = turns.popleft()
            while keys and not self._match(keys[0], free):
                keys.popleft()
            if keys:
                turns.append((user, keys))

    def _keys(self, user: str) -> Iterator[Key]:
        """Yield the keys of a user's idle jobs, that of the oldest job first."""
        queues = [(queue[0].number, key) for key, queue in self._queues.items() if key[0] == user and queue]
        yield from (key for _, key in sorted(queues, key=lambda pair: pair[0]))

    def _match(self, key: Key, free: list[Pod]) -> bool:
        if not self._queues[key]:
            return False
        pod = next((pod for pod in free if pod.accepts(key[1])), None)
        if pod is None:
            return False
        if not pod.claims:
            pod.changed = self._clock.now
        pod.claims += 1
        pod.free = Size(pod.free.cpus - key[1].cpus, pod.free.memory - key[1].memory)
        if not pod.free.cpus:
            free.remove(pod)
        self._claims_of[key[0]] = self._claims_of.get(key[0], 0) + 1
        self._begin(self._queues[key].popleft(), pod, MATCH_SECONDS)
        return True

    def _begin(self, job: Job, pod: Pod, after: float) -> None:
        self.running += 1
        job.began = self._clock.now + after
        self._pods_of[job] = pod
        pod.jobs += 1
        pod.running[job] = self._clock.now
        self._clock.at(job.began + job.seconds, lambda: self._complete(job, pod))

    def _complete(self, job: Job, pod: Pod) -> None:
        if not job.is_over:
            job.ended = self._clock.now
            self._finish(job, pod)

    def _finish(self, job: Job, pod: Pod) -> None:
        """End a job, and start the next one of its claim, if there is one."""
        self.running -= 1
        pod.ends.append((self._clock.now, self._clock.now - pod.running.pop(job)))
        pod.worked += max(self._clock.now - (job.began or 0), 0) * job.size.cpus
        queue = self._queues[job.user, job.size]
        if queue and not pod.is_retiring:
            self._begin(queue.popleft(), pod, REUSE_SECONDS)
        else:
            self._release(pod, job)

    def _release(self, pod: Pod, job: Job) -> None:
        now = self._clock.now
        pod.claims -= 1
        pod.free = Size(pod.free.cpus + job.size.cpus, pod.free.memory + job.size.memory)
        self._claims_of[job.user] -= 1
        if not pod.claims:
            pod.busy += now - pod.changed
            pod.changed = now
            if pod.is_retiring:
                self._leave(pod)
            else:
                self._watch_idle(pod)

    def _watch_idle(self, pod: Pod) -> None:
        since = pod.changed
        self._clock.at(since + self._life.idle_seconds, lambda: self._end_idle(pod, since))

    def _end_idle(self, pod: Pod, since: float) -> None:
        if pod.phase is Phase.IN_POOL and not pod.claims and pod.changed == since:
            self._leave(pod)

    def _retire(self, pod: Pod) -> None:
        if pod.phase is Phase.IN_POOL:
            pod.is_retiring = True
            if not pod.claims:
                self._leave(pod)

    def _leave(self, pod: Pod) -> None:
        del self._pods[pod]
        self._end(pod)
