"""Explains why a table is being optimized or is not, and what happens next.

`explain` is a pure function of a `TableSnapshot`, the rows that the leader decides by. The headline
answers the question; the findings list everything that was checked, in the order in which it would
stand in the way. `obstacles` has the findings that may stand in the way; here are the others:
status, holder, quota, the measures of the last evaluation (pending input, and for each rule how far
it is from firing), the next evaluation, and the last process.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import assert_never

from headrace.coordinator.tables import obstacles
from headrace.coordinator.tables.obstacles import Finding, FindingVerdict, TableSnapshot, ok, remark
from headrace.model.tables.evaluation import RuleUnit
from headrace.model.tables.schedule import quota_limit
from headrace.model.tables.settings import PROPERTIES, property_of
from headrace.model.tables.status import OPTIMIZING, ProcessStatus, TableStatus
from headrace.model.task import TaskKind
from headrace.model.text import ago, count, short_worker, size, span, until
from headrace.model.text import partition as place
from headrace.protocol.tables import PartitionReport, Pending, RuleReport
from headrace.store.tables.lake_tables import LakeTable

PARTITIONS_EXPLAINED_MAX = 3  # the neediest
MOVING = OPTIMIZING | {TableStatus.PLANNING, TableStatus.COMMITTING}
_PROPERTIES = frozenset(prop.name for prop in PROPERTIES)
_OPENING = {
    TableStatus.IDLE: "is not being optimized",
    TableStatus.PENDING: "waits to be optimized",
}


@dataclass(frozen=True, slots=True)
class Explanation:
    headline: str
    findings: Sequence[Finding]


def explain(snapshot: TableSnapshot, now_ms: int) -> Explanation:
    """All findings about a table, and the headline that follows from them."""
    findings = [finding for section in _SECTIONS for finding in section(snapshot, now_ms)]
    return Explanation(_headline(snapshot, findings, now_ms), findings)


def _headline(snapshot: TableSnapshot, findings: Sequence[Finding], now_ms: int) -> str:
    table, doing = snapshot.table, _standing(snapshot, now_ms)
    blocking = next((each for each in findings if each.verdict is FindingVerdict.BLOCKS), None)
    waiting = blocking or next((each for each in findings if each.waits), None)
    if table.status in MOVING:
        but = f"; but {blocking.text}" if blocking is not None else ""
        return f"{table.identifier} is being optimized: {doing}{but}"
    if waiting is not None:
        return f"{table.identifier} {_OPENING[table.status]}: {waiting.text}"
    if table.status is TableStatus.PENDING or table.wanted_type is not None:
        return f"{table.identifier} is about to be optimized: {doing}"
    return f"{table.identifier} is not being optimized: {nothing_to_do(snapshot)}"


def nothing_to_do(snapshot: TableSnapshot) -> str:
    """Why a table is at rest when no obstacle keeps it there."""
    summary = snapshot.summary
    if summary is None:
        return "nothing is known that a rewrite would make better"
    where = count(summary.partitions, "partition")
    if not summary.files:
        return "it has no files"
    if summary.due:
        return (
            f"a rule has fired in {summary.due} of {where}, but no rewrite there would leave fewer "
            "files or fewer deletes"
        )
    return f"no rule has fired in {where}; its health is {summary.score} of 100"


def status(snapshot: TableSnapshot, now_ms: int) -> Iterator[Finding]:
    yield ok("status", _standing(snapshot, now_ms))


def _standing(snapshot: TableSnapshot, now_ms: int) -> str:
    """The status of the table, since when, what is done in it, and what somebody asked for."""
    table = snapshot.table
    since = f"{table.status} for {span(now_ms - table.status_since_ms)}"
    return "; ".join(filter(None, [since, _doing(snapshot), _wish(snapshot)]))


def _doing(snapshot: TableSnapshot) -> str:
    table, process, at = snapshot.table, snapshot.process, snapshot.progress
    where = f" on {' and '.join(map(short_worker, at.workers))}" if at.workers else ""
    if table.status is TableStatus.PLANNING:
        return f"a worker chooses the files that go together{_held_by(snapshot)}"
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
    if snapshot.pending is not None:
        return pending(snapshot.pending)
    return ""


def _held_by(snapshot: TableSnapshot) -> str:
    under_way = snapshot.under_way
    if under_way is None:
        return ""
    return (
        f" ({short_worker(under_way.worker)})"
        if under_way.worker
        else " (it waits for one to take it)"
    )


def _wish(snapshot: TableSnapshot) -> str:
    wanted = snapshot.table.wanted_type
    return f"somebody asked for it to be optimized now, at least {wanted.name}" if wanted else ""


def pending(measured: Pending) -> str:
    """Pending input, and what a rewrite would make of it, as text."""
    deletes = measured.position_deletes + measured.equality_deletes
    with_deletes = f" and {count(deletes, 'delete file')}" if deletes else ""
    return (
        f"{measured.type} input: {count(measured.files, 'file')}{with_deletes} of "
        f"{size(measured.bytes)} in {count(measured.partitions, 'partition')} would become "
        f"{count(measured.files_after, 'file')} of {size(measured.bytes_after)}"
    )


def holder(snapshot: TableSnapshot, _now_ms: int) -> Iterator[Finding]:
    """Who holds the table now: nobody else evaluates or plans it meanwhile."""
    table, process, under_way = snapshot.table, snapshot.process, snapshot.under_way
    if process is not None and table.process_id == process.id:
        yield ok("held by", f"process {process.number}, id {process.id}")
    elif under_way is not None:
        what = "an evaluation" if under_way.kind is TaskKind.EVALUATE else "a planning"
        whose = (
            f" on {short_worker(under_way.worker)}"
            if under_way.worker
            else ", which no worker has taken yet"
        )
        yield ok("held by", f"{what}{whose}")
    else:
        yield ok("held by", "nobody")


def quota(snapshot: TableSnapshot, _now_ms: int) -> Iterator[Finding]:
    """How many of its group's slots the table may use at a time, and who set that."""
    table, name = snapshot.table, property_of("quota")
    if snapshot.summary is None or not snapshot.slots.total:
        return
    limit = quota_limit(table.quota, snapshot.slots.total)
    yield Finding(
        "quota",
        FindingVerdict.OK,
        f"up to {min(limit, snapshot.slots.total)} of {count(snapshot.slots.total, 'slot')} of "
        f"group {table.group!r} within its quota: {name} is {table.quota:g}, "
        f"{who_set(snapshot.summary.set_by.get(name), table)}",
        property=name,
    )


def who_set(source: str | None, table: LakeTable) -> str:
    """Who has set a property of a table, as text."""
    match source:
        case "table":
            return "set by the table"
        case "catalog":
            return f"a default of catalog {table.catalog!r}"
        case "group":
            return f"a default of group {table.group!r}"
        case _:
            return "which nobody has set"


def rules(snapshot: TableSnapshot, _now_ms: int) -> Iterator[Finding]:
    """The files of the table, and the rules of its neediest partitions."""
    summary = snapshot.summary
    if summary is None:
        return
    yield ok(
        "files",
        f"{count(summary.files, 'file')} of {size(summary.bytes)} in "
        f"{count(summary.partitions, 'partition')}, {summary.position_deletes} position and "
        f"{summary.equality_deletes} equality delete files; health {summary.score} of 100 "
        f"(Amoro's score: {summary.amoro_score})",
    )
    for partition in summary.most[:PARTITIONS_EXPLAINED_MAX]:
        for rule in partition.rules:
            yield _rule(partition, rule)


def _rule(partition: PartitionReport, rule: RuleReport) -> Finding:
    format_value = _formats(rule)
    where = place(partition.partition)
    outcome = "fired" if rule.fired else "not fired"
    return Finding(
        "rule",
        FindingVerdict.OK if rule.fired else FindingVerdict.HOLDS,
        f"{rule.type} in {where}: {rule.said}: {outcome}",
        measured=format_value(rule.measured),
        threshold=_threshold(rule, format_value),
        property=rule.name if rule.name in _PROPERTIES else None,
    )


def _threshold(rule: RuleReport, format_value: Callable[[float], str]) -> str:
    return "never (-1)" if rule.threshold < 0 else format_value(rule.threshold)


def _formats(rule: RuleReport) -> Callable[[float], str]:
    """The function that formats the values of a rule."""
    match rule.unit:
        case RuleUnit.MILLISECONDS:
            return span
        case RuleUnit.BYTES:
            return lambda value: size(int(value))
        case RuleUnit.NUMBER | None:
            return lambda value: f"{value:g}"
    assert_never(rule.unit)


def next_look(snapshot: TableSnapshot, now_ms: int) -> Iterator[Finding]:
    table = snapshot.table
    rule = ""
    if table.look_at_ms is not None and table.look_at_ms > now_ms:
        rule = f"; a rule by time may fire {until(table.look_at_ms, now_ms)}"
    yield ok(
        "next",
        f"it is looked at again {until(table.due_at_ms, now_ms)}, every {span(table.interval_ms)}; "
        f"files are read only if it has changed by then{rule}",
    )


def last_process(snapshot: TableSnapshot, now_ms: int) -> Iterator[Finding]:
    last = snapshot.last
    if last is None:
        return
    ended = ago(last.ended_at_ms or last.created_at_ms, now_ms)
    text = f"process {last.number} ({last.type.name}) ended {last.status} {ended}"
    if last.status is ProcessStatus.SUCCESS:
        yield ok("last", text)
    else:
        yield remark("last", f"{text}: {last.error or 'nobody said why'}")


FindingsSection = Callable[[TableSnapshot, int], Iterator[Finding]]
_SECTIONS: Sequence[FindingsSection] = (
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
    rules,
    next_look,
    last_process,
)
