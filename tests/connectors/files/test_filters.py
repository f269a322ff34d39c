"""Which files of a listing are read."""

from __future__ import annotations

from typing import Any

import pytest

from headrace.connectors.files.filters import FileFilter, glob_flaw, joined, split_glob
from headrace.connectors.files.source_options import FileFilterOptions
from headrace.spark.filesystem import FileInfo

NAMES = ("a.csv", "b.txt", "2026-01/c.csv", "2026-02/k=1/d.csv", "2026-02/k=12/e.csv")


def made(glob: str | None = None, **options: Any) -> FileFilter:
    given: dict[str, Any] = {
        "name_pattern": None,
        "extension": None,
        "modified_from_ms": None,
        "modified_until_ms": None,
        "partitions": (),
        "recursive": True,
    }
    return FileFilter(FileFilterOptions(**{**given, **options}), glob)


def read(glob: str | None = None, **options: Any) -> list[str]:
    chosen = made(glob, **options)
    listing = [FileInfo(name, 1, number) for number, name in enumerate(NAMES)]
    found = [one.path for one in listing if chosen.accepts(one, "file:/data")]
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


@pytest.mark.parametrize("name", ["a#1.csv", "what?.csv", "100%25.csv"])
def test_a_name_of_hdfs_is_taken_as_it_is(name: str) -> None:
    chosen = made(extension="csv", name_pattern=r"/data/[^/]*\.csv")
    assert chosen.accepts(FileInfo(name, 1, 1), "hdfs://nn:8020/data")


def test_a_glob_fits_names_with_line_ends() -> None:
    assert made("d*").accepts(FileInfo("d1/a\nb.csv", 1, 1), "file:/d")
    assert made("a\n*").accepts(FileInfo("a\nb.csv", 1, 1), "file:/d")


def test_a_glob_that_means_nothing_is_told() -> None:
    assert "bad character range z-a" in str(glob_flaw("[z-a]*"))
    assert glob_flaw("[a-z]*") is None


def test_files_below_the_root_of_a_file_system_are_named_rightly() -> None:
    assert joined("file:/", "data1/a") == "file:/data1/a"
    assert joined("file:/data", "a") == "file:/data/a"
    assert joined("file:/data", "") == "file:/data"
    chosen = made("data*/in", name_pattern="/data1/in/.*")
    assert chosen.accepts(FileInfo("data1/in/a", 1, 1), "file:/")


def test_only_folders_that_fit_the_beginning_of_a_glob_are_walked() -> None:
    assert [made("data*/in").may_hold(name) for name in ("data1", "proc")] == [True, False]
    assert all(made(glob).may_hold("x") for glob in (None, "**/a", "{x,y}*"))
