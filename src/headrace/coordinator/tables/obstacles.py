"""The state of one table at one moment (`TableSnapshot`), and the obstacles to optimizing it.

The snapshot is read from the rows that the leader decides by, never from a copy kept for people: an
explanation with a truth of its own is wrong when it matters. Each function of the second half turns
the snapshot into findings, in the order in which they would stand in the way of the table. A
`Finding` says what was checked, what it is like, and whether it stands in the way.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from pydantic import ValidationError
from sqlalchemy import Connection

from headrace.coordinator.tables.commits import may_land
from headrace.coordinator.tables.plan_scheduler import has_spare_slots, policy_of, rank_of
from headrace.coordinator.tables.processes import SETTLE_TIMEOUT_S
from headrace.coordinator.workforce import Workforce
from headrace.model.tables.schedule import (
    FILE_FAILURES_MAX,
    STARVED_AFTER_MS,
    SchedulingPolicy,
    left_out,
)
from headrace.model.tables.settings import property_of
from headrace.model.tables.status import PROCESS_ENDED, TableErrorKind, TableStatus
from headrace.model.task import ASSIGNED, OF_TABLES, TaskKind, TaskStatus
from headrace.model.text import ago, count, span, until, utc
from headrace.protocol.tables import Pending, Summary
from headrace.store.tables import catalogs, lake_tables, processes, table_tasks
from headrace.store.tables.catalogs import Catalog
from headrace.store.tables.lake_tables import Blocker, LakeTable
from headrace.store.tables.processes import Process
from headrace.store.tasks import tasks
from headrace.store.tasks import workers as worker_rows
from headrace.store.tasks.tasks import Task

PAST_MAX = 5  # latest processes among which the last ended one is searched
FILES_NAMED_MAX = 3


@dataclass(frozen=True, slots=True)
class Slots:
    """The slots of the table's group."""

    total: int = 0
    pipelines: int = 0  # held by jobs
    rewrites: int = 0  # held by tables
    enough: bool = False  # running processes have work for all of them

    @property
    def free(self) -> int:
        return max(0, self.total - self.pipelines - self.rewrites)


@dataclass(frozen=True, slots=True)
class Turn:
    """The place of a pending table among the pending tables of its group."""

    policy: SchedulingPolicy
    place: int | None  # from 1; None: it may not be planned now, whatever its place
    rivals: int  # pending tables that may be planned, including this one
    starved_after_ms: int = STARVED_AFTER_MS


@dataclass(frozen=True, slots=True)
class RewriteProgress:
    """Counts of the rewrite tasks of a running process."""

    total: int = 0
    done: int = 0
    running: int = 0
    failed: int = 0
    workers: tuple[str, ...] = ()  # that run a rewrite or the commit


@dataclass(frozen=True, slots=True)
class UnderWay:
    """The evaluation or the plan task that holds the table."""

    kind: TaskKind
    worker: str | None  # None: not claimed yet


@dataclass(frozen=True, slots=True)
class TableSnapshot:
    """All that decides about one table, read at one moment."""

    table: LakeTable
    catalog: Catalog | None = None
    groups: Mapping[str, int] = field(default_factory=dict[str, int])  # slots, by group
    too_old: Mapping[str, str] = field(default_factory=dict[str, str])  # by group of workers: why
    slots: Slots = Slots()
    turn: Turn | None = None  # of a pending table
    process: Process | None = None  # the running one, settling or not
    progress: RewriteProgress = RewriteProgress()
    under_way: UnderWay | None = None
    last: Process | None = None  # the last that has ended
    blockers: Sequence[Blocker] = ()
    flaws: Sequence[str] = ()
    left_out: Sequence[str] = ()  # files that failed too often
    pending: Pending | None = None
    summary: Summary | None = None


class FindingVerdict(StrEnum):
    OK = "ok"  # not in the way
    HOLDS = "holds"  # passes by itself, or is only worth knowing
    BLOCKS = "blocks"  # nothing happens until somebody acts


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that was checked to explain a table."""

    about: str  # in a word or two
    verdict: FindingVerdict
    text: str  # a clause that can stand behind "…: ", without a full stop
    measured: str | None = None
    threshold: str | None = None
    property: str | None = None  # the table property that sets the threshold
    way_out: str | None = None
    waits: bool = False  # the table waits for this now; False: only a remark


def read_snapshot(
    conn: Connection, table: LakeTable, *, policy: SchedulingPolicy, now_ms: int
) -> TableSnapshot:
    process = processes.running_of(conn, table.id)
    past = processes.of_table(conn, table.id, identifier=table.identifier, most=PAST_MAX)
    groups, workforce = worker_rows.slots_by_group(conn), Workforce.read(conn)
    too_old = {name: why for name in groups if (why := _too_old(workforce, name)) is not None}
    slots = _read_slots(conn, table.group, groups)
    pending, summary = read_measured(
        lake_tables.TableMeasures(
            lake_tables.pending_of(conn, table.id), lake_tables.summary_of(conn, table.id)
        )
    )
    return TableSnapshot(
        table=table,
        catalog=catalogs.get(conn, table.catalog),
        groups=groups,
        too_old=too_old,
        slots=slots,
        turn=_turn(conn, table, policy, now_ms=now_ms),
        process=process,
        progress=progress_of(conn, process) if process is not None else RewriteProgress(),
        under_way=_under_way(tasks.get(conn, table.task_id) if table.task_id else None),
        last=next((each for each in past if each.status in PROCESS_ENDED), None),
        blockers=lake_tables.blockers_of(conn, table.id, now_ms=now_ms),
        flaws=lake_tables.flaws_of(conn, table.id),
        left_out=sorted(left_out(lake_tables.file_failures_of(conn, table.id))),
        pending=pending,
        summary=summary,
    )


def _too_old(workforce: Workforce, group: str) -> str | None:
    """Which tasks of tables no worker of the group knows, and what to do about it."""
    lacking = (workforce.lacks(group, None, kind) for kind in sorted(OF_TABLES))
    return next((why for why in lacking if why is not None), None)


def read_measured(measures: lake_tables.TableMeasures) -> tuple[Pending | None, Summary | None]:
    """What the last evaluation measured. Measures of another version that can't be read count as
    not evaluated yet: the next evaluation writes them anew."""
    try:
        pending = Pending.model_validate(measures.pending) if measures.pending else None
        summary = Summary.model_validate(measures.summary) if measures.summary else None
    except ValidationError:
        return None, None
    return pending, summary


def progress_of(conn: Connection, process: Process) -> RewriteProgress:
    known = table_tasks.of_process(conn, process.id)
    rewrites = Counter(task.status for task in known if task.kind is TaskKind.REWRITE)
    held = {task.worker_id for task in known if task.status in ASSIGNED and task.worker_id}
    return RewriteProgress(
        total=rewrites.total(),
        done=rewrites[TaskStatus.SUCCESS],
        running=sum(rewrites[status] for status in ASSIGNED),
        failed=rewrites[TaskStatus.FAILED] + rewrites[TaskStatus.CANCELED],
        workers=tuple(sorted(held)),
    )


def _read_slots(conn: Connection, group: str, groups: Mapping[str, int]) -> Slots:
    held = lake_tables.slots_held(conn, group=group)
    rewrites = held.get(TaskKind.REWRITE, 0)
    total = groups.get(group, 0)
    enough = total > 0 and not has_spare_slots(conn, group, total)
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
    """From when on the table may be planned, by the minimum interval between two plans."""
    if table.planned_at_ms is None:
        return 0
    return table.planned_at_ms + max(0, table.min_plan_interval_ms)


def ok(about: str, text: str) -> Finding:
    return Finding(about, FindingVerdict.OK, text)


def waits(about: str, text: str, way_out: str | None = None) -> Finding:
    return Finding(about, FindingVerdict.HOLDS, text, way_out=way_out, waits=True)


def remark(about: str, text: str, way_out: str | None = None) -> Finding:
    return Finding(about, FindingVerdict.HOLDS, text, way_out=way_out)


def blocks(about: str, text: str, way_out: str) -> Finding:
    return Finding(about, FindingVerdict.BLOCKS, text, way_out=way_out, waits=True)


def catalog(snapshot: TableSnapshot, now_ms: int) -> Iterator[Finding]:
    row = snapshot.catalog
    if row is None:
        return
    show = f"`headrace catalog show {row.name}`"
    if row.wanted_removed:
        yield blocks(
            "catalog",
            f"catalog {row.name!r} is being removed, and this table goes with it",
            f"to have it back, `headrace catalog add {row.name}` when that is done",
        )
    elif row.failures or row.error:
        times = f" ({count(row.failures, 'try', 'tries')} in a row)" if row.failures else ""
        yield blocks(
            "catalog",
            f"catalog {row.name!r} can't be looked into{times}: {row.error or 'nobody said why'}",
            f"mend it, or what it was told (`headrace catalog set {row.name} --property …`); "
            f"it is tried again {until(row.due_at_ms, now_ms)}. {show} has the whole error",
        )
    elif row.discovered_at_ms is not None:
        looked = ago(row.discovered_at_ms, now_ms)
        yield ok("catalog", f"catalog {row.name!r} was looked into {looked}")


def switched_off(snapshot: TableSnapshot, _now_ms: int) -> Iterator[Finding]:
    table, enabled = snapshot.table, property_of("enabled")
    if table.wanted_paused:
        way_out = f"`headrace table resume {table.identifier}` lets it be optimized again"
        yield blocks("switch", "it is paused", way_out)
    if not table.enabled:
        yield Finding(
            "switch",
            FindingVerdict.BLOCKS,
            f"{enabled} is false",
            measured="false",
            threshold="true",
            property=enabled,
            way_out=f"ALTER TABLE {table.identifier} SET TBLPROPERTIES ('{enabled}'='true'), or "
            f"`headrace catalog set {table.catalog} --default {enabled}=true` if the table itself "
            "says nothing",
            waits=True,
        )
    if table.may_optimize:
        yield ok("switch", "self-optimizing is on")


def group(snapshot: TableSnapshot, _now_ms: int) -> Iterator[Finding]:
    table = snapshot.table
    needed = {table.group: property_of("group")}
    if snapshot.catalog is not None:
        needed.setdefault(snapshot.catalog.group, "")
    there = ", ".join(map(repr, sorted(snapshot.groups)))
    for name, set_by in needed.items():
        if why := snapshot.too_old.get(name):
            text, _, way_out = why.partition(": ")
            yield blocks("version", f"it needs {text}", way_out)
        if snapshot.groups.get(name):
            continue
        move = f"set {set_by} of the table" if set_by else f"`headrace catalog set {table.catalog}"
        instead = (
            f"{move} to one of {there}" if set_by else f"{move} --group …` with one of {there}"
        )
        yield Finding(
            "group",
            FindingVerdict.BLOCKS,
            f"group {name!r} has no workers"
            + (f"; groups that have some: {there}" if there else ", and neither has any other"),
            measured="0 workers",
            threshold="1",
            property=set_by or None,
            way_out=f"start one with `headrace worker --group {name}`"
            + (f", or {instead}" if there else ""),
            waits=True,
        )


def held_off(snapshot: TableSnapshot, now_ms: int) -> Iterator[Finding]:
    name = snapshot.table.identifier
    for blocker in snapshot.blockers:
        yield blocks(
            "blocker",
            f"{blocker.name!r} asks that it be left alone until {utc(blocker.expires_at_ms)}: "
            f"{blocker.reason}",
            f"it ends by itself {until(blocker.expires_at_ms, now_ms)}, or with "
            f"`headrace table unblock {name} {blocker.name}`",
        )
    process = snapshot.process
    if process is not None and snapshot.blockers and may_land(snapshot.table, process):
        yield remark(
            "blocker",
            f"process {process.number} had begun to commit before, and nobody holds that back: it "
            "may still land",
            f"`headrace table history {name}` shows when it has ended",
        )
    if process is not None and process.settling:
        since_ms = process.settling_since_ms or now_ms
        latest_ms = since_ms + SETTLE_TIMEOUT_S * 1000  # later, if the leader changes meanwhile
        yield waits(
            "settlement",
            f"process {process.number} is settling since {utc(since_ms)}: a coordinator stopped "
            "while it committed, and the table is asked whether the commit is in it; nothing else "
            f"is planned until then, {until(latest_ms, now_ms)} at the latest",
        )


def failing(snapshot: TableSnapshot, now_ms: int) -> Iterator[Finding]:
    table = snapshot.table
    # After a failed evaluation a table waits for the next one, after a failed process for a plan.
    unseen = table.error_kind is TableErrorKind.EVALUATION
    again_ms = table.due_at_ms if unseen else table.not_before_ms
    if table.failures:
        yield waits(
            "failures",
            f"the last {count(table.failures, 'try', 'tries')} failed: "
            f"{table.error or 'nobody said why'}; it is tried again "
            f"{until(again_ms, now_ms)}, and later after each failure",
            "mend the reason"
            + ("" if unseen else f"; `headrace table optimize {table.identifier}` tries at once"),
        )
    elif table.error:
        yield remark("error", f"the last look at it failed: {table.error}", "mend the reason")


def flaws(snapshot: TableSnapshot, _now_ms: int) -> Iterator[Finding]:
    for flaw in snapshot.flaws:
        text, _, way_out = flaw.partition(". ")
        yield remark("property", text or flaw, way_out or None)


def files_left_out(snapshot: TableSnapshot, _now_ms: int) -> Iterator[Finding]:
    if not snapshot.left_out:
        return
    number, named = len(snapshot.left_out), ", ".join(snapshot.left_out[:FILES_NAMED_MAX])
    more = f" and {number - FILES_NAMED_MAX} more" if number > FILES_NAMED_MAX else ""
    yield Finding(
        "left out",
        FindingVerdict.HOLDS,
        f"{count(number, 'file')} took part in {FILE_FAILURES_MAX} failures and "
        f"{'is' if number == 1 else 'are'} not planned any more: {named}{more}",
        measured=count(number, "file"),
        threshold=f"{FILE_FAILURES_MAX} failures",
        way_out="look whether they can be read; once they are replaced by others they are "
        "forgotten here",
    )


def evaluated(snapshot: TableSnapshot, now_ms: int) -> Iterator[Finding]:
    table, under_way = snapshot.table, snapshot.under_way
    if table.evaluated_at_ms is None:
        looking = under_way is not None and under_way.kind is TaskKind.EVALUATE
        when = "now" if looking else until(table.due_at_ms, now_ms)
        yield waits("evaluation", f"nobody has looked at it yet; that is due {when}")
    else:
        yield ok("evaluation", f"it was looked at {ago(table.evaluated_at_ms, now_ms)}")


def turn(snapshot: TableSnapshot, now_ms: int) -> Iterator[Finding]:
    """For a pending table: what else is needed before it is planned."""
    table, at = snapshot.table, snapshot.turn
    if table.status is not TableStatus.PENDING:
        return
    if (next_ms := plannable_at_ms(table)) > now_ms:
        yield Finding(
            "interval",
            FindingVerdict.HOLDS,
            f"it was planned {span(now_ms - (table.planned_at_ms or 0))} ago, and may be planned "
            f"again {until(next_ms, now_ms)}",
            measured=span(now_ms - (table.planned_at_ms or 0)),
            threshold=span(table.min_plan_interval_ms),
            property=property_of("min_plan_interval_ms"),
            waits=True,
        )
    yield from _slots_of_group(snapshot)
    if at is not None:
        yield from _place(snapshot, now_ms)


def _slots_of_group(snapshot: TableSnapshot) -> Iterator[Finding]:
    slots, name = snapshot.slots, snapshot.table.group
    add = f"wait, or add workers with `headrace worker --group {name}`"
    held = f"{slots.pipelines} held by jobs, {slots.rewrites} by tables"
    if slots.enough and snapshot.table.wanted_type is None:
        yield waits(
            "slots",
            f"other tables have work for all of the {count(slots.total, 'slot')} of group {name!r} "
            f"({held}); a plan made now would only grow old",
            add,
        )
    elif slots.total and not slots.free:
        yield waits(
            "slots", f"none of {count(slots.total, 'slot')} of group {name!r} is free: {held}", add
        )


def _place(snapshot: TableSnapshot, now_ms: int) -> Iterator[Finding]:
    table, at = snapshot.table, snapshot.turn
    assert at is not None
    since_ms = table.pending_since_ms or table.status_since_ms
    bound = (
        f"it is pending for {span(now_ms - since_ms)}, and after {span(at.starved_after_ms)} it "
        "comes before all that waited less"
    )
    if at.place is None:
        return
    if at.place == 1:
        yield ok("turn", f"it is the next of its group to be planned (policy {at.policy}); {bound}")
        return
    yield waits(
        "turn",
        f"{count(at.place - 1, 'table')} of group {table.group!r} "
        f"{'has its' if at.place == 2 else 'have their'} turn before it (place {at.place} of "
        f"{at.rivals}, policy {at.policy}); {bound}",
    )
