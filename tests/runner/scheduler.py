"""A scheduler for pytest-xdist that gives groups of tests to workers by what they need.

- Groups that need nothing compute: as many run at a time as there are cores while the lab comes up, then one.
- Groups that need the lab wait for jobs more than they compute: all other workers run these.
- Groups that need the node alone run last, on the only worker that is left.

A worker of pytest-xdist begins a test when it knows the next one or that there is none (module fixtures depend on
it), so a worker always has two tests before it, and the last one before the node is quiet is held back by that.
"""

import os
from collections.abc import Callable, Mapping, Sequence
from typing import Final

import pytest
from xdist.report import report_collection_diff
from xdist.workermanage import WorkerController

from tests.runner.groups import Facts, Group, Need, form

AHEAD: Final = 2
"""Tests that a worker has before it at least, the one that runs included."""


class Scheduler:
    """Implements xdist.scheduler.protocol.Scheduling."""

    def __init__(
        self, workers: int, read_facts: Callable[[], Mapping[str, Facts]], seconds: Mapping[str, float]
    ) -> None:
        """`seconds` are what tests took in an earlier session, by their ids."""
        self.numnodes = workers
        self._read_facts = read_facts
        self._facts: Mapping[str, Facts] = {}
        self._seconds = seconds
        self._collections: dict[WorkerController, list[str]] = {}
        self._collection: list[str] | None = None
        self._waiting: dict[Need, list[Group]] = {"nothing": [], "lab": [], "node alone": []}
        self._before: dict[WorkerController, list[int]] = {}
        """What each worker was given and has not completed, in order."""
        self._lab_is_up = False

    # --- what xdist asks ---

    @property
    def nodes(self) -> list[WorkerController]:
        """The workers that are there."""
        return list(self._before)

    @property
    def collection_is_completed(self) -> bool:
        """Whether all workers have said what they collected."""
        return len(self._collections) >= self.numnodes

    @property
    def tests_finished(self) -> bool:
        """Whether nothing is left to be given."""
        # While the last tests wait for a quiet node, workers are there that have their last test before them.
        return self._collection is not None and not self._left and all(map(_ends, self._before))

    @property
    def has_pending(self) -> bool:
        """Whether tests are left that have not been completed."""
        return self._left or any(self._before.values())

    @property
    def _left(self) -> bool:
        return any(self._waiting.values())

    def add_node(self, node: WorkerController) -> None:
        """A worker is there."""
        self._before[node] = []

    def add_node_collection(self, node: WorkerController, collection: Sequence[str]) -> None:
        """A worker has collected."""
        if self._collection is not None and list(collection) != self._collection:  # it replaces one that crashed
            node.shutdown()
            return
        self._collections[node] = list(collection)

    def schedule(self) -> None:
        """Begin, or go on with a new worker in the place of one that crashed."""
        if self._collection is None:
            first, *others = self._collections.items()
            for node, collection in others:
                if words := report_collection_diff(first[1], collection, first[0].gateway.id, node.gateway.id):
                    raise pytest.UsageError(words)
            self._collection = first[1]
            self._facts = self._read_facts()
            for group in form(self._collection, self._facts, self._seconds):
                self._waiting[group.need].append(group)
        for node in self.nodes:
            self._feed(node)

    def mark_test_complete(self, node: WorkerController, item_index: int, duration: float = 0) -> None:
        """A worker has completed a test."""
        del duration
        self._before[node].remove(item_index)
        if self._need(item_index) == "lab" and not self._lab_is_up:
            self._lab_is_up = True
            for one in self.nodes:
                self._feed(one)
        self._feed(node)

    def mark_test_pending(self, item: str) -> None:
        """Run a test again: no plugin of ours asks for it."""
        raise NotImplementedError(item)

    def remove_pending_tests_from_node(self, node: WorkerController, indices: Sequence[int]) -> None:
        """Nothing is ever stolen from a worker."""
        raise NotImplementedError(node, indices)

    def remove_node(self, node: WorkerController) -> str | None:
        """A worker is gone; return the test that it ran, if it crashed. Its other tests go to others."""
        left = self._before.pop(node)
        self._collections.pop(node, None)
        self.numnodes = min(self.numnodes, len(self._collections))
        crashed = left.pop(0) if left else None
        for index in left:
            one = self._facts[self._test(index)]
            waiting = self._waiting[one.need]
            if not waiting or waiting[0].name != one.group:
                waiting.insert(0, Group(one.group, one.need))
            waiting[0].indices.append(index)
        for other in self.nodes:
            self._feed(other)
        return None if crashed is None else self._test(crashed)

    # --- who gets what ---

    def _test(self, index: int) -> str:
        assert self._collection is not None
        return self._collection[index]

    def _need(self, index: int) -> Need:
        return self._facts[self._test(index)].need

    def _feed(self, node: WorkerController) -> None:
        """Give a worker groups until it has enough before it, or its end."""
        if node.shutting_down or node not in self._collections or self._collection is None:
            return
        while len(self._before[node]) < AHEAD:
            if (group := self._choose(node)) is None:
                self._end(node)
                return
            self._give(node, group.indices)

    def _give(self, node: WorkerController, indices: list[int]) -> None:
        self._before[node] += indices
        node.send_runtest_some(indices)

    def _choose(self, node: WorkerController) -> Group | None:
        """The next group for a worker; None if there is none but those that need the node alone."""
        computing, with_lab = self._waiting["nothing"], self._waiting["lab"]
        others = [one for one, before in self._before.items() if one is not node and before]
        compute = sum(any(self._need(index) == "nothing" for index in self._before[one]) for one in others)
        if not self._lab_is_up and with_lab:
            # One worker waits for the lab; the others compute meanwhile.
            somebody_waits = any(self._need(index) == "lab" for one in others for index in self._before[one])
            order = [computing, with_lab] if somebody_waits else [with_lab, computing]
        else:
            most = 1 if with_lab else os.cpu_count() or 1
            order = [computing, with_lab] if compute < most else [with_lab, computing]
        return next((waiting.pop(0) for waiting in order if waiting), None)

    def _end(self, node: WorkerController) -> None:
        """No group is left for this worker but, if it is the last one, those that need the node alone."""
        alone = self._waiting["node alone"]
        staying = [one for one in self.nodes if not one.shutting_down]
        if not alone or len(staying) > 1:
            node.shutdown()
            return
        if not self._before[node] or self._need(self._before[node][-1]) != "node alone":
            first, rest = alone[0].indices[0], alone[0].indices[1:]
            alone[0].indices = rest
            self._give(node, [first])  # its last test before it can begin; this one begins when it has the next
        if len(self._before) == 1:  # all others have ended, and what they had is deleted
            self._give(node, [index for group in alone for index in group.indices])
            alone.clear()
            node.shutdown()


def _ends(node: WorkerController) -> bool:
    return bool(node.shutting_down)
