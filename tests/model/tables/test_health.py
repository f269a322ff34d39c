"""Two scores: Amoro's, by hand from its formula, and the share of a scan that is of use."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from headrace.model.tables.assessment import amoro_score, scan_score
from headrace.model.tables.files import Partition, TableFiles, measure
from tests.model.tables.samples import EQUALITY, SETTINGS, file, files, position, table


def amoro(found: TableFiles) -> int:
    return amoro_score(list(measure(found, SETTINGS).values()), SETTINGS)


def scan(found: TableFiles) -> int:
    return scan_score(measure(found, SETTINGS).values(), SETTINGS)


def test_an_empty_table_and_one_good_file_are_healthy() -> None:
    for found in (table([]), table(files(128)), table(files(100, 100, 100))):
        assert amoro(found) == 100
    assert scan(table([])) == scan(table(files(128))) == 100


@pytest.mark.parametrize(
    ("sizes", "score"),
    [
        # f = min(n,12)/12 * min(bytes,96)/96; 60 + ceil(40 - 40 f (1 - avg/96))
        ((8,) * 12, 60 + 4),  # f = 1, avg 8: 40 - 36.67 = 3.33
        ((8,) * 24, 60 + 4),
        ((8,) * 6, 60 + 31),  # f = 0.5 * 0.5: 40 - 9.17 = 30.83
        ((8,), 100),  # f = 0 for a single file
        ((60, 60), 60 + 38),  # f = 1/6, avg 60: 40 - 2.5 = 37.5
    ],
)
def test_small_files_cost_up_to_forty_points_with_amoro(sizes: Sequence[int], score: int) -> None:
    assert amoro(table(files(*sizes))) == score


def test_deletes_cost_up_to_forty_and_twenty_points_with_amoro() -> None:
    data = [file(96, f"{n}", rows=100, deletes=(0,)) for n in range(12)]  # f = 1, avg = 96

    assert amoro(table(data, [EQUALITY])) == 100 - 1  # 5 of 1200 rows: ceil(40 - 1.67)
    half = [replace(EQUALITY, rows=60)]
    assert amoro(table(data, half)) == 60 + 20  # 60 of 1200 is half of 0.1
    assert amoro(table(data, [position(120)])) == 80 + 10  # 120 of 1200 is half of 0.2
    assert amoro(table(data, [position(10_000)])) == 80


def test_amoros_table_score_is_the_mean_whatever_a_partition_holds() -> None:
    large = files(*[128] * 100, partition=Partition(0, "large"))
    broken = files(*[8] * 12, partition=Partition(0, "small"))

    assert amoro(table([*large, *broken])) == (100 + 64) / 2
    # What a reader notices: 96 bytes of 12,896 lie badly, and cost 48 instead of 4 to open.
    assert scan(table([*large, *broken])) >= 99


def test_a_scan_of_many_small_files_is_mostly_opening_them() -> None:
    # 128 bytes in one file cost 132 to read, in 128 files 128 + 512.
    assert scan(table(files(*[1] * 128))) == 132 * 100 // 640


def test_every_pair_of_a_file_and_a_delete_costs_a_scan() -> None:
    clean = table(files(*[100] * 4))
    laden = table([file(100, f"{n}", deletes=(0, 1)) for n in range(4)], [EQUALITY, EQUALITY])

    assert scan(clean) == 100
    assert scan(laden) == (400 + 4 * 4) * 100 // (400 + 4 * 4 + 8 * 4 + 2 * 2)


def test_rows_that_are_gone_are_no_use_to_a_scan() -> None:
    assert scan(table([file(100, rows=100, deletes=(0,))], [position(50)])) < 55
    assert scan(table([file(100, rows=100, deletes=(0,))], [position(100)])) < 5
