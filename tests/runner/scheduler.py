"""A scheduler for pytest-xdist that gives groups of tests to workers by what they need.

- Groups that need nothing compute. They run while the lab comes up, and beside those that need the node alone; what
  takes longer than these runs on one worker before.
- Groups that need the lab wait for jobs more than they compute: all other workers run these.
- Groups that need the node alone run last, one after another on one worker, once no other worker has a test before it
  that needs the lab, or a fixture that it keeps until its end.

A worker of pytest-xdist begins a test when it knows the next one or that there is none (module fixtures depend on
it), so a worker always has two tests before it, and the first one that needs the node alone is held back by that.
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
        """Tests that each worker was given and has not completed, in order."""
        self._lab_is_up = False
        self._keepers: set[WorkerController] = set()
        """Workers that keep something of the lab's until they end."""
        self._alone: WorkerController | None = None
        """The worker that runs what needs the node alone."""

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
        if self._alone is not None and self._alone is not node:
            self._feed(self._alone)

    def mark_test_pending(self, item: str) -> None:
        """Run a test again: no plugin of ours asks for it."""
        raise NotImplementedError(item)

    def remove_pending_tests_from_node(self, node: WorkerController, indices: Sequence[int]) -> None:
        """Nothing is ever stolen from a worker."""
        raise NotImplementedError(node, indices)

    def remove_node(self, node: WorkerController) -> str | None:
        """A worker is gone; return the test that it ran, if it crashed. Its other tests go to others."""
        left = self._before.pop(node)
        self._keepers.discard(node)
        self._alone = None if node is self._alone else self._alone
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
        if any(self._facts[self._test(index)].keeps for index in indices):
            self._keepers.add(node)
        node.send_runtest_some(indices)

    def _choose(self, node: WorkerController) -> Group | None:
        """The next group for a worker; None if there is none for it but those that need the node alone."""
        computing, with_lab = self._waiting["nothing"], self._waiting["lab"]
        others = [one for one in self._before if one is not node]
        compute = sum(self._has(one, "nothing") for one in others)
        if self._has(node, "node alone") and (with_lab or self._waiting["node alone"]):
            return None  # what came after it would let it begin
        if not with_lab and self._waiting["node alone"]:
            # One worker gets these; some of the others compute beside it, if there is nothing that they keep.
            self._alone = self._alone or node
            free = [one for one in others if one not in self._keepers and not one.shutting_down]
            computes = not free if node is self._alone else node not in self._keepers and compute < _cores()
            order = [computing] if computes else []
        elif not self._lab_is_up and with_lab:
            # One worker waits for the lab; the others compute meanwhile.
            somebody_waits = any(self._has(one, "lab") for one in others)
            order = [computing, with_lab] if somebody_waits else [with_lab, computing]
        else:
            surplus = _seconds(computing) > _seconds(self._waiting["node alone"])
            order = [computing, with_lab] if surplus and not compute else [with_lab, computing]
        return next((waiting.pop(0) for waiting in order if waiting), None)

    def _end(self, node: WorkerController) -> None:
        """No group is left for this worker but, if it is the one that runs them, those that need the node alone."""
        alone = self._waiting["node alone"]
        if not alone or node is not self._alone:
            node.shutdown()
            return
        if not self._before[node] or self._need(self._before[node][-1]) != "node alone":
            # The test before it can begin now; this one begins when there is a next one.
            self._give(node, [alone[0].indices.pop(0)])
        busy = [one for one in self._before if self._has(one, "lab") or one in self._keepers]
        if not self._waiting["lab"] and not set(busy) - {node}:
            self._give(node, [index for group in alone for index in group.indices])
            alone.clear()
            self._feed(node)

    def _has(self, node: WorkerController, need: Need) -> bool:
        """Whether a worker has a test before it that needs that."""
        return any(self._need(index) == need for index in self._before[node])


def _cores() -> int:
    return os.cpu_count() or 1


def _seconds(groups: Sequence[Group]) -> float:
    return sum(group.seconds for group in groups)


def _ends(node: WorkerController) -> bool:
    return bool(node.shutting_down)
