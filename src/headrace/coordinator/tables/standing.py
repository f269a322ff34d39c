"""All that decides about one table, read at one moment: what `explain` speaks of.

These are the rows that the leader decides by, never a copy kept for people: an explanation that
has its own truth is wrong when it matters.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from pydantic import ValidationError
from sqlalchemy import Connection

from headrace.coordinator.tables.turns import is_hungry, policy_of, rank_of
from headrace.model.tables.backoff import left_out
from headrace.model.tables.schedule import STARVED_AFTER_MS, SchedulingPolicy
from headrace.model.tables.status import PROCESS_ENDED, TableStatus
from headrace.model.task import ASSIGNED, TaskKind, TaskStatus
from headrace.protocol.tables import Pending, Summary
from headrace.store import blockers, catalogs, lake, lake_lists, processes, table_tasks, tasks
from headrace.store import workers as worker_rows
from headrace.store.blockers import Blocker
from headrace.store.catalogs import Catalog
from headrace.store.lake_rows import LakeTable
from headrace.store.processes import Process
from headrace.store.tasks import Task

PAST_MAX = 5  # processes looked through for the last that has ended


@dataclass(frozen=True, slots=True)
class Slots:
    """Of the table's group."""

    total: int = 0
    pipelines: int = 0  # held by jobs
    rewrites: int = 0  # held by tables
    enough: bool = False  # the processes under way have work for all of them

    @property
    def free(self) -> int:
        return max(0, self.total - self.pipelines - self.rewrites)


@dataclass(frozen=True, slots=True)
class Turn:
    """The place of a pending table among those of its group."""

    policy: SchedulingPolicy
    place: int | None  # from 1; None: it may not be planned now, whoever is before it
    rivals: int  # pending ones that may be planned, this one among them
    starved_after_ms: int = STARVED_AFTER_MS


@dataclass(frozen=True, slots=True)
class Progress:
    """Of the rewrite tasks of a running process."""

    total: int = 0
    done: int = 0
    running: int = 0
    failed: int = 0
    workers: tuple[str, ...] = ()  # that rewrite, or commit


@dataclass(frozen=True, slots=True)
class UnderWay:
    """The evaluation or the planning that holds the table."""

    kind: TaskKind
    worker: str | None  # None: nobody has taken it yet


@dataclass(frozen=True, slots=True)
class Standing:
    table: LakeTable
    catalog: Catalog | None = None
    groups: Mapping[str, int] = field(default_factory=dict[str, int])  # slots, by group
    slots: Slots = Slots()
    turn: Turn | None = None  # of a pending one
    process: Process | None = None  # that runs, settling or not
    progress: Progress = Progress()
    under_way: UnderWay | None = None
    last: Process | None = None  # that has ended
    blockers: Sequence[Blocker] = ()
    flaws: Sequence[str] = ()
    left_out: Sequence[str] = ()  # files that failed too often
    pending: Pending | None = None
    summary: Summary | None = None


def read_standing(
    conn: Connection, table: LakeTable, *, policy: SchedulingPolicy, now_ms: int
) -> Standing:
    process = processes.running_of(conn, table.id)
    past = processes.of_table(conn, table.id, identifier=table.identifier, most=PAST_MAX)
    groups = worker_rows.slots_by_group(conn)
    slots = _slots(conn, table.group, groups)
    pending, summary = read_measured(
        lake_lists.Measured(lake.pending_of(conn, table.id), lake.summary_of(conn, table.id))
    )
    return Standing(
        table=table,
        catalog=catalogs.get(conn, table.catalog),
        groups=groups,
        slots=slots,
        turn=_turn(conn, table, policy, now_ms=now_ms),
        process=process,
        progress=progress_of(conn, process) if process is not None else Progress(),
        under_way=_under_way(tasks.get(conn, table.task_id) if table.task_id else None),
        last=next((each for each in past if each.status in PROCESS_ENDED), None),
        blockers=blockers.of(conn, table.id, now_ms=now_ms),
        flaws=lake.flaws_of(conn, table.id),
        left_out=sorted(left_out(lake.file_failures_of(conn, table.id))),
        pending=pending,
        summary=summary,
    )


def read_measured(found: lake_lists.Measured) -> tuple[Pending | None, Summary | None]:
    """What an evaluation found. What another version wrote and this one can't read is as if nobody
    had looked yet: the next evaluation writes it anew."""
    try:
        pending = Pending.model_validate(found.pending) if found.pending else None
        summary = Summary.model_validate(found.summary) if found.summary else None
    except ValidationError:
        return None, None
    return pending, summary


def progress_of(conn: Connection, process: Process) -> Progress:
    found = table_tasks.of_process(conn, process.id)
    rewrites = Counter(task.status for task in found if task.kind is TaskKind.REWRITE)
    held = {task.worker_id for task in found if task.status in ASSIGNED and task.worker_id}
    return Progress(
        total=rewrites.total(),
        done=rewrites[TaskStatus.SUCCESS],
        running=sum(rewrites[status] for status in ASSIGNED),
        failed=rewrites[TaskStatus.FAILED] + rewrites[TaskStatus.CANCELED],
        workers=tuple(sorted(held)),
    )


def _slots(conn: Connection, group: str, groups: Mapping[str, int]) -> Slots:
    held = lake_lists.slots_held(conn, group=group)
    rewrites = held.get(TaskKind.REWRITE, 0)
    total = groups.get(group, 0)
    enough = total > 0 and not is_hungry(conn, group, total)
    return Slots(total, sum(held.values()) - rewrites, rewrites, enough)


def _under_way(task: Task | None) -> UnderWay | None:
    if task is None or task.status not in ASSIGNED | {TaskStatus.PLANNED}:
        return None
    return UnderWay(task.kind, task.worker_id)


def _turn(
    conn: Connection, table: LakeTable, policy: SchedulingPolicy, *, now_ms: int
) -> Turn | None:
    if table.status is not TableStatus.PENDING:
        return None
    mine = policy_of(conn, table.group, otherwise=policy)
    place, rivals = rank_of(conn, table, now_ms=now_ms, policy=mine) or (None, 0)
    return Turn(mine, place, rivals)


def plannable_at_ms(table: LakeTable) -> int:
    """By the time that must lie between two plans."""
    if table.planned_at_ms is None:
        return 0
    return table.planned_at_ms + max(0, table.min_plan_interval_ms)
