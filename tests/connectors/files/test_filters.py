"""Which files of a listing are read."""

from __future__ import annotations

from typing import Any

import pytest

from headrace.connectors.files.filters import FileFilter, split_glob
from headrace.connectors.files.source_options import FileFilterOptions
from headrace.spark.filesystem import FileInfo

NAMES = ("a.csv", "b.txt", "2026-01/c.csv", "2026-02/k=1/d.csv", "2026-02/k=12/e.csv")


def read(glob: str | None = None, **options: Any) -> list[str]:
    given: dict[str, Any] = {
        "name_pattern": None,
        "extension": None,
        "modified_from_ms": None,
        "modified_until_ms": None,
        "partitions": (),
        "recursive": True,
    }
    made = FileFilter(FileFilterOptions(**{**given, **options}), glob)
    listing = [FileInfo(name, 1, number) for number, name in enumerate(NAMES)]
    found = [one.path for one in listing if made.accepts(one, "file:/data")]
    return [name.rpartition("/")[2][0] for name in found]


@pytest.mark.parametrize(
    ("glob", "found"),
    [
        ("*.csv", "a"),
        ("**/*.csv", "acde"),
        ("2026-*", "cde"),
        ("2026-0[2-3]", "de"),
        ("2026-0[!2]", "c"),
        ("{a,b}.*", "ab"),
        ("2026-0?/*.csv", "c"),
        ("?.{csv,x}", "a"),
        ("*/k=*/*", "de"),
        ("c*", ""),
    ],
)
def test_a_glob_fits_files_and_whole_folders(glob: str, found: str) -> None:
    assert "".join(read(glob)) == found


def test_a_glob_begins_at_the_first_name_that_is_one() -> None:
    assert split_glob("/data/in[1]/x") == ("/data/in[1]/x", None)
    assert split_glob("/data/2026-*/a.csv") == ("/data", "2026-*/a.csv")
    assert split_glob("hdfs://n:1/in/*/") == ("hdfs://n:1/in", "*")
    assert split_glob("/*") == ("/", "*")


@pytest.mark.parametrize(
    ("options", "found"),
    [
        ({}, "abcde"),
        ({"name_pattern": r"[ab]\..*"}, "ab"),
        ({"name_pattern": r"/data/2026-\d+/.*"}, "cde"),
        ({"name_pattern": r"2026-\d+/.*"}, ""),
        ({"extension": "csv"}, "acde"),
        ({"extension": ".txt"}, "b"),
        ({"modified_from_ms": 1}, "bcde"),
        ({"modified_until_ms": 1}, "a"),
        ({"modified_from_ms": 1, "modified_until_ms": 3}, "bc"),
        ({"partitions": ("k=1",)}, "d"),
        ({"partitions": ("2026-02/k=1", "k=12/")}, "de"),
        ({"recursive": False}, "ab"),
    ],
)
def test_files_are_chosen_by_name_time_and_folder(options: dict[str, Any], found: str) -> None:
    assert "".join(read(**options)) == found


def test_a_folder_that_fits_a_glob_is_read_without_those_below_it() -> None:
    assert "".join(read("2026-*", recursive=False)) == "c"
