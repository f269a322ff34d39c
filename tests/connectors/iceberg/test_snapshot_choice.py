"""Which snapshots come next: in batch, and while rows are appended, compacted and expired."""

from __future__ import annotations

from typing import Any

import pytest

from headrace.connectors.iceberg.source import (
    Batch,
    ChosenSnapshots,
    SnapshotPosition,
    Strategy,
    Stream,
    choose_batch,
    choose_stream,
)
from headrace.errors import Refused
from headrace.lake.iceberg.snapshots import History, SnapshotGone

LATEST = Stream(Strategy.LATEST)
EARLIEST = Stream(Strategy.EARLIEST)
TABLE = Stream(Strategy.TABLE)


def history(*told: tuple[int, str], rows: int = 10, expired: int = 0, current: int = 0) -> History:
    """Snapshots (id, operation), each the parent of the next; the first `expired` are gone."""
    snapshots: list[dict[str, Any]] = []
    for number, (snapshot, operation) in enumerate(told):
        summary = {"operation": operation, "total-records": "99"}
        if operation in {"append", "overwrite"}:
            summary |= {"added-data-files": "1", "added-records": str(rows)}
        if operation in {"delete", "replace", "overwrite"}:
            summary |= {"deleted-data-files": "1"}
        if operation == "empty":
            summary |= {"operation": "delete"}
        one: dict[str, Any] = {
            "snapshot-id": snapshot,
            "timestamp-ms": snapshot * 100,
            "summary": summary,
            "schema-id": 0,
        }
        if number > 0:
            one["parent-snapshot-id"] = told[number - 1][0]
        snapshots.append(one)
    metadata: dict[str, Any] = {
        "snapshots": snapshots[expired:],
        "current-snapshot-id": current or (told[-1][0] if told else -1),
        "current-schema-id": 0,
        "schemas": [{"schema-id": 0, "fields": [{"id": 1, "name": "id", "type": "long"}]}],
    }
    return History.of("c.n.t", metadata)


def what(choice: ChosenSnapshots | None) -> str:
    """`=3` is snapshot 3 as a whole, `1..3` what was appended behind 1 up to 3."""
    assert choice is not None
    part = choice.part
    return f"={part.whole}" if part.whole is not None else f"{part.after}..{part.until}"


def at(snapshot: int | None) -> SnapshotPosition:
    return SnapshotPosition(snapshot=snapshot)


APPENDS = [(1, "append"), (2, "append"), (3, "append")]


def test_a_batch_reads_the_current_snapshot_once() -> None:
    choice = choose_batch(history(*APPENDS), None, Batch(), rows_max=5)
    assert choice is not None
    assert (what(choice), choice.rows, choice.last) == ("=3", 99, True)
    assert choose_batch(history(*APPENDS), choice.after, Batch(), rows_max=5) is None


@pytest.mark.parametrize(
    ("wanted", "said"),
    [
        (Batch(snapshot=2), "=2"),
        (Batch(at_ms=250), "=2"),
        (Batch(at_ms=200), "=2"),
        (Batch(start=1), "1..3"),
        (Batch(start=1, end=2), "1..2"),
        (Batch(end=2), "=1"),
    ],
)
def test_a_batch_reads_what_its_options_name(wanted: Batch, said: str) -> None:
    assert what(choose_batch(history(*APPENDS), None, wanted, rows_max=None)) == said


def test_a_batch_over_a_range_ends_where_it_ended_when_it_began() -> None:
    first = choose_batch(history(*APPENDS), None, Batch(start=1), rows_max=10)
    assert first is not None
    assert (what(first), first.last) == ("1..2", False)
    later = history(*APPENDS, (4, "append"))
    second = choose_batch(later, first.after, Batch(start=1), rows_max=10)
    assert second is not None
    assert (what(second), second.last) == ("2..3", True)
    assert choose_batch(later, second.after, Batch(start=1), rows_max=10) is None


@pytest.mark.parametrize(
    "wanted", [Batch(snapshot=1), Batch(at_ms=99), Batch(start=1), Batch(end=1)]
)
def test_a_batch_that_names_an_expired_snapshot_is_refused(wanted: Batch) -> None:
    kept = history((1, "append"), (2, "append"), (3, "append"), expired=2)
    with pytest.raises(SnapshotGone, match=r"c\.n\.t"):
        choose_batch(kept, None, wanted, rows_max=None)


def test_a_table_without_a_snapshot_has_nothing_for_a_batch() -> None:
    assert choose_batch(history(), None, Batch(), rows_max=None) is None


@pytest.mark.parametrize(
    ("wanted", "said"),
    [
        (LATEST, "2..3"),
        (EARLIEST, "=1"),
        (TABLE, "=3"),
        (Stream(Strategy.SNAPSHOT, snapshot=2), "1..3"),
        (Stream(Strategy.SNAPSHOT, snapshot=1), "=1"),
        (Stream(Strategy.TIMESTAMP, at_ms=150), "1..3"),
    ],
)
def test_a_stream_begins_where_its_strategy_says(wanted: Stream, said: str) -> None:
    assert what(choose_stream(history(*APPENDS), None, wanted, rows_max=None)) == said


def test_a_stream_goes_on_with_what_was_appended_since() -> None:
    choice = choose_stream(history(*APPENDS), at(1), TABLE, rows_max=None)
    assert choice is not None
    assert (what(choice), choice.rows, choice.last) == ("1..3", 20, False)
    assert choose_stream(history(*APPENDS), choice.after, TABLE, rows_max=None) is None


def test_a_stream_is_cut_between_snapshots_and_never_inside_of_one() -> None:
    found = history(*APPENDS, (4, "append"))
    assert what(choose_stream(found, at(1), TABLE, rows_max=20)) == "1..3"
    assert what(choose_stream(found, at(1), TABLE, rows_max=3)) == "1..2"
    compacted = history((1, "append"), (2, "replace"), (3, "append"), (4, "append"))
    assert what(choose_stream(compacted, at(1), TABLE, rows_max=3)) == "1..3"


@pytest.mark.req("E4")
def test_compaction_is_stepped_over() -> None:
    found = history((1, "append"), (2, "append"), (3, "replace"), (4, "append"))
    choice = choose_stream(found, at(1), TABLE, rows_max=None)
    assert choice is not None
    assert (what(choice), choice.rows) == ("1..4", 20)


@pytest.mark.req("E4")
def test_compaction_alone_moves_the_position_so_that_it_may_be_expired_later() -> None:
    compacted = history((1, "append"), (2, "replace"), expired=1)
    choice = choose_stream(compacted, at(1), TABLE, rows_max=None)
    assert choice is not None
    assert (what(choice), choice.rows) == ("1..2", 0)
    again = history((1, "append"), (2, "replace"), (3, "replace"), expired=2)
    assert what(choose_stream(again, choice.after, TABLE, rows_max=None)) == "2..3"


@pytest.mark.req("E4")
def test_rows_that_were_expired_unread_are_refused_and_not_skipped() -> None:
    kept = history((1, "append"), (2, "append"), (3, "replace"), expired=2)
    with pytest.raises(SnapshotGone, match="expired before they were read"):
        choose_stream(kept, at(1), TABLE, rows_max=None)


@pytest.mark.parametrize("operation", ["delete", "overwrite"])
def test_what_takes_rows_away_is_refused_behind_what_came_before(operation: str) -> None:
    found = history((1, "append"), (2, "append"), (3, operation), (4, "append"))
    before = choose_stream(found, at(1), TABLE, rows_max=None)
    assert before is not None
    assert what(before) == "1..2"
    with pytest.raises(Refused, match=rf"snapshot 3 of c\.n\.t is of the operation '{operation}'"):
        choose_stream(found, before.after, TABLE, rows_max=None)


def test_a_delete_that_deleted_nothing_is_stepped_over() -> None:
    found = history((1, "append"), (2, "empty"), (3, "append"))
    assert what(choose_stream(found, at(1), TABLE, rows_max=None)) == "1..3"


def test_a_table_that_was_rolled_back_is_refused() -> None:
    found = history(*APPENDS, current=2)
    with pytest.raises(SnapshotGone, match=r"rolled back: snapshot 3"):
        choose_stream(found, at(3), TABLE, rows_max=None)


@pytest.mark.parametrize("wanted", [LATEST, EARLIEST, TABLE])
def test_a_stream_that_began_before_the_first_snapshot_misses_none(wanted: Stream) -> None:
    begun = choose_stream(history(), None, wanted, rows_max=None)
    assert begun is not None
    assert begun.rows == 0
    first = choose_stream(history(*APPENDS), begun.after, wanted, rows_max=None)
    assert first is not None
    assert what(first) == "=1"
    assert what(choose_stream(history(*APPENDS), first.after, wanted, rows_max=None)) == "1..3"


def test_a_latest_snapshot_without_new_rows_is_where_reading_begins() -> None:
    begun = choose_stream(history((1, "append"), (2, "replace")), None, LATEST, rows_max=None)
    assert begun is not None
    assert (what(begun), begun.rows, begun.after) == ("2..2", 0, at(2))


def test_an_earliest_snapshot_whose_parent_was_expired_is_read_itself() -> None:
    kept = history(*APPENDS, expired=1)
    assert what(choose_stream(kept, None, EARLIEST, rows_max=None)) == "1..3"


def test_a_time_before_the_oldest_kept_snapshot_is_refused_when_others_were_expired() -> None:
    wanted = Stream(Strategy.TIMESTAMP, at_ms=150)
    with pytest.raises(SnapshotGone, match="others before it were expired"):
        choose_stream(history(*APPENDS, expired=1), None, wanted, rows_max=None)
    assert (
        choose_stream(history(*APPENDS), None, Stream(Strategy.TIMESTAMP, at_ms=301), rows_max=None)
        is None
    )
