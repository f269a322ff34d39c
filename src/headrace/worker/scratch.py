"""Folders in a worker's home that belong to one process: locks on them, and its scratch folder.

A process owns such a folder for as long as it lives and no longer. The owner holds a file lock,
which the kernel releases when the process ends, however it ends. So whoever can lock another
process's folder knows that its owner is dead, and may take over what it left.

The JVM keeps its temporary files in a scratch folder of this kind, which is removed with the
worker. A JVM that is killed leaves its shuffle files, broadcasts and native libraries behind; the
next worker of the same home removes what dead ones left.
"""

from __future__ import annotations

import fcntl
import logging
import os
import shutil
import threading
from collections.abc import Generator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from headrace.errors import Unavailable

log = logging.getLogger(__name__)

HOME_TRIES, HOME_PAUSE_S = 200, 0.05  # for the lock of a home, which nobody holds for long
SCRATCH_FOLDER = "scratch"  # in the home
SWEPT_MAX = 100  # folders of dead processes that one start removes


@contextmanager
def scratch(home: Path, worker: str) -> Generator[Path]:
    """A folder for the temporary files of this process."""
    root = (home / SCRATCH_FOLDER).absolute()
    mine = root / worker
    root.mkdir(parents=True, exist_ok=True)
    with exclusive_access(root):
        mine.mkdir(mode=0o700)
        lock_file = try_lock_folder(mine)
        assert lock_file is not None, "the folder is named after this process"
        abandoned = _lock_abandoned(root)
    for folder, other_lock in abandoned:
        _remove(folder)
        os.close(other_lock)
    try:
        yield mine
    finally:
        _remove(mine)
        os.close(lock_file)


def _lock_abandoned(root: Path) -> Sequence[tuple[Path, int]]:
    """Folders of dead processes, each with its lock held, so that no other process removes them."""
    abandoned: list[tuple[Path, int]] = []
    for folder in sorted(root.iterdir()):
        # A folder without a lock file, or with one that we may not open, is none of ours.
        with suppress(FileNotFoundError, NotADirectoryError, PermissionError):
            if (
                len(abandoned) < SWEPT_MAX
                and (lock := try_lock_folder(folder, new=False)) is not None
            ):
                abandoned.append((folder, lock))
    return abandoned


def _remove(folder: Path) -> None:
    """A JVM that is just ending may still write; the next worker removes what is left."""
    shutil.rmtree(folder, ignore_errors=True)
    if folder.exists():
        log.warning("temporary files are left, for the next worker", extra={"path": str(folder)})


def try_lock_folder(folder: Path, *, new: bool = True) -> int | None:
    """Lock a folder for as long as this process lives; None when its owner is alive.

    `new`: the folder may have had no owner yet. Without it, such a folder raises
    FileNotFoundError.
    """
    flags = os.O_RDWR | os.O_CLOEXEC | (os.O_CREAT if new else 0)
    file = os.open(folder / "lock", flags, 0o600)
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(file)
        return None
    return file


@contextmanager
def exclusive_access(home: Path) -> Generator[None]:
    """Hold the lock of a home: one process at a time makes, takes over or removes its folders."""
    file = os.open(home, os.O_RDONLY | os.O_CLOEXEC)
    try:
        for _ in range(HOME_TRIES):
            with suppress(BlockingIOError):
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            threading.Event().wait(HOME_PAUSE_S)
        else:
            raise Unavailable(f"{home} is held by another worker that starts or stops; try again")
        yield
    finally:
        os.close(file)
