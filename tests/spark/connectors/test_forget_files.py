"""What an ended job leaves at a folder, through the sink and what Spark itself has written."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from pydantic import JsonValue
from pyspark.sql import SparkSession

from headrace.connectors.files.places import Places
from headrace.connectors.files.sink import FileSink
from headrace.model.jobs.epoch import STRAY_GRACE_S
from headrace.spark.filesystem import HadoopFiles
from tests.connectors.files.folder_target import forget
from tests.fakes import FakeClock
from tests.spark.folder import lines, numbers, sink, written
from tests.spark.settings import at, setting

OTHER = "fedcba9876543210fedcba9876543210"


def committed(
    session: SparkSession, to: FileSink, epoch: int, incarnation: str | None = None
) -> JsonValue:
    here = at(epoch) if incarnation is None else at(epoch, incarnation=incarnation)
    handle = to.stage(session, numbers(session, 4, first=epoch * 10), here).handle
    to.commit(session, handle, here)
    return handle


@pytest.mark.req("C5")
def test_strays_go_by_the_clock_of_the_sink_and_without_owners_nothing_is_one(
    session: SparkSession, tmp_path: Path
) -> None:
    folder = tmp_path / "out"
    written_at_ms = 1_700_000_000_000
    clock = FakeClock(wall_ms=written_at_ms)
    to = FileSink("LocalFile-1", *setting("LocalFile", "sink", {"path": str(folder)}, clock=clock))
    committed(session, to, 1, OTHER)
    to.stage(session, numbers(session, 4), at(2, incarnation=OTHER))
    hidden = folder / "_headrace" / OTHER
    for path in (hidden, *hidden.rglob("*")):
        os.utime(path, (written_at_ms / 1000, written_at_ms / 1000))
    clock.advance(STRAY_GRACE_S)

    to.forget(session, at(9), owners=())
    assert hidden.exists(), "not before the grace is over"
    clock.advance(1)
    to.forget(session, at(9), owners=None)
    to.forget(session, at(9), owners=(OTHER,))
    assert hidden.exists()
    to.forget(session, at(9), owners=("somebody else",))

    assert not (folder / "_headrace").exists()
    assert len(lines(folder)) == 4


@pytest.mark.req("C2")
def test_it_is_the_same_through_hadoop(session: SparkSession, tmp_path: Path) -> None:
    folder = tmp_path / "out"
    to = sink(folder)
    for epoch in (1, 2, 3):
        committed(session, to, epoch)
    to.stage(session, numbers(session, 4), at(1, "t1.0"))
    files = HadoopFiles(session, f"file:{folder}", {})

    forget(files, Places(at(2, "f.1"), "LocalFile-1"))

    left = [info.path for info in files.entries(Places(at(3), "LocalFile-1").sink_folder)]
    assert left[0] == Places(at(3), "LocalFile-1").epoch_folder
    assert all("/3" in path for path in left)
    forget(files, Places(at(3, "f.1"), "LocalFile-1"))
    assert files.entries("_headrace") == []
    assert not files.exists("_headrace")
    assert len(written(folder)) == len({*written(folder)}) > 0
    assert len(lines(folder)) == 12
