"""The file sink's fence, without Spark: one manifest for each token, renames anyone can replay."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from headrace import seams
from headrace.connectors.files.commit import FilesHandle, FolderTarget, Listing, Move, digest
from headrace.connectors.files.places import Places
from headrace.errors import Refused, StoreOlderThanTarget, TokenSpent
from headrace.exactly_once.spend import spend
from headrace.model.jobs.epoch import EpochAt, SpentBy
from headrace.spark.filesystem import LocalFiles
from tests.connectors.files.folder_target import abort, commit, look, sweep


class Crash(Exception):
    """Stands for the death of a process at a seam."""


def crash() -> None:
    raise Crash


@pytest.fixture(autouse=True)
def no_seam_stays_armed() -> Iterator[None]:
    yield
    seams.disarm_all()


@pytest.fixture
def files(tmp_path: Path) -> LocalFiles:
    return LocalFiles(str(tmp_path / "target"))


def places(execution: str = "t1.1", epoch: int = 1) -> Places:
    return Places(EpochAt("0123456789abcdef", 1, epoch, execution), "LocalFile-1")


def staged(files: LocalFiles, at: Places, *, count: int = 3) -> FilesHandle:
    """What an execution leaves behind: files, and their listing. Its name stands in each."""
    moves: list[Move] = []
    for number in range(count):
        path, data = f"{at.folder}/part-{number}", f"{at.execution}:{number}\n".encode()
        files.create(path, data, scratch=at.folder)
        final = f"{at.transaction_id}_{number:05d}.txt"
        moves.append(Move(staged=path, final=final, bytes=len(data)))
    data = Listing(rows=count, moves=tuple(moves)).encoded()
    listing = f"{at.folder}/_files.json"
    files.create(listing, data, scratch=at.folder)
    return FilesHandle(
        folder=files.root,
        execution=at.execution,
        listing=listing,
        sha256=digest(data),
        files=count,
        bytes=sum(move.bytes for move in moves),
        rows=count,
    )


def shown(files: LocalFiles) -> list[str]:
    """The rows that a reader of the folder sees."""
    return sorted((files.read(info.path) or b"").decode().strip() for info in files.files())


def left(files: LocalFiles) -> list[str]:
    """What lies hidden in the folder, manifests apart."""
    return [info.path for info in files.files(hidden=True) if "_headrace" in info.path][1:]


def of(execution: str, count: int = 3) -> list[str]:
    return [f"{execution}:{number}" for number in range(count)]


class Late(LocalFiles):
    """A process that is paused right before it creates the manifest."""

    def __init__(self, root: str, meanwhile: Callable[[], object]) -> None:
        super().__init__(root)
        self._meanwhile = meanwhile

    def create(self, path: str, data: bytes, *, scratch: str) -> bool:
        self._meanwhile()
        return super().create(path, data, scratch=scratch)


def late(files: LocalFiles, meanwhile: Callable[[], object]) -> Late:
    return Late(files.root.removeprefix("file:"), meanwhile)


@pytest.mark.req("E1")
def test_a_zombie_paused_before_its_manifest_is_refused_after_anothers_commit(
    files: LocalFiles,
) -> None:
    mine, others = staged(files, places("t1.1")), staged(files, places("t1.2"))
    zombie = late(files, lambda: commit(files, places("t1.2"), others))

    with pytest.raises(StoreOlderThanTarget, match=r"execution t1\.2 staged"):
        commit(zombie, places("t1.1"), mine)

    assert shown(files) == of("t1.2")


@pytest.mark.req("E1", "E6")
def test_a_zombie_paused_before_its_manifest_is_refused_after_an_abort(files: LocalFiles) -> None:
    handle = staged(files, places())
    zombie = late(files, lambda: abort(files, places("t1.2")))

    with pytest.raises(TokenSpent):
        commit(zombie, places(), handle)

    assert shown(files) == []


@pytest.mark.req("E6", "E7")
def test_an_abort_that_comes_after_the_data_changes_nothing(files: LocalFiles) -> None:
    """Who asks knows less than the folder. A commit from the handles finishes the data."""
    handle = staged(files, places("t1.1"))
    staged(files, places("t1.2"))
    seams.arm("manifest written", crash)
    with pytest.raises(Crash):
        commit(files, places("t1.1"), handle)
    seams.disarm_all()

    before = left(files)
    assert abort(files, places("t1.2")).by is SpentBy.DATA
    assert left(files) == before
    assert commit(files, places("t1.1"), handle).already
    sweep(files, places("t1.1"))
    assert shown(files) == of("t1.1")
    assert left(files) == []


@pytest.mark.req("E3")
@pytest.mark.parametrize("moved", [0, 1, 2])
def test_a_crash_between_manifest_and_renames_is_completed_by_the_next(
    files: LocalFiles, moved: int
) -> None:
    handle = staged(files, places())
    seams.arm("manifest written", crash)
    with pytest.raises(Crash):
        commit(files, places(), handle)
    seams.disarm_all()
    manifest = look(files, places())
    assert manifest is not None
    for move in manifest.moves[:moved]:
        files.move(move.staged, move.final)
    sweep(files, places("t1.2"))

    assert shown(files) == of("t1.1")
    assert left(files) == []


@pytest.mark.req("E4")
def test_files_that_a_reader_took_away_are_not_written_again(files: LocalFiles) -> None:
    handle = staged(files, places())
    commit(files, places(), handle)
    for info in list(files.files()):
        _remove(files, info.path)

    assert commit(files, places("t1.2"), handle).already
    assert shown(files) == []


def _remove(files: LocalFiles, path: str) -> None:
    (Path(files.root.removeprefix("file:")) / path).unlink()


@pytest.mark.req("E1")
def test_of_committers_that_race_one_wins_and_all_obey_its_manifest(files: LocalFiles) -> None:
    count = 8
    handles = [staged(files, places(f"t1.{n}")) for n in range(count)]
    gate = threading.Barrier(count)
    winners: list[str] = []
    refused: list[int] = []

    class Gated(LocalFiles):
        """All of them have seen that the token is unspent before any of them spends it."""

        def create(self, path: str, data: bytes, *, scratch: str) -> bool:
            gate.wait(timeout=120)
            return super().create(path, data, scratch=scratch)

    def race(number: int) -> None:
        mine = Gated(files.root.removeprefix("file:"))
        try:
            outcome = commit(mine, places(f"t1.{number}"), handles[number])
        except StoreOlderThanTarget:  # the rows that are there are not its own
            refused.append(number)
        else:
            winners.append(outcome.spent.execution)

    threads = [threading.Thread(target=race, args=(n,), daemon=True) for n in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=240)

    (winner,) = winners
    assert len(refused) == count - 1
    assert shown(files) == of(winner)


def test_a_manifest_half_written_at_a_crash_does_not_count(files: LocalFiles) -> None:
    """What is half made lies in the scratch folder under another name, never under its own."""
    handle = staged(files, places())
    folder = Path(files.root.removeprefix("file:")) / places().epoch_folder
    (folder / ".dead.tmp").write_bytes(b'{"token": "0123')
    assert look(files, places()) is None
    assert not commit(files, places(), handle).already
    sweep(files, places())
    assert left(files) == []


def test_what_was_staged_and_is_damaged_is_refused_and_the_token_stays_unspent(
    files: LocalFiles,
) -> None:
    handle = staged(files, places())
    _remove(files, f"{places().folder}/part-1")
    with pytest.raises(Refused, match="gone or damaged"):
        commit(files, places(), handle)
    assert look(files, places()) is None


def test_a_foreign_file_in_the_way_is_not_overwritten(files: LocalFiles) -> None:
    handle = staged(files, places())
    final = f"{places().transaction_id}_00001.txt"
    files.create(final, b"foreign", scratch="_other")
    with pytest.raises(Refused, match="in the way"):
        commit(files, places(), handle)
    assert files.read(final) == b"foreign"


def test_epochs_have_tokens_of_their_own(files: LocalFiles) -> None:
    for at in (places(epoch=1), places(epoch=2), places(epoch=11)):
        commit(files, at, staged(files, at))
    assert shown(files) == sorted(of("t1.1") * 3)


@pytest.mark.req("E6")
def test_a_late_abort_leaves_no_empty_folder_of_an_epoch_that_was_swept(
    files: LocalFiles, tmp_path: Path
) -> None:
    """It looked before another execution committed and swept, and spends after that."""
    owner, late = places("t1.1"), places("t1.2")
    handle = staged(files, owner)

    class Paused(FolderTarget):
        """Stopped right before it creates its manifest."""

        def attempt(self, *args: Any, **more: Any) -> str | None:
            commit(files, owner, handle)
            sweep(files, owner)
            return super().attempt(*args, **more)

    outcome = spend(Paused(files), late, Paused(files).abort_change(late))

    assert (outcome.spent.by, outcome.already) == (SpentBy.DATA, True)
    assert not (tmp_path / "target" / late.epoch_folder).exists()
