"""Bins are cut into tasks: none is lost, neighbours stay together, and no task has too much."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st

from headrace.model.tables.bins import Bin, group
from headrace.model.tables.files import Partition
from tests.examples import examples
from tests.model.tables.samples import HERE, file


def of(size: int, deletes: int = 0, partition: Partition = HERE) -> Bin:
    return Bin(
        partition, (file(size, partition=partition),), frozenset(), size, deletes, size, outputs=1
    )


def sizes(tasks: Sequence[Sequence[Bin]]) -> list[list[int]]:
    return [[each.read_bytes for each in task] for task in tasks]


def test_small_bins_share_a_task_and_a_large_one_has_its_own() -> None:
    made = group([of(10), of(20), of(100), of(30), of(70)], task_bytes=100, bins_max=64)

    assert sizes(made) == [[10, 20], [100], [30, 70]]


def test_deletes_count_and_a_bin_beyond_the_limit_is_still_taken() -> None:
    made = group([of(60, deletes=60), of(40, deletes=30), of(10)], task_bytes=100, bins_max=64)

    assert sizes(made) == [[120], [70, 10]]


def test_no_bins_are_no_tasks() -> None:
    assert group([], task_bytes=100, bins_max=64) == []


any_bins = st.lists(st.builds(of, st.integers(0, 150), st.integers(0, 60)), max_size=40)


@examples(100)
@given(bins=any_bins, task_bytes=st.integers(1, 200), bins_max=st.integers(1, 8))
def test_every_bin_is_in_one_task_in_its_order_within_the_limits(
    bins: list[Bin], task_bytes: int, bins_max: int
) -> None:
    made = group(bins, task_bytes=task_bytes, bins_max=bins_max)

    assert [each for task in made for each in task] == bins
    for task in made:
        assert 1 <= len(task) <= bins_max
        assert len(task) == 1 or sum(each.read_bytes for each in task) <= task_bytes
    # Greedy: two neighbours are two tasks only because the first bin of the second had no room.
    for task, following in itertools.pairwise(made):
        read = sum(each.read_bytes for each in task)
        assert len(task) == bins_max or read + following[0].read_bytes > task_bytes
