"""Why a table is being optimized, or is not, and what happens next.

A pure function over what decides. The headline answers the question; the findings say all that was
looked at, in the order in which it would stand in the way.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from headrace.coordinator.tables import measures_told, obstacles
from headrace.coordinator.tables.finding import Finding, Verdict, ok, remark
from headrace.coordinator.tables.standing import Standing
from headrace.model.measures import ago, count, span, until, worker
from headrace.model.tables.schedule import quota_limit
from headrace.model.tables.settings import property_of
from headrace.model.tables.status import OPTIMIZING, ProcessStatus, TableStatus
from headrace.model.task import TaskKind
from headrace.store.lake_rows import LakeTable

MOVING = OPTIMIZING | {TableStatus.PLANNING, TableStatus.COMMITTING}
_OPENING = {
    TableStatus.IDLE: "is not being optimized",
    TableStatus.PENDING: "waits to be optimized",
}


@dataclass(frozen=True, slots=True)
class Explanation:
    headline: str
    findings: Sequence[Finding]


def explain(standing: Standing, now_ms: int) -> Explanation:
    findings = [finding for look in _LOOKS for finding in look(standing, now_ms)]
    return Explanation(_headline(standing, findings), findings)


def _headline(standing: Standing, findings: Sequence[Finding]) -> str:
    table = standing.table
    blocking = next((each for each in findings if each.verdict is Verdict.BLOCKS), None)
    waiting = blocking or next((each for each in findings if each.waits), None)
    doing = next(each for each in findings if each.about == "status")
    if table.status in MOVING:
        but = f"; but {blocking.said}" if blocking is not None else ""
        return f"{table.identifier} is being optimized: {doing.said}{but}"
    if waiting is not None:
        return f"{table.identifier} {_OPENING[table.status]}: {waiting.said}"
    if table.status is TableStatus.PENDING or table.wanted_type is not None:
        return f"{table.identifier} is about to be optimized: {doing.said}"
    return f"{table.identifier} is not being optimized: {measures_told.nothing_to_do(standing)}"


def status(standing: Standing, now_ms: int) -> Iterator[Finding]:
    table = standing.table
    since = f"{table.status} for {span(now_ms - table.status_since_ms)}"
    yield ok("status", "; ".join(filter(None, [since, _doing(standing), _wish(standing)])))


def _doing(standing: Standing) -> str:
    table, process, at = standing.table, standing.process, standing.progress
    where = f" on {' and '.join(map(worker, at.workers))}" if at.workers else ""
    if table.status is TableStatus.PLANNING:
        return f"a worker chooses the files that go together{_held_by(standing)}"
    if table.status in OPTIMIZING and process is not None:
        failed = f", {at.failed} failed" if at.failed else ""
        waiting = at.total - at.done - at.running - at.failed
        return (
            f"process {process.number} ({process.type.name}) has done {at.done} of "
            f"{count(at.total, 'rewrite task')}, {at.running} run{where}, {waiting} wait for a "
            f"slot{failed}"
        )
    if table.status is TableStatus.COMMITTING and process is not None:
        return f"process {process.number} ({process.type.name}) replaces the files{where}"
    if standing.pending is not None:
        return measures_told.pending(standing.pending)
    return ""


def _held_by(standing: Standing) -> str:
    under_way = standing.under_way
    if under_way is None:
        return ""
    return (
        f" ({worker(under_way.worker)})" if under_way.worker else " (it waits for one to take it)"
    )


def _wish(standing: Standing) -> str:
    wanted = standing.table.wanted_type
    return f"somebody asked for it to be optimized now, at least {wanted.name}" if wanted else ""


def holder(standing: Standing, _now_ms: int) -> Iterator[Finding]:
    """Who has the table now: nobody else evaluates or plans it meanwhile."""
    table, process, under_way = standing.table, standing.process, standing.under_way
    if process is not None and table.process_id == process.id:
        yield ok("held by", f"process {process.number}, id {process.id}")
    elif under_way is not None:
        what = "an evaluation" if under_way.kind is TaskKind.EVALUATE else "a planning"
        whose = (
            f" on {worker(under_way.worker)}"
            if under_way.worker
            else ", which no worker has taken yet"
        )
        yield ok("held by", f"{what}{whose}")
    else:
        yield ok("held by", "nobody")


def quota(standing: Standing, _now_ms: int) -> Iterator[Finding]:
    """How many of its group's slots it may have at a time, and who says so."""
    table, name = standing.table, property_of("quota")
    if standing.summary is None or not standing.slots.total:
        return
    limit = quota_limit(table.quota, standing.slots.total)
    yield Finding(
        "quota",
        Verdict.OK,
        f"up to {min(limit, standing.slots.total)} of {count(standing.slots.total, 'slot')} of "
        f"group {table.group!r} within its quota: {name} is {table.quota:g}, "
        f"{said_by(standing.summary.set_by.get(name), table)}",
        property=name,
    )


def said_by(source: str | None, table: LakeTable) -> str:
    """Who has set a property of a table."""
    match source:
        case "table":
            return "set by the table"
        case "catalog":
            return f"a default of catalog {table.catalog!r}"
        case "group":
            return f"a default of group {table.group!r}"
        case _:
            return "which nobody has set"


def next_look(standing: Standing, now_ms: int) -> Iterator[Finding]:
    table = standing.table
    rule = ""
    if table.look_at_ms is not None and table.look_at_ms > now_ms:
        rule = f"; a rule by time may fire {until(table.look_at_ms, now_ms)}"
    yield ok(
        "next",
        f"it is looked at again {until(table.due_at_ms, now_ms)}, every {span(table.interval_ms)}; "
        f"files are read only if it has changed by then{rule}",
    )


def last_process(standing: Standing, now_ms: int) -> Iterator[Finding]:
    last = standing.last
    if last is None:
        return
    ended = ago(last.ended_at_ms or last.created_at_ms, now_ms)
    said = f"process {last.number} ({last.type.name}) ended {last.status} {ended}"
    if last.status is ProcessStatus.SUCCESS:
        yield ok("last", said)
    else:
        yield remark("last", f"{said}: {last.error or 'nobody said why'}")


Look = Callable[[Standing, int], Iterator[Finding]]
_LOOKS: Sequence[Look] = (
    obstacles.catalog,
    obstacles.switched_off,
    obstacles.group,
    obstacles.held_off,
    obstacles.failing,
    obstacles.evaluated,
    obstacles.turn,
    status,
    holder,
    obstacles.flaws,
    obstacles.files_left_out,
    quota,
    measures_told.rules,
    next_look,
    last_process,
)
