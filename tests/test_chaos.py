"""The verdict of `make chaos` can be a bad one."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.chaos.campaign import empty_below, verdict_of


@pytest.mark.parametrize(
    ("rows", "lost", "doubled"),
    [([1, 2, 3], 0, 0), ([1, 3], 1, 0), ([1, 2, 2, 3], 0, 1), ([2, 2], 2, 1), ([1, 2, 3, 4], 0, 0)],
)
def test_rows_that_are_lost_or_doubled_are_counted(
    rows: list[int], lost: int, doubled: int
) -> None:
    verdict = verdict_of("job", "lake", rows, last=3)

    assert (verdict.lost, verdict.doubled) == (lost, doubled)
    assert verdict.is_right == (rows == [1, 2, 3])


def test_an_empty_folder_of_a_stage_is_found(tmp_path: Path) -> None:
    (tmp_path / "_headrace" / "kept").mkdir(parents=True)
    (tmp_path / "_headrace" / "kept" / "1.json").write_text("{}")
    empty = tmp_path / "_headrace" / "stage" / "1"
    empty.mkdir(parents=True)

    assert empty_below([tmp_path]) == [str(empty)]
