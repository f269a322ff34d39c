"""Amoro's classes, triggers and cost, at their edges; and clocks that belong to partitions."""

from __future__ import annotations

from dataclasses import replace

import pytest

from headrace.model.tables.evaluation import EvaluatedPartition, PartitionClock, evaluate
from headrace.model.tables.files import (
    Classifier,
    DeleteFile,
    DeleteIndex,
    DeleteKind,
    FileClass,
    FileSize,
    Partition,
    TableFiles,
)
from headrace.model.tables.settings import OptimizingSettings
from headrace.model.tables.status import OptimizingType
from tests.model.tables.samples import (
    EQUALITY,
    HERE,
    NOW_MS,
    SETTINGS,
    file,
    files,
    position,
    table,
)

HOUR_MS = 3_600_000
JUST_DONE = PartitionClock(minor_ms=NOW_MS, major_ms=NOW_MS, full_ms=NOW_MS)
FULL = replace(SETTINGS, full_interval_ms=24 * HOUR_MS)


def the_one(
    found: TableFiles, settings: OptimizingSettings = SETTINGS, clock: PartitionClock = JUST_DONE
) -> EvaluatedPartition:
    (only,) = evaluate(found, settings, {HERE: clock}, now_ms=NOW_MS)
    return only


def class_of(size: int, *deletes: DeleteFile, rows: int = 100) -> FileClass:
    one = file(size, rows=rows, deletes=tuple(range(len(deletes))))
    return Classifier(DeleteIndex(table([one], deletes)), SETTINGS).of(one)


@pytest.mark.parametrize(
    ("size", "expected"),
    [
        (1, FileSize.FRAGMENT),
        (16, FileSize.FRAGMENT),
        (17, FileSize.UNDERSIZED),
        (96, FileSize.UNDERSIZED),
        (97, FileSize.REACHED),
        (500, FileSize.REACHED),
    ],
)
def test_sizes_are_classed_at_amoros_limits(size: int, expected: FileSize) -> None:
    assert class_of(size) == FileClass(expected, rewrite=False, laden=False, combine=False)


def test_a_rewrite_segment_has_more_rows_deleted_by_position_than_the_ratio() -> None:
    assert not class_of(100, position(10)).rewrite
    assert class_of(100, position(11)).rewrite
    assert class_of(100, position(6), position(5)).rewrite
    vector = DeleteFile("dv", DeleteKind.VECTOR, bytes=1, rows=11)
    assert class_of(20, vector).rewrite


def test_equality_deletes_make_no_rewrite_segment() -> None:
    found = class_of(100, replace(EQUALITY, rows=1_000), position(10))

    assert not found.rewrite
    assert found.laden


def test_a_fragment_is_a_fragment_whatever_is_deleted_of_it() -> None:
    assert not class_of(16, position(90), EQUALITY).rewrite


def test_a_file_is_laden_by_an_equality_delete_or_by_several_position_deletes() -> None:
    assert class_of(100, EQUALITY).laden
    assert class_of(100, position(1), position(1)).laden
    assert not class_of(100, position(1)).laden  # one delete for one file costs a scan little


@pytest.mark.parametrize(("fragments", "minor"), [(12, True), (11, False)])
def test_twelve_fragments_are_a_minor(fragments: int, *, minor: bool) -> None:
    result = the_one(table(files(*[1] * fragments)))

    assert result.type == (OptimizingType.MINOR if minor else None)
    first = next(r for r in result.rules if r.name == "self-optimizing.minor.trigger.file-count")
    assert (first.measured, first.threshold, first.fired) == (fragments, 12, minor)


def test_equality_deletes_count_among_the_fragments_once_each() -> None:
    deletes = [replace(EQUALITY, path=f"eq{n}") for n in range(10)]
    everything = tuple(range(10))
    two = [file(1, "a", deletes=everything), file(1, "b", deletes=everything)]

    assert the_one(table(two, deletes)).type is OptimizingType.MINOR
    assert the_one(table(two, [*deletes[:9], position(1)])).type is None


@pytest.mark.parametrize(
    ("sizes", "waited_ms", "minor"),
    [
        ((1, 1), HOUR_MS + 1, True),
        ((1, 1), HOUR_MS, False),
        ((1,), HOUR_MS + 1, False),
        ((1, 100), HOUR_MS + 1, False),
    ],
)
def test_two_fragments_are_a_minor_after_an_hour(
    sizes: tuple[int, ...], waited_ms: int, *, minor: bool
) -> None:
    result = the_one(table(files(*sizes)), clock=PartitionClock(minor_ms=NOW_MS - waited_ms))

    assert result.type == (OptimizingType.MINOR if minor else None)


def test_a_negative_interval_never_comes_round() -> None:
    never = replace(SETTINGS, minor_interval_ms=-1)

    assert the_one(table(files(1, 1)), never, PartitionClock()).type is None


def test_a_full_sized_file_under_several_position_deletes_is_a_minor_at_once() -> None:
    deletes = [position(1), position(1)]

    assert the_one(table([file(100, deletes=(0, 1))], deletes)).type is OptimizingType.MINOR
    assert the_one(table([file(96, deletes=(0, 1))], deletes)).type is None
    assert the_one(table([file(100, deletes=(0,))], deletes)).type is None


@pytest.mark.parametrize(
    ("sizes", "major"),
    [
        ((64, 64), True),
        ((32, 96), True),
        ((63, 64), False),  # not enough for one file of the target size
        ((65, 65), False),  # enough, but no two fit into one
        ((64, 64, 100), True),
        ((16, 16, 96), False),  # fragments are no undersized files
    ],
)
def test_undersized_files_are_a_major_when_they_fill_a_file(
    sizes: tuple[int, ...], *, major: bool
) -> None:
    result = the_one(table(files(*sizes)))

    assert result.type == (OptimizingType.MAJOR if major else None)


def test_a_rewrite_segment_is_a_major() -> None:
    assert the_one(table([file(300, deletes=(0,))], [position(11)])).type is OptimizingType.MAJOR


def test_a_full_needs_its_interval_and_something_to_do() -> None:
    overdue = PartitionClock(full_ms=NOW_MS - 24 * HOUR_MS - 1, minor_ms=NOW_MS)
    on_time = replace(overdue, full_ms=NOW_MS - 24 * HOUR_MS)
    two, one = table(files(1, 1)), table(files(1, 50, 500))

    assert the_one(two, FULL, overdue).type is OptimizingType.FULL
    assert the_one(two, FULL, on_time).type is None
    assert the_one(one, FULL, overdue).type is None
    assert the_one(two, SETTINGS, overdue).type is None  # -1: never


@pytest.mark.parametrize(
    "found",
    [
        table([file(100, deletes=(0,))], [position(1)]),
        table([file(100, deletes=(0,))], [EQUALITY]),
        table(files(20, 20)),
        table(files(1, 1)),
    ],
)
def test_any_delete_or_two_small_files_are_enough_for_a_full(found: TableFiles) -> None:
    assert the_one(found, FULL, PartitionClock()).type is OptimizingType.FULL


def test_the_strongest_rule_decides() -> None:
    found = table([*files(*[1] * 12), *files(64, 64, partition=HERE)])

    assert the_one(found).type is OptimizingType.MAJOR
    assert {rule.type for rule in the_one(found).fired} == {
        OptimizingType.MAJOR,
        OptimizingType.MINOR,
    }


def test_clocks_belong_to_partitions() -> None:
    days = [Partition(0, f"day={n:03}") for n in range(800)]
    found = table([f for day in days for f in files(1, 1, partition=day)])
    done = PartitionClock(full_ms=NOW_MS - 1)

    result = evaluate(found, FULL, dict.fromkeys(days[:3], done), now_ms=NOW_MS)

    assert [each.partition for each in result] == days
    full = [each.partition for each in result if each.type is OptimizingType.FULL]
    assert full == days[3:]


def test_two_specs_with_the_same_path_are_two_partitions() -> None:
    other = Partition(1, HERE.key)
    found = table([*files(*[1] * 6), *files(*[1] * 6, partition=other)])

    result = evaluate(found, SETTINGS, {HERE: JUST_DONE, other: JUST_DONE}, now_ms=NOW_MS)

    assert [(each.partition, each.type) for each in result] == [(HERE, None), (other, None)]


def test_a_new_partition_waits_its_interval_from_when_it_was_seen() -> None:
    found = table(files(1, 1))

    assert the_one(found, clock=PartitionClock(seen_ms=NOW_MS - HOUR_MS)).type is None
    assert (
        the_one(found, clock=PartitionClock(seen_ms=NOW_MS - HOUR_MS - 1)).type
        is OptimizingType.MINOR
    )
    assert the_one(found, clock=PartitionClock()).type is OptimizingType.MINOR


def test_a_table_that_is_switched_off_needs_nothing_and_still_says_why() -> None:
    off = replace(SETTINGS, enabled=False)
    result = the_one(table(files(*[1] * 12)), off)

    assert result.type is None
    assert [rule.name for rule in result.fired] == ["self-optimizing.minor.trigger.file-count"]


def test_files_within_the_tolerance_are_left_alone_unless_deletes_apply() -> None:
    sizes = (90, 90, 10)  # lacking 6, 6 and 86 of 96: a mean square of 2489.3
    found = table(files(*sizes))
    undersized = table([file(64, "a"), file(64, "b")])

    assert the_one(found).measured.size_error == pytest.approx((36 + 36 + 86**2) / 3)
    assert the_one(undersized, replace(SETTINGS, mse_tolerance_bytes=33)).type is None
    assert the_one(undersized, replace(SETTINGS, mse_tolerance_bytes=32)).type is not None
    laden = table([file(64, "a", deletes=(0,)), file(64, "b")], [EQUALITY])
    assert the_one(laden, replace(SETTINGS, mse_tolerance_bytes=33)).type is not None


def test_the_cost_is_amoros() -> None:
    found = table(
        [
            file(10, "a"),
            file(50, "b"),
            file(100, "c", deletes=(0,)),
            file(110, "d", deletes=(1,)),
            file(120, "e"),
        ],
        [position(11, size=7), replace(EQUALITY, bytes=3)],
    )

    assert the_one(found).cost == 2 * (10 + 50 + 100) + 110 // 10 + 7 + 3 + 4 * (4 + 2)


def test_a_table_without_files_has_nothing_to_evaluate() -> None:
    assert evaluate(table([]), SETTINGS, {}, now_ms=NOW_MS) == []
