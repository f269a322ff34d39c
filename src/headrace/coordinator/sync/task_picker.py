"""The task picker: which of the tasks that wait go to which free slots.

The oldest tasks go first, and each worker gets a task before any gets its second. A worker is given
only what it can run: kinds of tasks that its version of the protocol knows, jobs for which it has
all plug-ins, and nothing that it gave back before. What it can't run stays for others, however long
the line of it is, and holds up nothing behind it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from sqlalchemy import Connection

from headrace.coordinator.sync.liveness import WorkerLiveness
from headrace.coordinator.workforce import PluginSets
from headrace.model.task import Lane
from headrace.protocol import versions
from headrace.store.tasks import claims
from headrace.store.tasks.claims import LeftOut
from headrace.store.tasks.tasks import Task
from headrace.store.tasks.workers import Worker

ROUNDS_MAX = 20  # looks at a lane, each of which finds another set of plug-ins that is missing
LACKING_MAX = 1000  # sets of plug-ins remembered as missing for one set that workers have


@dataclass(frozen=True, slots=True)
class FreeSlots:
    """So many tasks of a lane may be given to a worker."""

    worker: Worker
    lane: Lane
    number: int


# Free slots of workers that can run the same tasks: group, lane, plug-ins, and what is left out.
_Line = tuple[str, Lane, str | None, LeftOut]


class TaskPicker:
    """Used by the writer's thread alone. Lives for one leader term."""

    def __init__(self, liveness: WorkerLiveness) -> None:
        self._liveness = liveness
        self._plugin_sets = PluginSets()
        self._lacking: dict[str | None, frozenset[str]] = {}  # by digest of plug-ins: needs

    def pick(
        self, conn: Connection, free: Sequence[FreeSlots], *, now_ms: int
    ) -> Sequence[tuple[str, Task]]:
        """Tasks that may be assigned now, locked, each with the id of its worker."""
        lines: Mapping[_Line, list[Worker]] = defaultdict(list)
        for slots in free:
            worker = slots.worker
            line = (worker.group, slots.lane, worker.plugins_digest, self._left_out(worker))
            lines[line] += [worker] * slots.number
        picks: list[tuple[str, Task]] = []
        for line, seats in sorted(lines.items(), key=_least_able_first):
            waiting = self._waiting(conn, line, seats, picks, now_ms=now_ms)
            ordered = _round_robin([worker.id for worker in seats])
            picks += zip(ordered, waiting, strict=False)
        return picks

    def _left_out(self, worker: Worker) -> LeftOut:
        """What this worker is not given: it can't run it, or gave it back."""
        unfit = self._liveness.unfit(worker.id)
        unknown = versions.SPOKEN.unknown_kinds(worker.protocol)
        lacking = self._lacking.get(worker.plugins_digest)
        if not unknown and not lacking:
            return unfit
        return replace(unfit, kinds=unfit.kinds | unknown, needs=lacking or frozenset())

    def _waiting(
        self,
        conn: Connection,
        line: _Line,
        seats: Sequence[Worker],
        picks: Sequence[tuple[str, Task]],
        *,
        now_ms: int,
    ) -> Sequence[Task]:
        """The oldest tasks that these workers can run, no more than they have seats for."""
        group, lane, digest, but = line
        picked = {task.id for _, task in picks if (task.group, task.lane) == (group, lane)}
        if picked:
            but = replace(but, tasks=but.tasks | picked)
        for _ in range(ROUNDS_MAX):
            waiting = claims.claimable(
                conn, group=group, lane=lane, now_ms=now_ms, most=len(seats), but=but
            )
            lacking = {t.needs for t in waiting if t.needs is not None} - but.needs
            lacking = {n for n in lacking if not self._plugin_sets.has(conn, seats[0], n)}
            if not lacking:
                return waiting
            but = replace(but, needs=but.needs | lacking)
            self._lacking[digest] = frozenset(sorted(but.needs)[:LACKING_MAX])
        return ()


def _least_able_first(line: tuple[_Line, object]) -> tuple[str, Lane, int]:
    """In each lane, workers that can't run everything choose before those that can."""
    group, lane, _, left_out = line[0]
    return group, lane, -left_out.count


def _round_robin(seats: Sequence[str]) -> Sequence[str]:
    """Order the free slots so that each worker gets a task before any gets its second."""
    taken: dict[str, int] = defaultdict(int)
    ranked: list[tuple[int, int, str]] = []
    for index, worker in enumerate(seats):
        ranked.append((taken[worker], index, worker))
        taken[worker] += 1
    return [worker for _, _, worker in sorted(ranked)]
