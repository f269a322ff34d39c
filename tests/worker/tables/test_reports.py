"""What is told of a table is bounded, whatever the table is like."""

from __future__ import annotations

from headrace.lake.table_format import Probe
from headrace.model.tables.assessment import assess
from headrace.model.tables.evaluation import PartitionClock
from headrace.model.tables.files import Partition
from headrace.protocol.tables import CLOCKS_MAX, PARTITIONS_NAMED_MAX, RULES_REPORTED_MAX
from headrace.worker.tables.evaluation import (
    SEEN_REPORTED_MAX,
    first_seen,
    pending_of,
    summary_of,
    totals_of,
)
from tests.model.tables.samples import NOW_MS, SETTINGS, files, table

MANY = SEEN_REPORTED_MAX + 7


def days(count: int) -> list[Partition]:
    return [Partition(0, f"day={n:05}") for n in range(count)]


def test_thousands_of_partitions_are_counted_and_the_first_are_told() -> None:
    found = table([file for day in days(MANY) for file in files(1, 1, partition=day)])
    result = assess(found, SETTINGS, {}, now_ms=NOW_MS)

    pending, summary = pending_of(result, found, SETTINGS), summary_of(result, found, SETTINGS)

    assert pending is not None
    assert (pending.partitions, len(pending.told)) == (MANY, PARTITIONS_NAMED_MAX)
    assert (summary.partitions, summary.due, len(summary.most)) == (MANY, MANY, RULES_REPORTED_MAX)
    assert first_seen(result.evaluated, {}) == ()  # due at once: no time of theirs begins


def test_no_more_clocks_are_asked_for_than_are_kept() -> None:
    found = table([file for day in days(MANY) for file in files(1, partition=day)])
    result = assess(found, SETTINGS, {}, now_ms=NOW_MS)

    assert len(first_seen(result.evaluated, {})) == SEEN_REPORTED_MAX
    known = {Partition(9, str(n)): PartitionClock(seen_ms=1) for n in range(CLOCKS_MAX - 3)}
    assert len(first_seen(result.evaluated, known)) == 3
    full = {Partition(9, str(n)): PartitionClock(seen_ms=1) for n in range(CLOCKS_MAX + 3)}
    assert first_seen(result.evaluated, full) == ()


def test_totals_that_no_writer_told_are_not_taken_for_none() -> None:
    def probed(snapshot: int | None, count: int | None) -> Probe:
        return Probe("u", "p", 2, snapshot, 1, None, count, count, count, None, None, None, {})

    assert totals_of(probed(7, None)) is None
    nothing, something = totals_of(probed(None, None)), totals_of(probed(7, 4))
    assert nothing is not None
    assert something is not None
    assert (nothing.files, something.files, something.delete_files) == (0, 4, 0)
