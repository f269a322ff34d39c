"""What an evaluation measured, in words: pending input, and each rule with how far it is from
firing."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from headrace.coordinator.tables.finding import Finding, Verdict, ok
from headrace.coordinator.tables.standing import Standing
from headrace.model.measures import count, size, span
from headrace.model.measures import partition as place
from headrace.model.tables.settings import PROPERTIES
from headrace.protocol.tables import PartitionTold, Pending, RuleTold

PARTITIONS_EXPLAINED_MAX = 3  # the neediest
_PROPERTIES = frozenset(prop.name for prop in PROPERTIES)
_MILLISECONDS, _BYTES = "milliseconds ", "bytes "


def pending(found: Pending) -> str:
    deletes = found.position_deletes + found.equality_deletes
    with_deletes = f" and {count(deletes, 'delete file')}" if deletes else ""
    return (
        f"{found.type} input: {count(found.files, 'file')}{with_deletes} of {size(found.bytes)} in "
        f"{count(found.partitions, 'partition')} would become {count(found.files_after, 'file')} "
        f"of {size(found.bytes_after)}"
    )


def nothing_to_do(standing: Standing) -> str:
    """Why a table that nothing stands in the way of is at rest."""
    summary = standing.summary
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


def rules(standing: Standing, _now_ms: int) -> Iterator[Finding]:
    summary = standing.summary
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


def _rule(partition: PartitionTold, rule: RuleTold) -> Finding:
    said, told = _unit_of(rule)
    where = place(partition.partition)
    outcome = "fired" if rule.fired else "not fired"
    return Finding(
        "rule",
        Verdict.OK if rule.fired else Verdict.HOLDS,
        f"{rule.type} in {where}: {said}: {outcome}",
        measured=told(rule.measured),
        threshold=_threshold(rule, told),
        property=rule.name if rule.name in _PROPERTIES else None,
    )


def _threshold(rule: RuleTold, told: Callable[[float], str]) -> str:
    return "never (-1)" if rule.threshold < 0 else told(rule.threshold)


def _unit_of(rule: RuleTold) -> tuple[str, Callable[[float], str]]:
    """What is measured, without its unit, and how values of it are told."""
    if rule.said.startswith(_MILLISECONDS):
        return f"time {rule.said.removeprefix(_MILLISECONDS)}", span
    if rule.said.startswith(_BYTES):
        return f"data {rule.said.removeprefix(_BYTES)}", lambda value: size(int(value))
    return rule.said, lambda value: f"{value:g}"
