"""Where the JVM of a worker keeps its temporary files: in a folder that ends with the worker.

A JVM that is killed leaves its shuffle files, broadcasts and native libraries behind. The next
worker of the same home removes what dead ones left.
"""

from __future__ import annotations

import logging
import os
import shutil
from collections.abc import Generator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from headrace.worker.ownership import alone, owned

FOLDER = "scratch"  # in the home
SWEPT_MAX = 100  # with one start

log = logging.getLogger(__name__)


@contextmanager
def scratch(home: Path, worker: str) -> Generator[Path]:
    """A folder for the temporary files of this process."""
    root = (home / FOLDER).absolute()
    mine = root / worker
    root.mkdir(parents=True, exist_ok=True)
    with alone(root):
        mine.mkdir(mode=0o700)
        held = owned(mine)
        assert held is not None, "the folder is named after this process"
        left = _of_the_dead(root)
    for folder, lock in left:
        _remove(folder)
        os.close(lock)
    try:
        yield mine
    finally:
        _remove(mine)
        os.close(held)


def _of_the_dead(root: Path) -> Sequence[tuple[Path, int]]:
    """With their locks, so that nobody else takes them for his to remove."""
    found: list[tuple[Path, int]] = []
    for folder in sorted(root.iterdir()):
        # Without a lock file in it, or without the right to open that, it is none of ours.
        with suppress(FileNotFoundError, NotADirectoryError, PermissionError):
            if len(found) < SWEPT_MAX and (lock := owned(folder, new=False)) is not None:
                found.append((folder, lock))
    return found


def _remove(folder: Path) -> None:
    """A JVM that ends just now may write meanwhile; what stays is the next one's to remove."""
    shutil.rmtree(folder, ignore_errors=True)
    if folder.exists():
        log.warning("temporary files are left, for the next worker", extra={"path": str(folder)})
