"""What an ended job leaves at a folder: its files, and nothing else; without Spark."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from headrace import seams
from headrace.connectors.files.commit import FilesHandle
from headrace.connectors.files.places import Places
from headrace.errors import Refused
from headrace.model.jobs.epoch import STRAY_GRACE_S, EpochAt
from headrace.spark.filesystem import LocalFiles
from tests.connectors.files.folder_target import abort, commit, forget, look
from tests.connectors.files.test_commit import Crash, crash, of, shown, staged

NOW_MS = 1_800_000_000_000
OURS, THEIRS = "0123456789abcdef", "fedcba9876543210"


@pytest.fixture(autouse=True)
def no_seam_stays_armed() -> Iterator[None]:
    yield
    seams.disarm_all()


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "target"


@pytest.fixture
def files(root: Path) -> LocalFiles:
    return LocalFiles(str(root))


def places(epoch: int = 1, execution: str = "t1.1", incarnation: str = OURS) -> Places:
    return Places(EpochAt(incarnation, 1, epoch, execution), "LocalFile-1")


def committed(files: LocalFiles, at: Places) -> FilesHandle:
    handle = staged(files, at)
    commit(files, at, handle)
    return handle


def hidden(root: Path) -> list[str]:
    """Files and folders below `_headrace`, itself included."""
    found = [root / "_headrace", *(root / "_headrace").rglob("*")]
    return sorted(str(path.relative_to(root)) for path in found if path.exists())


def touch(root: Path, seconds_ago: float) -> None:
    at_s = NOW_MS / 1000 - seconds_ago
    for path in [root / "_headrace", *(root / "_headrace").rglob("*")]:
        os.utime(path, (at_s, at_s))


@pytest.mark.req("C2")
def test_rows_stay_and_manifests_leftovers_and_folders_go(files: LocalFiles, root: Path) -> None:
    committed(files, places(1))
    staged(files, places(1, "t1.0"))  # died, and nobody swept
    abort(files, places(2))
    committed(files, places(3))

    forget(files, places(3, "f.1"))

    assert shown(files) == sorted(of("t1.1") * 2)
    assert hidden(root) == []
    forget(files, places(3, "f.2"))
    assert shown(files) == sorted(of("t1.1") * 2)


@pytest.mark.req("C2", "E6")
def test_renames_that_nobody_finished_are_finished_first(files: LocalFiles, root: Path) -> None:
    handle = staged(files, places())
    seams.arm("manifest written", crash)
    with pytest.raises(Crash):
        commit(files, places(), handle)
    seams.disarm_all()

    forget(files, places())

    assert shown(files) == of("t1.1")
    assert hidden(root) == []


@pytest.mark.req("C2")
def test_epochs_above_are_left_as_they_are(files: LocalFiles, root: Path) -> None:
    """A restored run of the job commits and stages there."""
    for epoch in (1, 2, 10):
        committed(files, places(epoch))
    handle = staged(files, places(3))

    forget(files, places(2))

    assert look(files, places(1)) is None
    assert look(files, places(2)) is None
    assert look(files, places(10)) is not None
    assert not commit(files, places(3), handle).already
    assert len(shown(files)) == 12
    assert root.joinpath(places(3).manifest).exists()


@pytest.mark.req("C2", "E1")
def test_a_zombie_that_commits_after_the_marks_are_gone_adds_nothing(files: LocalFiles) -> None:
    late, handle = staged(files, places(1, "t1.0")), committed(files, places(1))
    forget(files, places(1))

    for zombie, execution in ((late, "t1.0"), (handle, "t1.1")):
        with pytest.raises(Refused, match="gone or damaged"):
            commit(files, places(1, execution), zombie)
    assert shown(files) == of("t1.1")


@pytest.mark.req("C2", "E6")
def test_manifests_are_there_until_all_that_was_staged_is_gone(files: LocalFiles) -> None:
    handle = committed(files, places(1))
    staged(files, places(1, "t1.0"))
    seams.arm("before marks are forgotten", crash)
    with pytest.raises(Crash):
        forget(files, places(1))
    seams.disarm_all()

    assert not files.exists(places(1).epoch_folder)
    assert commit(files, places(1, "t1.2"), handle).already
    forget(files, places(1))
    assert look(files, places(1)) is None


@pytest.mark.req("C5", "E6")
def test_a_stray_is_left_while_its_owner_could_still_wake(files: LocalFiles, root: Path) -> None:
    handle = staged(files, places(1, incarnation=THEIRS))
    touch(root, STRAY_GRACE_S + 60)
    folder = root / places(1, incarnation=THEIRS).folder
    lately_s = NOW_MS / 1000 - STRAY_GRACE_S + 60
    os.utime(folder / "part-1", (lately_s, lately_s))

    forget(files, places(0), owners=(), now_ms=NOW_MS)
    assert not commit(files, places(1, incarnation=THEIRS), handle).already


@pytest.mark.req("C5")
def test_what_an_owner_has_is_no_stray_however_old(files: LocalFiles, root: Path) -> None:
    handle = staged(files, places(1, incarnation=THEIRS))
    touch(root, STRAY_GRACE_S * 100)

    forget(files, places(0), owners={THEIRS}, now_ms=NOW_MS)

    assert not commit(files, places(1, incarnation=THEIRS), handle).already


@pytest.mark.req("C5", "E6")
def test_a_stray_that_was_committed_and_not_renamed_is_finished(
    files: LocalFiles, root: Path
) -> None:
    theirs = places(1, incarnation=THEIRS)
    handle = staged(files, theirs)
    seams.arm("manifest written", crash)
    with pytest.raises(Crash):
        commit(files, theirs, handle)
    seams.disarm_all()
    touch(root, STRAY_GRACE_S + 60)

    forget(files, places(0), owners=(), now_ms=NOW_MS)

    assert shown(files) == of("t1.1")
    assert hidden(root) == []


def test_foreign_things_in_the_hidden_folder_are_left(files: LocalFiles, root: Path) -> None:
    (root / "_headrace" / "notes").mkdir(parents=True)
    (root / "_headrace" / "notes" / "mine.txt").write_text("keep")
    (root / "_headrace" / "file.txt").write_text("keep")
    touch(root, STRAY_GRACE_S + 60)

    forget(files, places(0), owners=(), now_ms=NOW_MS)

    assert (root / "_headrace" / "notes" / "mine.txt").read_text() == "keep"
    assert (root / "_headrace" / "file.txt").read_text() == "keep"
