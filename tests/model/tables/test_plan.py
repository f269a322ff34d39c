"""Which files go together, and what a plan says of itself."""

from __future__ import annotations

from dataclasses import replace

import pytest

from headrace.model.tables.assessment import assess
from headrace.model.tables.bins import Bin
from headrace.model.tables.evaluation import PartitionClock
from headrace.model.tables.files import FileTally, Partition, TableFiles
from headrace.model.tables.plan import ProcessBudget, TablePlan, advanced_clocks, plan, predict
from headrace.model.tables.settings import OptimizingSettings
from headrace.model.tables.status import OptimizingType
from tests.model.tables.samples import (
    EQUALITY,
    HERE,
    NOW_MS,
    SETTINGS,
    UNLIMITED,
    due_as,
    evaluated,
    file,
    files,
    planned_as,
    position,
    table,
)

MINOR, MAJOR, FULL = OptimizingType.MINOR, OptimizingType.MAJOR, OptimizingType.FULL


def planned(
    kind: OptimizingType, found: TableFiles, settings: OptimizingSettings = SETTINGS
) -> TablePlan:
    made = planned_as(kind, found, settings)
    assert made is not None
    return made


def sizes(each: Bin) -> list[int]:
    return [file.bytes for file in each.files]


def test_neighbours_by_path_go_together() -> None:
    found = table([file(16, path) for path in ("d", "b", "a", "c")])
    made = planned(MINOR, found, replace(SETTINGS, max_file_count=2))

    assert [[f.path for f in each.files] for each in made.bins] == [["a", "b"], ["c", "d"]]


def test_small_files_are_joined_over_the_head_of_a_larger_one() -> None:
    assert [sizes(each) for each in planned(MAJOR, table(files(60, 90, 60))).bins] == [[60, 60]]


def test_a_minor_leaves_alone_what_has_outgrown_the_fragments() -> None:
    found = table(files(10, 50, 10, 60, 100))

    assert [sizes(each) for each in planned(MINOR, found).bins] == [[10, 10]]
    assert [sizes(each) for each in planned(MAJOR, found).bins] == [[10, 50, 10]]


def test_a_single_file_without_deletes_is_no_bin() -> None:
    assert planned_as(MAJOR, table(files(5, 100))) is None
    for kind in OptimizingType:
        assert planned_as(kind, table(files(5))) is None
        assert planned_as(kind, table(files(500))) is None


def test_two_files_that_make_no_one_file_are_no_plan() -> None:
    for kind in OptimizingType:
        assert planned_as(kind, table(files(65, 65))) is None


def test_deletes_weigh_as_data_does() -> None:
    clean = table(files(*[16] * 8))
    laden = table(
        [file(16, f"{n}", deletes=(n,)) for n in range(8)],
        [position(1, size=48, path=f"{n}") for n in range(8)],
    )

    assert [sizes(each) for each in planned(MINOR, clean).bins] == [[16] * 8]
    assert [sizes(each) for each in planned(MINOR, laden).bins] == [[16] * 2] * 4
    assert all(each.read_bytes == 128 for each in planned(MINOR, laden).bins)


def test_a_delete_that_all_of_them_share_weighs_once() -> None:
    shared = table(
        [file(16, f"{n}", deletes=(0,)) for n in range(8)], [replace(EQUALITY, bytes=60)]
    )
    huge = table(
        [file(16, f"{n}", deletes=(0,)) for n in range(8)], [replace(EQUALITY, bytes=6_000)]
    )

    assert [sizes(each) for each in planned(MINOR, shared).bins] == [[16] * 4] * 2
    assert [sizes(each) for each in planned(MINOR, huge).bins] == [[16] * 8]


def test_a_clean_file_is_not_put_beside_deletes_that_fill_a_task() -> None:
    found = table([file(16, "a", deletes=(0,)), file(16, "b")], [replace(EQUALITY, bytes=113)])

    assert [sizes(each) for each in planned(MINOR, found).bins] == [[16]]


def test_the_file_count_is_a_limit() -> None:
    made = planned(MINOR, table(files(*[1] * 10)), replace(SETTINGS, max_file_count=4))

    assert sorted(len(each.files) for each in made.bins) == [2, 4, 4]


def test_a_large_file_under_deletes_becomes_files_of_the_target_size() -> None:
    found = table([file(400, rows=100, deletes=(0,))], [position(20)])
    made = planned(MAJOR, found)

    (only,) = made.bins
    assert (only.live_bytes, only.outputs) == (320, 2)
    assert [f.bytes for f in predict(found, made).files] == [160, 160]


def test_a_file_of_which_no_row_is_left_becomes_none() -> None:
    found = table([file(100, rows=10, deletes=(0,))], [position(10)])
    made = planned(MAJOR, found)

    assert made.gain.files_after == 0
    assert predict(found, made).files == []
    assert predict(found, made).deletes == []


def test_a_position_delete_over_many_files_is_spread_over_them() -> None:
    found = table([file(100, f"{n}", rows=10, deletes=(0,)) for n in range(5)], [position(10)])

    assert sum(each.live_bytes for each in planned(MAJOR, found).bins) == 5 * 80


def test_a_full_takes_all_files_only_where_it_gains() -> None:
    mixed = table(
        [
            file(120, "a"),
            file(120, "b", in_order=False),
            file(120, "c", deletes=(0,)),
            file(9, "d"),
        ],
        [position(1)],
    )
    assert [[f.path for f in b.files] for b in planned(FULL, mixed).bins] == [["b"], ["c"]]

    some = replace(SETTINGS, full_rewrite_all_files=False)
    assert [[f.path for f in b.files] for b in planned(FULL, mixed, some).bins] == [["c"]]


def test_order_alone_is_no_reason_for_a_minor() -> None:
    assert planned_as(MINOR, table([file(5, in_order=False)])) is None


def test_deletes_that_others_need_are_reserved() -> None:
    found = table(
        [file(5, "a", deletes=(0, 1)), file(5, "b"), file(50, "c", deletes=(1,))],
        [position(1), position(1)],
    )
    made = planned(MINOR, found)

    assert (made.removed, made.reserved) == ({0}, {1})
    after = predict(found, made)
    assert [d.path for d in after.deletes] == ["pos"]
    assert [f.deletes for f in after.files] == [(0,), ()]


def test_a_file_that_failed_too_often_is_left_out_and_named_and_keeps_its_deletes() -> None:
    found = table(
        [file(5, "a", deletes=(0,)), file(5, "b", deletes=(0,)), file(5, "c")], [position(1)]
    )
    made = plan(found, due_as(MINOR, found), SETTINGS, left_out={"a"})

    assert made is not None
    assert [[f.path for f in each.files] for each in made.bins] == [["b", "c"]]
    assert [f.path for f in made.left_out] == ["a"]
    assert made.reserved == {0}


def test_the_gain_is_what_the_prediction_shows() -> None:
    found = table(
        [file(10, "a", rows=10, deletes=(0,)), file(10, "b", rows=10), file(10, "c", rows=10)],
        [position(5, size=3)],
    )
    gain = planned(MINOR, found).gain

    assert (gain.files_before, gain.files_after, gain.deletes_removed) == (3, 1, 1)
    assert (gain.bytes_before, gain.bytes_after, gain.bytes_read) == (33, 25, 33)
    assert gain.benefit == pytest.approx((4 * 3 + 8) / (33 + 25))


DAYS = [Partition(0, f"day={n:03}") for n in range(40)]


def test_a_full_pass_comes_back_for_the_partitions_it_had_no_room_for() -> None:
    """The peer's clock is the table's, and its budget's leftovers wait a whole interval."""
    settings = replace(UNLIMITED, full_interval_ms=30 * 86_400_000, minor_interval_ms=-1)
    found = table([f for day in DAYS for f in files(40, 40, 40, partition=day)])
    clocks: dict[Partition, PartitionClock] = {}
    order: list[Partition] = []
    for minute in range(len(DAYS)):
        now_ms = NOW_MS + minute * 60_000
        result = assess(found, settings, clocks, now_ms=now_ms)
        made = plan(found, result.evaluated, settings, room=ProcessBudget(bytes=300))
        if made is None:
            break
        assert made.type is FULL
        order += [each.partition for each in made.bins]
        found, clocks = predict(found, made), advanced_clocks(clocks, made.done, at_ms=now_ms)

    assert order == DAYS  # each once, three at a time, in the order of their paths
    assert all(clock.full_ms is not None for clock in clocks.values())


def test_a_partition_is_split_over_processes_and_its_clock_waits_for_the_last() -> None:
    found = table(files(*[60] * 6))  # three bins of two
    first = plan(found, due_as(MAJOR, found), SETTINGS, room=ProcessBudget(bytes=1))

    assert first is not None
    assert (len(first.bins), first.left, dict(first.done)) == (1, [HERE], {})
    assert advanced_clocks({}, first.done, at_ms=NOW_MS) == {}
    rest = planned(MAJOR, predict(found, first))
    assert [sizes(each) for each in rest.bins] == [[60, 60]] * 2
    assert advanced_clocks({}, rest.done, at_ms=NOW_MS) == {
        HERE: PartitionClock(major_ms=NOW_MS, seen_ms=NOW_MS)
    }


def test_those_that_waited_longest_come_first() -> None:
    day, other = DAYS[:2]
    found = table([*files(*[9] * 12, partition=day), *files(*[1] * 12, partition=other)])
    clocks = {day: PartitionClock(minor_ms=5, full_ms=9), other: PartitionClock(minor_ms=8)}
    result = assess(found, SETTINGS, clocks, now_ms=NOW_MS)

    made = plan(found, result.evaluated, SETTINGS, room=ProcessBudget(bytes=1))

    assert made is not None
    assert ([b.partition for b in made.bins], made.left) == ([other], [day])


def test_a_pending_input_counts_what_would_be_rewritten() -> None:
    found = table(
        [*(file(5, f"{n}", rows=10, deletes=(0, 1)) for n in range(12)), file(120, "z")],
        [position(3), EQUALITY],
    )
    result = assess(found, SETTINGS, {}, now_ms=NOW_MS)

    assert result.pending is not None
    assert result.pending.data == FileTally(12, 60, 120)
    assert result.pending.position_deletes == FileTally(1, 1, 3)
    assert result.pending.equality_deletes == FileTally(1, 2, 5)
    assert (result.pending.snapshot, result.pending.type) == (7, MINOR)
    assert result.pending.partitions == [HERE]
    assert result.files.files == 13


def test_a_rule_that_fires_without_a_gain_leaves_the_table_idle() -> None:
    """Two that are due by time, one of them never to be touched again: there is nothing to join."""
    found = table(files(1, 1))
    result = assess(found, SETTINGS, {}, now_ms=NOW_MS, left_out={found.files[0].path})

    assert [each.type for each in evaluated(found)] == [MINOR]
    assert (result.plan, result.pending) == (None, None)


def test_a_process_takes_no_more_bins_and_files_than_it_has_room_for() -> None:
    found = table([*files(*[60] * 6, partition=DAYS[0]), *files(*[60] * 4, partition=DAYS[1])])
    due = due_as(MAJOR, found)

    def taken(room: ProcessBudget) -> tuple[int, list[Partition]]:
        made = plan(found, due, SETTINGS, room=room)
        assert made is not None
        return len(made.bins), list(made.left)

    assert taken(ProcessBudget()) == (5, [])
    assert taken(ProcessBudget(bins=3)) == (3, [DAYS[1]])
    assert taken(ProcessBudget(bins=2)) == (2, DAYS[:2])
    assert taken(ProcessBudget(files=9)) == (4, [DAYS[1]])
    assert taken(ProcessBudget(files=1)) == (1, DAYS[:2])  # one there is always
    assert taken(ProcessBudget(bytes=240)) == (2, DAYS[:2])  # read, not read and written
    assert taken(ProcessBudget(bytes=241)) == (3, [DAYS[1]])


def test_a_file_that_is_listed_twice_is_left_as_it_is() -> None:
    """Replacing it takes both away, and only one of them may be read again."""
    twice = file(9, "b")
    made = planned(FULL, table([file(9, "a"), twice, twice, file(9, "c")]))

    assert [[each.path for each in one.files] for one in made.bins] == [["a", "c"]]
