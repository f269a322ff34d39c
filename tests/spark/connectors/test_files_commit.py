"""The file sink's fence with Spark, on the local file system and through Hadoop's.

Its finer points are tried without Spark, in tests/connectors/files/test_commit.py.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from headrace import seams
from headrace.connectors.files.sink import FileSink
from headrace.errors import Refused, StoreOlderThanTarget, TokenSpent, Unavailable
from headrace.spark.filesystem import HadoopFiles
from tests.spark.folder import lines, numbers, sink, written
from tests.spark.settings import at, setting


class Crash(Exception):
    """Stands for the death of a process at a seam."""


def crash() -> None:
    raise Crash


@pytest.fixture(autouse=True)
def no_seam_stays_armed() -> Iterator[None]:
    yield
    seams.disarm_all()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "target"


@pytest.mark.req("E1", "E3")
@pytest.mark.parametrize("seam", ["manifest written", "sink committed"])
def test_a_crash_inside_the_commit_is_completed_by_the_next_execution(
    session: SparkSession, folder: Path, seam: str
) -> None:
    to = sink(folder)
    staged = to.stage(session, numbers(session, 10), at())
    seams.arm(seam, crash)
    with pytest.raises(Crash):
        to.commit(session, staged.handle, at())
    seams.disarm_all()

    assert to.commit(session, staged.handle, at(execution="t1.2")).already
    to.sweep(session, None, at(execution="t1.2"))
    assert len(lines(folder)) == 10


@pytest.mark.req("E1")
def test_a_hadoop_file_system_refuses_a_token_as_well(session: SparkSession, folder: Path) -> None:
    files = HadoopFiles(session, f"file:{folder}", {})
    options = {"path": str(folder), "file_format_type": "csv"}
    to = FileSink("LocalFile-1", *setting("LocalFile", "sink", options), files=files)
    mine, others = (
        to.stage(session, numbers(session, 5), at(1, execution=name)) for name in ("t1.1", "t1.2")
    )
    assert not to.commit(session, mine.handle, at()).already
    assert to.commit(session, mine.handle, at(1, execution="t1.2")).already
    with pytest.raises(StoreOlderThanTarget):
        to.commit(session, others.handle, at(1, execution="t1.2"))
    to.sweep(session, others.handle, at(1, execution="t1.2"))
    to.abort(session, at(2))
    with pytest.raises(TokenSpent):
        to.commit(session, others.handle, at(2))

    assert len(lines(folder)) == 5
    assert sorted(info.path for info in files.files()) == written(folder)
    assert files.create("x", b"2", scratch="_s")
    assert not files.create("x", b"3", scratch="_s")
    assert files.read("x") == b"2"
    assert files.read("nothing") is None
    assert not files.move("nothing", "y")


def test_an_object_store_is_refused_as_a_sink(session: SparkSession) -> None:
    options = {"path": "/x", "fs.defaultFS": "s3a://bucket"}
    to = FileSink("HdfsFile-1", *setting("HdfsFile", "sink", options))
    with pytest.raises(Refused, match="s3a:// a commit can't be made exclusive"):
        to.abort(session, at())


def test_a_file_system_that_is_away_may_be_tried_again(session: SparkSession) -> None:
    options = {"path": "/x", "fs.defaultFS": "hdfs://127.0.0.1:1"}
    to = FileSink("HdfsFile-1", *setting("HdfsFile", "sink", options))
    with pytest.raises(Unavailable, match="sink HdfsFile-1: hdfs:"):
        to.abort(session, at())
