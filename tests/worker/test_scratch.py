"""Temporary files of a worker end with it; those of a killed one end with the next."""

from __future__ import annotations

from pathlib import Path

import pytest

from headrace.worker.scratch import SCRATCH_FOLDER, scratch, try_lock_folder
from tests.children import child, heard

BOUND_S = 120.0  # for a state to come, also on a busy machine

# A process that has left something in its folder, and lives until it is told.
OWNER = """
import sys
from pathlib import Path
from headrace.worker.scratch import scratch
with scratch(Path(sys.argv[1]), sys.argv[2]) as mine:
    (mine / "blockmgr").mkdir()
    (mine / "blockmgr" / "shuffle").write_text("data")
    print("left", flush=True)
    sys.stdin.read()
"""


def found(home: Path) -> list[str]:
    return sorted(path.name for path in (home / SCRATCH_FOLDER).iterdir())


def test_a_folder_goes_when_its_worker_ends(tmp_path: Path) -> None:
    with scratch(tmp_path, "w1") as mine:
        (mine / "x").write_text("data")
        assert found(tmp_path) == ["w1"]
    assert found(tmp_path) == []


def test_its_path_holds_wherever_the_jvm_stands(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with scratch(Path("home"), "w1") as mine:
        assert mine == tmp_path / "home" / SCRATCH_FOLDER / "w1"


def test_what_a_killed_worker_left_goes_with_the_next_one(tmp_path: Path) -> None:
    with child(OWNER, str(tmp_path), "dead") as owner:
        assert heard(owner) == "left"
        owner.kill()
        owner.wait(BOUND_S)
    assert (tmp_path / SCRATCH_FOLDER / "dead" / "blockmgr" / "shuffle").is_file()
    with scratch(tmp_path, "next"):
        assert found(tmp_path) == ["next"]


def test_the_folder_of_one_that_lives_stays(tmp_path: Path) -> None:
    with child(OWNER, str(tmp_path), "alive") as owner:
        assert heard(owner) == "left"
        with scratch(tmp_path, "next"):
            assert found(tmp_path) == ["alive", "next"]
        assert (tmp_path / SCRATCH_FOLDER / "alive" / "blockmgr" / "shuffle").is_file()


def test_what_nobody_of_us_put_there_stays(tmp_path: Path) -> None:
    """Such as a disk of the user's own that is mounted there."""
    precious = tmp_path / SCRATCH_FOLDER / "precious"
    precious.mkdir(parents=True)
    with scratch(tmp_path, "w1"):
        assert found(tmp_path) == ["precious", "w1"]
    assert list(precious.iterdir()) == []


def test_a_folder_that_this_user_may_not_open_stops_nobody(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / SCRATCH_FOLDER / "of-root").mkdir(parents=True)

    def refused(folder: Path, *, new: bool = True) -> int | None:
        if folder.name == "of-root":
            raise PermissionError(13, "Permission denied")
        return try_lock_folder(folder, new=new)

    monkeypatch.setattr("headrace.worker.scratch.try_lock_folder", refused)
    with scratch(tmp_path, "w1"):
        assert found(tmp_path) == ["of-root", "w1"]


def test_a_file_beside_the_folders_stays(tmp_path: Path) -> None:
    (tmp_path / SCRATCH_FOLDER).mkdir()
    (tmp_path / SCRATCH_FOLDER / "note").write_text("by hand")
    with scratch(tmp_path, "w1"):
        assert found(tmp_path) == ["note", "w1"]
