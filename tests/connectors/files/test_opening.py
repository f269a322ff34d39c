"""Epoch 0 of a folder, without Spark: one manifest names what goes, and anyone may replay it."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from headrace import seams
from headrace.connectors.files import commit as file_commit
from headrace.connectors.files.commit import (
    HANDLE_BYTES_MAX,
    FilesHandle,
    Listing,
    Move,
    digest,
    survey,
)
from headrace.connectors.files.places import Places
from headrace.errors import Refused
from headrace.model.jobs.epoch import STRAY_GRACE_S, EpochAt, SpentBy
from headrace.protocol.messages import PAYLOAD_BYTES_MAX
from headrace.spark.filesystem import LocalFiles
from tests.connectors.files.folder_target import (
    abort,
    commit,
    forget,
    look,
    open_target,
    sweep,
)

STRAY_GRACE_MS = round(STRAY_GRACE_S * 1000) + 60_000


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


@pytest.fixture
def files(folder: Path) -> LocalFiles:
    for name in ("old.csv", "dt=1/older.csv", "_SUCCESS", ".hidden"):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(name)
    return LocalFiles(str(folder))


def places(execution: str = "t1.1", epoch: int = 0) -> Places:
    return Places(EpochAt("0123456789abcdef", 1, epoch, execution), "LocalFile-1")


def shown(files: LocalFiles) -> list[str]:
    return [info.path for info in files.files()]


def hidden(files: LocalFiles) -> list[str]:
    return [info.path for info in files.files("_headrace", hidden=True)]


def write_epoch_1(files: LocalFiles, execution: str) -> str:
    """Commit a file of epoch 1; its final name."""
    at = places(execution, epoch=1)
    staged, final = f"{at.folder}/part-0", f"{at.transaction_id}_00000.csv"
    files.create(staged, b"new", scratch=at.folder)
    data = Listing(rows=1, moves=(Move(staged=staged, final=final, bytes=3),)).encoded()
    listing = f"{at.folder}/_files.json"
    files.create(listing, data, scratch=at.folder)
    handle = FilesHandle(
        folder=files.root,
        execution=execution,
        listing=listing,
        sha256=digest(data),
        files=1,
        bytes=3,
        rows=1,
    )
    commit(files, at, handle)
    return final


def test_a_survey_changes_nothing_and_names_what_a_reader_sees(files: LocalFiles) -> None:
    before = [info.path for info in files.files(hidden=True)]
    found = survey(files, places(), deletes=True)

    assert found.deletes is not None
    assert sorted(info.path for info in found.deletes.files) == ["dt=1/older.csv", "old.csv"]
    assert [info.path for info in files.files(hidden=True)] == before


@pytest.mark.req("E1")
def test_an_opening_said_twice_deletes_once(files: LocalFiles, folder: Path) -> None:
    found = survey(files, places(), deletes=True)
    assert not open_target(files, places(), found).already
    assert shown(files) == []
    assert (folder / "_SUCCESS").exists(), "what readers don't see stays"

    (folder / "old.csv").write_text("put there since, by somebody else")
    assert open_target(files, places("t1.2"), found).already
    assert shown(files) == ["old.csv"], "the file of that name is another one"


@pytest.mark.req("E1")
def test_a_file_that_came_after_the_survey_stays(files: LocalFiles, folder: Path) -> None:
    found = survey(files, places(), deletes=True)
    (folder / "later.csv").write_text("x")
    os.utime(folder / "old.csv", (5, 5))
    open_target(files, places(), found)
    assert shown(files) == ["later.csv", "old.csv"]


@pytest.mark.req("E1")
def test_a_zombie_that_wakes_in_epoch_0_deletes_nothing_of_epoch_1(files: LocalFiles) -> None:
    """It holds a survey of its own, made later, and is stopped right before its manifest."""
    inside, go_on = threading.Event(), threading.Event()

    class Late(LocalFiles):
        def create(self, path: str, data: bytes, *, scratch: str) -> bool:
            if path == places().manifest:
                inside.set()
                assert go_on.wait(240)
            return super().create(path, data, scratch=scratch)

    late = Late(files.root.removeprefix("file:"))
    found = survey(files, places("t1.2"), deletes=True)
    outcomes: list[bool] = []

    def wake() -> None:
        mine = survey(late, places("t1.1"), deletes=True)
        outcomes.append(open_target(late, places("t1.1"), mine).already)

    zombie = threading.Thread(target=wake, daemon=True)
    zombie.start()
    assert inside.wait(240)
    open_target(files, places("t1.2"), found)
    final = write_epoch_1(files, "t1.2")
    go_on.set()
    zombie.join(240)

    assert outcomes == [True]
    assert shown(files) == [final]


@pytest.mark.req("E1")
def test_an_opening_that_comes_when_epoch_1_is_in_deletes_nothing(files: LocalFiles) -> None:
    found = survey(files, places(), deletes=True)
    open_target(files, places(), found)
    final = write_epoch_1(files, "t1.1")
    whole = survey(files, places("t1.2"), deletes=True)  # it sees the file of epoch 1

    assert open_target(files, places("t1.2"), whole).already
    assert shown(files) == [final]


@pytest.mark.req("E1", "E3")
@pytest.mark.parametrize("seam", ["opening written", "sink opened"])
@pytest.mark.parametrize("by_abort", [False, True])
def test_a_crash_between_the_manifest_and_its_deletes_is_rolled_forward_by_the_next(
    files: LocalFiles, seam: str, *, by_abort: bool
) -> None:
    found = survey(files, places(), deletes=True)
    seams.arm(seam, crash)
    with pytest.raises(Crash):
        open_target(files, places(), found)
    seams.disarm_all()

    if by_abort:  # it is told that it was done, and does nothing itself (E7)
        before = shown(files)
        assert abort(files, places("t1.2")).by is not SpentBy.ABORT
        assert shown(files) == before
    assert open_target(files, places("t1.2"), found).already
    assert shown(files) == []
    manifest = look(files, places())
    assert manifest is not None
    assert manifest.by is SpentBy.DATA


def test_a_long_list_lies_beside_the_target_and_goes_when_it_is_opened(
    files: LocalFiles, folder: Path
) -> None:
    for number in range(2_000):
        (folder / f"{number:040d}.csv").touch()
    found = survey(files, places(), deletes=True)
    assert found.deletes is None
    assert len(found.model_dump_json()) < HANDLE_BYTES_MAX < PAYLOAD_BYTES_MAX / 9
    assert hidden(files) == [found.listing]

    open_target(files, places("t1.2"), found)
    assert shown(files) == []
    assert hidden(files) == [places().manifest]
    assert open_target(files, places(), found).already, "the list is gone, and not needed"
    sweep(files, places())


def test_a_list_that_is_gone_before_the_folder_was_opened_is_an_error(
    files: LocalFiles, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(file_commit, "HANDLE_BYTES_MAX", 10)
    found = survey(files, places(), deletes=True)
    files.delete(places().epoch_folder)
    with pytest.raises(Refused, match=r"list of files to delete in file:.* is gone or damaged"):
        open_target(files, places(), found)
    assert (folder / "old.csv").exists()


def test_a_folder_of_too_many_files_is_refused(
    files: LocalFiles, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(file_commit, "DELETES_MAX", 1)
    with pytest.raises(Refused, match="holds more than 1 files, too many to delete in one step"):
        survey(files, places(), deletes=True)


def test_a_file_in_the_place_of_the_folder_is_refused(folder: Path, files: LocalFiles) -> None:
    with pytest.raises(Refused, match=r"old\.csv is a file; a sink needs the path of a folder"):
        survey(LocalFiles(str(folder / "old.csv")), places(), deletes=True)


def test_a_file_that_is_moved_away_while_a_folder_is_listed_is_left_out(
    files: LocalFiles, folder: Path
) -> None:
    (folder / "z.csv").symlink_to(folder / "gone.csv")
    assert sorted(shown(files)) == ["dt=1/older.csv", "old.csv"]


def test_a_file_whose_name_is_not_utf_8_is_told_before_anything_is_deleted(
    files: LocalFiles, folder: Path
) -> None:
    (folder / os.fsdecode(b"name\xe9.csv")).write_text("1")
    before = sorted(folder.rglob("*"))

    with pytest.raises(Refused) as refused:
        survey(files, places(), deletes=True)

    assert str(refused.value) == (
        f"the name of file:{folder}/name\\xe9.csv is not UTF-8, so the file can't be listed among "
        "those to delete; rename it, or delete it yourself"
    )
    assert sorted(folder.rglob("*")) == before


@pytest.mark.req("C5")
def test_a_stray_that_was_swept_long_ago_is_not_replayed(files: LocalFiles, folder: Path) -> None:
    """Else it would delete once more what somebody has put back with its old time and size."""
    old = folder / "old.csv"
    before = old.stat()
    open_target(files, places(), survey(files, places(), deletes=True))
    old.write_text("old.csv")
    os.utime(old, ns=(before.st_atime_ns, before.st_mtime_ns))
    others = Places(EpochAt("another", 1, 0, "t9.1"), "LocalFile-1")

    forget(files, others, owners=(), now_ms=round(time.time() * 1000) + STRAY_GRACE_MS)

    assert old.exists()
    assert look(files, places()) is None  # the stray itself is gone
