"""Which files come next, in batch and while they arrive."""

from __future__ import annotations

import json

import pytest

from headrace.connectors.files.arrivals import (
    LATE_MAX_MS,
    ROW_BYTES_GUESS,
    SEEN_BYTES_MAX,
    SEEN_MAX,
    SETTLE_MS,
    FilesPosition,
    choose_arrived,
    choose_batch,
    settled,
)
from headrace.errors import Refused
from headrace.protocol.messages import PAYLOAD_BYTES_MAX
from headrace.spark.filesystem import FileInfo


def file(name: str, modified_ms: int = 0, size: int = 10) -> FileInfo:
    return FileInfo(name, size, modified_ms)


def paths(files: object) -> list[str]:
    return [info.path for info in files]  # type: ignore[attr-defined]


def paths_of(position: FilesPosition) -> list[str]:
    return [name for _, name in position.seen]


def test_a_batch_reads_all_files_in_the_order_of_their_names() -> None:
    choice = choose_batch([file("b"), file("a"), file("c")], None, rows_max=None)
    assert (paths(choice.files), choice.last) == (["a", "b", "c"], True)


def test_a_batch_is_cut_by_files_and_goes_on_where_it_stopped() -> None:
    found = [file(name, size=ROW_BYTES_GUESS) for name in "abcde"]
    position: FilesPosition | None = None
    read: list[list[str]] = []
    for _ in range(3):
        choice = choose_batch(found, position, rows_max=2)
        read.append(paths(choice.files))
        position = choice.after
    assert read == [["a", "b"], ["c", "d"], ["e"]]
    assert choose_batch(found, position, rows_max=2).files == []


def test_a_file_larger_than_a_slice_is_a_slice() -> None:
    found = [file("a", size=10**9), file("b", size=10**9)]
    assert paths(choose_batch(found, None, rows_max=1).files) == ["a"]


def test_what_arrives_is_read_once() -> None:
    found = [file("b", 1000), file("a", 2000)]
    first = choose_arrived(found, None, rows_max=None)
    assert paths(first.files) == ["b", "a"]

    assert choose_arrived(found, first.after, rows_max=None).files == []
    found.append(file("c", 2000))
    assert paths(choose_arrived(found, first.after, rows_max=None).files) == ["c"]


def test_a_file_with_an_older_time_is_read_when_it_is_not_too_late() -> None:
    newest = 10 * LATE_MAX_MS
    position = choose_arrived([file("new", newest)], None, rows_max=None).after
    found = [file("new", newest), file("late", newest - LATE_MAX_MS), file("lost", 5)]

    choice = choose_arrived(found, position, rows_max=None)
    assert paths(choice.files) == ["late"]
    assert choice.late == 1, "one is too old"


def test_a_position_does_not_grow_and_loses_nothing_that_comes_in_order() -> None:
    position: FilesPosition | None = None
    found: list[FileInfo] = []
    read: list[str] = []
    for number in range(3 * SEEN_MAX):
        found.append(file(f"{number:06d}", number // 7))
        if number % 500 == 499:
            choice = choose_arrived(found, position, rows_max=None)
            position = choice.after
            read += paths(choice.files)
            assert len(position.seen) <= SEEN_MAX
            assert len(position.seen) + position.below == len(read)
            assert choice.late == 0
    assert read == [info.path for info in found]


def test_a_position_survives_the_store() -> None:
    position = choose_arrived([file("a", 5)], None, rows_max=None).after
    stored = position.model_dump(mode="json", exclude_defaults=True)
    assert FilesPosition.model_validate(stored) == position


@pytest.mark.req("E5")
def test_a_file_that_was_changed_after_it_was_read_is_refused() -> None:
    position = choose_arrived([file("a", 5)], None, rows_max=None).after
    with pytest.raises(Refused, match="a was changed after it was read"):
        choose_arrived([file("a", 6)], position, rows_max=None)


@pytest.mark.req("E5")
def test_a_file_that_is_changed_when_no_position_remembers_it_counts_as_a_new_one() -> None:
    """As documented: a position that has a limit can't know it from one that came in."""
    later = 1000 + 2 * LATE_MAX_MS
    position: FilesPosition | None = None
    for found in ([file("a", 1000)], [file("a", 1000), file("b", later)]):
        position = choose_arrived(found, position, rows_max=None).after
    assert position is not None
    assert (position.below, paths_of(position)) == (1, ["b"]), "a was read, and is forgotten"

    again = choose_arrived([file("a", later + 1000), file("b", later)], position, rows_max=None)

    assert paths(again.files) == ["a"]


def test_a_file_that_was_written_to_a_moment_ago_or_in_the_future_has_not_settled() -> None:
    now_ms = 10 * SETTLE_MS
    assert settled(file("old", now_ms - SETTLE_MS), now_ms=now_ms)
    assert not settled(file("young", now_ms - SETTLE_MS + 1), now_ms=now_ms)
    assert not settled(file("future", now_ms + 1), now_ms=now_ms)


def stored_bytes(position: FilesPosition) -> int:
    return len(json.dumps(position.model_dump(mode="json", exclude_defaults=True)))


def test_a_position_has_a_limit_in_bytes_after_months_of_files_with_long_names() -> None:
    position: FilesPosition | None = None
    for number in range(0, 5 * SEEN_MAX, SEEN_MAX // 4):
        many = range(number, number + SEEN_MAX // 4)
        found = [file("ü" * 200 + f"{each:09d}", each) for each in many]
        while (choice := choose_arrived(found, position, rows_max=None)).files:
            position = choice.after
            assert stored_bytes(position) < 1.1 * SEEN_BYTES_MAX
    assert position is not None
    assert position.seen


def test_a_slice_of_very_many_files_fits_into_a_plan_and_the_rest_comes_after_it() -> None:
    found = [file(f"dt=2026-11-16/{number:040d}", number) for number in range(10_000)]
    for choose in (choose_batch, choose_arrived):
        position: FilesPosition | None = None
        read: list[str] = []
        slices = 0
        while (choice := choose(found, position, rows_max=None)).files:
            files = [(info.path, info.bytes, info.modified_ms) for info in choice.files]
            plan = len(json.dumps(files)) + stored_bytes(choice.after)
            assert plan < PAYLOAD_BYTES_MAX / 3, "three sources fit into one plan"
            read += paths(choice.files)
            position = choice.after
            slices += 1
        assert (read, slices > 1) == (paths(found), True)


@pytest.mark.req("E5")
def test_each_file_is_read_once_from_whichever_position_a_job_is_restored() -> None:
    found: list[FileInfo] = []
    positions: list[FilesPosition | None] = [None]
    read: list[list[str]] = []
    for number in range(40):  # names, times and arrivals in three different orders
        found.append(file(f"{number * 7 % 40:02d}", LATE_MAX_MS + number // 3 * 1000 - number % 5))
        if number % 4 == 3:
            choice = choose_arrived(found, positions[-1], rows_max=None)
            read.append(paths(choice.files))
            positions.append(choice.after)
    assert sorted(name for names in read for name in names) == sorted(paths(found))

    for restored, position in enumerate(positions):
        again: list[str] = []
        at: FilesPosition | None = position
        while (choice := choose_arrived(found, at, rows_max=1)).files:
            again += paths(choice.files)
            at = choice.after
        assert sorted(again) == sorted(name for names in read[restored:] for name in names)
