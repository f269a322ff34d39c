"""A folder that files arrive in, read by a streaming job: each file once, when it is whole."""

from __future__ import annotations

import logging
import os
from pathlib import Path
from typing import Any

import pytest
from pydantic import JsonValue
from pyspark.sql import SparkSession

from headrace.connectors.files.arrivals import SEEN_MAX, SETTLE_MS
from headrace.connectors.files.source import FileSource
from headrace.errors import Refused, Unavailable
from headrace.protocol.messages import Slice
from tests.fakes import FakeClock
from tests.spark.lake import some
from tests.spark.settings import NO_SESSION, setting

SETTLE_S = SETTLE_MS / 1000


class Folder:
    """Files are written and moved in as time goes by; the source reads by the same clock."""

    def __init__(self, path: Path) -> None:
        self.path, self.clock = path / "in", FakeClock()
        self.path.mkdir()
        options = {
            "path": str(self.path),
            "file_format_type": "csv",
            "schema": {"fields": {"id": "int"}},
        }
        made = setting("LocalFile", "source", options, streaming=True, clock=self.clock)
        self.source = FileSource("LocalFile-1", *made)

    def put(self, name: str, *ids: int, age_s: float = 0) -> None:
        file = self.path / name
        file.write_text("".join(f"{number}\n" for number in ids))
        written_s = self.clock.wall_ms() / 1000 - age_s
        os.utime(file, (written_s, written_s))

    def passes(self, seconds: float = SETTLE_S) -> None:
        self.clock.advance(seconds)

    def plan(self, position: JsonValue = None, **more: Any) -> Slice | None:
        return self.source.plan(NO_SESSION, position, **more)

    def read(self, session: SparkSession, part: Slice) -> list[int]:
        return sorted(row["id"] for row in self.source.read(session, part).collect())


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    return Folder(tmp_path)


def test_a_folder_that_is_away_for_a_while_does_not_end_the_stream(folder: Folder) -> None:
    away = folder.path.with_name("away")
    folder.path.rename(away)
    with pytest.raises(Refused, match=r"there is no file:.*/in; create it, or mend 'path'"):
        folder.plan()
    away.rename(folder.path)
    folder.put("a", 1)
    folder.passes()
    position = some(folder.plan()).after
    folder.path.rename(away)

    with pytest.raises(Unavailable, match=r"there is no file:.*/in any more; mount it"):
        folder.plan(position)

    away.rename(folder.path)
    assert folder.plan(position) is None


def test_a_file_that_is_still_written_to_is_not_read(session: SparkSession, folder: Folder) -> None:
    for ids in ((1,), (1, 2), (1, 2, 3)):  # it grows, with pauses shorter than it takes to settle
        folder.put("a", *ids)
        folder.passes(SETTLE_S - 1)
        assert folder.plan() is None
    folder.passes(1)
    part = some(folder.plan())
    assert folder.read(session, part) == [1, 2, 3]
    folder.put("b", 4)
    assert folder.plan(part.after) is None
    assert folder.source.empty(session).columns == ["id"]


@pytest.mark.req("E5")
def test_each_file_is_read_once_over_many_plans_and_from_any_position_it_is_restored_to(
    session: SparkSession, folder: Folder
) -> None:
    positions: list[JsonValue] = [None]
    read: list[list[int]] = []
    for number in range(4):
        folder.put(f"z{9 - number}", 2 * number)
        folder.put(f"a{number}", 2 * number + 1, age_s=60)  # moved in with an older time
        folder.passes()
        part = some(folder.plan(positions[-1]))
        read.append(folder.read(session, part))
        assert folder.read(session, part) == read[-1], "the same slice, the same rows"
        positions.append(part.after)
        assert folder.plan(part.after) is None
    assert read == [[0, 1], [2, 3], [4, 5], [6, 7]]

    for restored, position in enumerate(positions[:-1]):
        rest = some(folder.plan(position))
        assert folder.read(session, rest) == list(range(2 * restored, 8))
        assert folder.plan(rest.after) is None


@pytest.mark.req("E5")
def test_a_file_that_was_changed_is_refused_when_it_is_read_again_and_after_it_was_read(
    session: SparkSession, folder: Folder
) -> None:
    folder.put("a", 1)
    folder.passes()
    part = some(folder.plan())
    assert folder.read(session, part) == [1]

    folder.passes(1)
    folder.put("a", 2)
    with pytest.raises(Refused, match=r"LocalFile-1: .*/a has changed since the epoch was planned"):
        folder.read(session, part)
    folder.passes()
    with pytest.raises(Refused, match="LocalFile-1: a was changed after it was read"):
        folder.plan(part.after)


def test_no_file_is_missed_when_more_arrive_than_a_position_remembers(folder: Folder) -> None:
    """The low mark rises to what was read last; whatever comes in fresh is still above it."""
    for number in range(SEEN_MAX + 5):
        (folder.path / f"{number:05d}").touch()
        os.utime(folder.path / f"{number:05d}", (1_000 + number, 1_000 + number))
    first = some(folder.plan())
    after: Any = first.after
    assert len(after["seen"]) == SEEN_MAX
    assert after["low"] == [1_004_000, "00004"]

    folder.put("moved in at once", 1, age_s=SETTLE_S - 1)
    assert folder.plan(first.after) is None
    folder.passes(1)
    data: Any = some(folder.plan(first.after)).data
    assert [name for name, _, _ in data["files"]] == ["moved in at once"]


def test_files_that_came_in_too_old_are_told_once(
    folder: Folder, caplog: pytest.LogCaptureFixture
) -> None:
    folder.put("a", 1)
    folder.passes()
    after = some(folder.plan()).after
    folder.put("old", 2, age_s=100_000)
    with caplog.at_level(logging.WARNING):
        assert folder.plan(after) is None
        assert folder.plan(after) is None
    (told,) = caplog.records
    assert (told.getMessage(), told.__dict__["files"]) == (
        "files came in too old to be read; touch them",
        1,
    )
