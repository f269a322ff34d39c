"""Folders in a worker's home that belong to one process: for as long as that lives, and no longer.

The kernel gives a lock back when its process ends, however it ends. So whoever can lock the folder
of another one knows that its owner is dead, and may have what it left.
"""

from __future__ import annotations

import fcntl
import os
import threading
from collections.abc import Generator
from contextlib import contextmanager, suppress
from pathlib import Path

from headrace.errors import Unavailable

HOME_TRIES, HOME_PAUSE_S = 200, 0.05  # to have the home alone, which nobody does for long


def owned(folder: Path, *, new: bool = True) -> int | None:
    """Lock a folder for as long as this process lives. None: its owner is alive.

    `new`: it may have had no owner before. Otherwise such a folder is a FileNotFoundError.
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
def alone(home: Path) -> Generator[None]:
    """One process at a time makes, takes over or removes the folders of a home."""
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
