"""Names that files get in the target: none is hidden, used twice, or in the way of another."""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from headrace import seams
from headrace.connectors.files.commit import (
    FilesHandle,
    Listing,
    Move,
    check_final_names,
    digest,
)
from headrace.connectors.files.executor_write import WrittenFile, write_part_copies
from headrace.connectors.files.places import FileNames, Places
from headrace.connectors.files.write import moves_of
from headrace.errors import Refused
from headrace.model.jobs.epoch import EpochAt
from headrace.spark.filesystem import LocalFiles
from tests.connectors.files.folder_target import commit, look

arrow: Any = importlib.import_module("pyarrow")


@pytest.fixture
def files(tmp_path: Path) -> LocalFiles:
    return LocalFiles(str(tmp_path / "target"))


def places(epoch: int = 1, incarnation: str = "0123456789abcdef") -> Places:
    return Places(EpochAt(incarnation, 1, epoch, "t1.1"), "LocalFile-1")


def copied(files: LocalFiles, at: Places, *paths: str) -> FilesHandle:
    """Copies of these paths, staged, each with its path as its content."""
    moves: list[Move] = []
    for number, path in enumerate(paths):
        staged = f"{at.folder}/{number}/{path}"
        files.create(staged, path.encode(), scratch=at.folder)
        moves.append(Move(staged=staged, final=path, bytes=len(path)))
    data = Listing(rows=len(moves), moves=tuple(moves), are_copies=True).encoded()
    listing = f"{at.folder}/_files.json"
    files.create(listing, data, scratch=at.folder)
    return FilesHandle(
        folder=files.root,
        execution=at.execution,
        listing=listing,
        sha256=digest(data),
        files=len(moves),
        bytes=0,
        rows=len(moves),
    )


def shown(files: LocalFiles) -> list[str]:
    return [info.path for info in files.files()]


def answers(batches: Any) -> list[dict[str, Any]]:
    return [row for batch in batches for row in batch.to_pylist()]


def parts(*paths: str | None) -> Any:
    count = len(paths)
    columns = {"data": [b"x"] * count, "relativePath": paths, "partIndex": [0] * count}
    return arrow.RecordBatch.from_pydict(columns)


@pytest.mark.req("E1")
@pytest.mark.parametrize(
    ("path", "told"),
    [
        ("_headrace/0123456789abcdef/1/LocalFile-1/1.json", "hidden from readers by '_headrace'"),
        ("deep/.a", r"'deep/.a' is hidden"),
        ("a\0b", r"'a\x00b' is no path"),
        ("/a", "'/a' is no path"),
        ("", "'' is no path"),
        (None, "relativePath is null"),
    ],
)
def test_a_copy_writes_to_no_path_that_readers_do_not_see(
    tmp_path: Path, path: str | None, told: str
) -> None:
    [answer] = answers(write_part_copies(str(tmp_path), [parts(path)]))
    assert told in answer["problem"]
    assert not list(tmp_path.rglob("*"))


def test_a_copy_can_not_be_the_folder_of_another(tmp_path: Path) -> None:
    [answer] = answers(write_part_copies(str(tmp_path), [parts("a", "a/b")]))
    assert answer["problem"].startswith("'a/b' and another relativePath")


@pytest.mark.req("E1")
@pytest.mark.parametrize(("there", "path"), [("a", "a"), ("a", "a/b"), ("a/b", "a")])
def test_a_path_that_was_used_since_it_was_staged_spends_no_token(
    files: LocalFiles, there: str, path: str
) -> None:
    mine, at = copied(files, places(), path), places(incarnation="fedcba9876543210")
    commit(files, at, copied(files, at, there))

    with pytest.raises(Refused, match=r"is there already|where a is a file"):
        commit(files, places(), mine)

    assert look(files, places()) is None
    assert shown(files) == [there]


@pytest.mark.parametrize("paths", [("a", "a/b"), ("a", "a")])
def test_names_of_one_epoch_that_exclude_each_other_are_refused(
    files: LocalFiles, paths: Sequence[str]
) -> None:
    moves = tuple(Move(staged=path, final=path, bytes=0) for path in paths)
    with pytest.raises(Refused, match=r"where a is a file|two files of one epoch would be .*/a$"):
        check_final_names(files, Listing(rows=2, moves=moves, are_copies=True))


def test_two_files_of_other_formats_never_get_one_name(files: LocalFiles) -> None:
    moves = tuple(Move(staged=path, final="k=v/a.xlsx", bytes=0) for path in "ab")
    with pytest.raises(Refused, match="two files of one epoch would be"):
        check_final_names(files, Listing(rows=2, moves=moves))


@pytest.mark.req("E1", "E3")
def test_moves_of_copies_are_replayed_by_a_successor(files: LocalFiles) -> None:
    handle = copied(files, places(), "a", "deep/b")

    def die() -> None:
        raise KeyboardInterrupt

    seams.arm("manifest written", die)
    with pytest.raises(KeyboardInterrupt):
        commit(files, places(), handle)
    seams.disarm_all()
    files.move(f"{places().folder}/0/a", "a")  # one of the two was moved before the end

    for _ in range(2):
        assert commit(files, places(), handle).already
    assert shown(files) == ["a", "deep/b"]


class Raced(LocalFiles):
    """Somebody makes the target of a move after it was looked for."""

    def exists(self, path: str) -> bool:
        found = super().exists(path)
        if not path.startswith("_"):
            (self._root / path).write_text("theirs")
        return found


@pytest.mark.req("E1")
def test_a_move_does_not_overwrite_what_came_after_the_check(files: LocalFiles) -> None:
    files.create("_staged", b"mine", scratch="_scratch")
    raced = Raced(files.root.removeprefix("file:"))

    with pytest.raises(Refused, match="is in the way of a committed file"):
        raced.move("_staged", "a")

    assert files.read("a") == b"theirs"
    assert files.read("_staged") == b"mine"


def test_a_move_below_a_file_says_what_is_in_the_way(files: LocalFiles) -> None:
    files.create("_staged", b"mine", scratch="_scratch")
    files.create("a", b"theirs", scratch="_scratch")
    with pytest.raises(Refused, match="is in the way of a committed file"):
        files.move("_staged", "a/b")
    assert not files.move("_gone", "a/b")


def test_a_copy_may_lie_in_a_folder_that_is_called_as_a_partition() -> None:
    names = FileNames("x", datetime.now(UTC), "yyyy", ".bin")
    written = [WrittenFile("attempt/headrace_partition_0=x/y", 1, 1)]
    [move] = moves_of(places(), names, written, is_copy=True)
    assert move.final == "headrace_partition_0=x/y"
