"""Save modes of the file sink: what each does before the first row, and that it is done once.

The finer points of the fence are tried without Spark, in tests/connectors/files/test_opening.py.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from headrace import seams
from headrace.connectors.files.sink import FileSink
from headrace.errors import Refused, StoreOlderThanTarget
from headrace.spark.filesystem import FileSystem, HadoopFiles, LocalFiles
from tests.spark.folder import lines, numbers, sink, write, written
from tests.spark.settings import at, setting


@pytest.fixture(autouse=True)
def no_seam_stays_armed() -> Iterator[None]:
    yield
    seams.disarm_all()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    target = tmp_path / "target"
    (target / "dt=1").mkdir(parents=True)
    for name in ("old.csv", "dt=1/older.csv"):
        (target / name).write_text("old\n")
    return target


def surveyed(session: SparkSession, to: FileSink, execution: str = "t1.1") -> Any:
    return to.survey(session, numbers(session, 0), at(0, execution))


@pytest.mark.parametrize(
    ("modes", "opens", "left"),
    [
        ({}, False, 2),
        ({"schema_save_mode": "IGNORE"}, False, 2),
        ({"data_save_mode": "DROP_DATA"}, True, 0),
        ({"schema_save_mode": "RECREATE_SCHEMA"}, True, 0),
        ({"schema_save_mode": "RECREATE_SCHEMA", "data_save_mode": "DROP_DATA"}, True, 0),
        ({"schema_save_mode": "ERROR_WHEN_SCHEMA_NOT_EXIST"}, True, 2),
    ],
)
def test_each_mode_leaves_the_files_it_should(
    session: SparkSession, folder: Path, modes: dict[str, str], *, opens: bool, left: int
) -> None:
    to = sink(folder, **modes)
    assert to.opens == opens
    if opens:
        done = to.open(session, surveyed(session, to), at(0))
        assert (done.already, done.facts["deleted"]) == (False, 2 - left)
    assert len(written(folder)) == left

    write(session, to, numbers(session, 3))
    to.finish(3)
    assert lines(folder) == sorted(["old"] * left + ["0,0", "1,1", "2,2"])


def test_a_folder_that_holds_files_or_is_missing_is_refused_when_the_mode_says_so(
    session: SparkSession, folder: Path, tmp_path: Path
) -> None:
    full = sink(folder, data_save_mode="ERROR_WHEN_DATA_EXISTS")
    with pytest.raises(Refused, match=r"LocalFile-1: file:.* holds files, such as .*\.csv, and"):
        surveyed(session, full)
    none = sink(tmp_path / "none", schema_save_mode="ERROR_WHEN_SCHEMA_NOT_EXIST")
    with pytest.raises(Refused, match=r"there is no folder file:.*/none; make it, or set"):
        surveyed(session, none)
    assert not (tmp_path / "none").exists(), "a survey changes nothing"

    empty = sink(tmp_path / "new", data_save_mode="ERROR_WHEN_DATA_EXISTS")
    assert not empty.open(session, surveyed(session, empty), at(0)).already
    write(session, empty, numbers(session, 3))
    assert len(lines(tmp_path / "new")) == 3


@pytest.mark.req("E1")
@pytest.mark.parametrize("hadoop", [False, True])
def test_a_zombie_that_wakes_in_epoch_0_when_epoch_1_is_in_deletes_nothing(
    session: SparkSession, folder: Path, *, hadoop: bool
) -> None:
    files: FileSystem = LocalFiles(str(folder))
    if hadoop:
        files = HadoopFiles(session, f"file:{folder}", {})
    options = {"path": str(folder), "data_save_mode": "DROP_DATA"}
    to = FileSink("LocalFile-1", *setting("LocalFile", "sink", options), files=files)
    handle = surveyed(session, to)
    assert not to.open(session, handle, at(0, "t1.2")).already
    assert lines(folder) == []
    write(session, to, numbers(session, 5))

    later = surveyed(session, to, "t1.1")  # this list holds the files of epoch 1
    assert later["files"] > 0
    assert to.open(session, later, at(0, "t1.1")).already
    assert to.open(session, handle, at(0, "t1.1")).already
    with pytest.raises(StoreOlderThanTarget):
        to.abort(session, at(0, "t1.1"))
    assert len(lines(folder)) == 5


@pytest.mark.req("E1", "E3")
def test_a_crash_between_manifest_and_deletes_is_rolled_forward_from_the_stored_handle(
    session: SparkSession, folder: Path
) -> None:
    class Crash(Exception):
        """Stands for the death of a process at a seam."""

    def crash() -> None:
        raise Crash

    to = sink(folder, data_save_mode="DROP_DATA")
    handle = surveyed(session, to)
    seams.arm("opening written", crash)
    with pytest.raises(Crash):
        to.open(session, handle, at(0))
    seams.disarm_all()
    assert lines(folder) == ["old", "old"]

    assert to.open(session, handle, at(0, "t1.2")).already
    assert lines(folder) == []
