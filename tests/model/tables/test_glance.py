"""What totals alone say of a table."""

from __future__ import annotations

import pytest

from headrace.model.tables.assessment import SnapshotTotals, estimated_scores, looks_healthy
from tests.model.tables.samples import SETTINGS


def totals(
    files: int, size: int, *, deletes: int = 0, positions: int = 0, equal: int = 0
) -> SnapshotTotals:
    return SnapshotTotals(files, size, 1_000, deletes, positions, equal)


@pytest.mark.parametrize(
    ("told", "expected"),
    [
        (totals(0, 0), True),
        (totals(10, 970), True),  # 97 each: one more than undersized
        (totals(10, 960), False),
        (totals(10, 1_280, deletes=1, positions=1), False),
        (None, False),  # nobody told: a scan has to
    ],
)
def test_the_pre_check_is_amoros_at_its_edge(
    told: SnapshotTotals | None, *, expected: bool
) -> None:
    assert looks_healthy(told, SETTINGS) is expected


def test_delete_files_are_split_by_what_their_rows_tell() -> None:
    only = totals(1, 1, deletes=4, equal=9)
    both = totals(1, 1, deletes=4, positions=1, equal=999)

    assert (only.equality_delete_files, only.position_delete_files) == (4, 0)
    assert (both.equality_delete_files, both.position_delete_files) == (3, 1)
    assert totals(1, 1, deletes=4, positions=9).position_delete_files == 4


def test_an_estimate_falls_with_small_files_and_with_deletes() -> None:
    healthy = estimated_scores(totals(10, 1_280), SETTINGS)
    small = estimated_scores(totals(100, 200), SETTINGS)
    deleted = estimated_scores(totals(10, 1_280, deletes=10, positions=500), SETTINGS)

    assert estimated_scores(totals(0, 0), SETTINGS) == (100, 100)
    assert healthy[0] > 90
    assert healthy[1] == 100
    assert small < healthy
    assert deleted < healthy
