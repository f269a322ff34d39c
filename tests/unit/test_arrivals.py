"""Which files come next, in batch and while they arrive."""

from __future__ import annotations

import pytest

from headrace.connectors.arrivals import (
    LATE_MAX_MS,
    ROW_BYTES_GUESS,
    SEEN_MAX,
    Position,
    choose_arrived,
    choose_batch,
)
from headrace.errors import Refused
from headrace.formats.files.filesystem import FileInfo


def file(name: str, modified_ms: int = 0, size: int = 10) -> FileInfo:
    return FileInfo(name, size, modified_ms)


def paths(files: object) -> list[str]:
    return [info.path for info in files]  # type: ignore[attr-defined]


def test_a_batch_reads_all_files_in_the_order_of_their_names() -> None:
    choice = choose_batch([file("b"), file("a"), file("c")], None, rows_max=None)
    assert (paths(choice.files), choice.last) == (["a", "b", "c"], True)


def test_a_batch_is_cut_by_files_and_goes_on_where_it_stopped() -> None:
    found = [file(name, size=ROW_BYTES_GUESS) for name in "abcde"]
    position: Position | None = None
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

    assert paths(choose_arrived(found, position, rows_max=None).files) == ["late"]


def test_a_position_does_not_grow_and_loses_nothing_that_comes_in_order() -> None:
    position: Position | None = None
    found: list[FileInfo] = []
    read: list[str] = []
    for number in range(3 * SEEN_MAX):
        found.append(file(f"{number:06d}", number // 7))
        if number % 500 == 499:
            choice = choose_arrived(found, position, rows_max=None)
            position = choice.after
            read += paths(choice.files)
            assert len(position.seen) <= SEEN_MAX
    assert read == [info.path for info in found]


def test_a_position_survives_the_store() -> None:
    position = choose_arrived([file("a", 5)], None, rows_max=None).after
    stored = position.model_dump(mode="json", exclude_defaults=True)
    assert Position.model_validate(stored) == position


def test_a_file_that_was_changed_after_it_was_read_is_refused() -> None:
    position = choose_arrived([file("a", 5)], None, rows_max=None).after
    with pytest.raises(Refused, match="a was changed after it was read"):
        choose_arrived([file("a", 6)], position, rows_max=None)
