"""Whether a process sits on the lock of a SQLite file, as the system tells it."""

from __future__ import annotations

from pathlib import Path

import psutil

LOCKS = Path("/proc/locks")  # Linux: `1: POSIX ADVISORY WRITE pid major:minor:inode from to`
WAL_INDEX_SUFFIX = "-shm"  # of the file beside a WAL database in which its locks are taken
WRITE_LOCK_BYTE = 120  # of that file: whoever has it locked is the writer


def is_stuck_on(process: psutil.Process, database: Path) -> bool:
    """Whether the process is stopped, or is the one that holds the write lock of the database."""
    return process.status() == psutil.STATUS_STOPPED or process.pid in _writers(database)


def _writers(database: Path) -> set[int]:
    try:
        inode = Path(f"{database}{WAL_INDEX_SUFFIX}").stat().st_ino
        lines = LOCKS.read_text().splitlines()
    except OSError:
        return set()  # a system that does not tell: then only a stopped process is known
    return {pid for line in lines if (pid := _writer(line.split(), inode)) is not None}


def _writer(words: list[str], inode: int) -> int | None:
    match words:
        case [_, "POSIX", _, "WRITE", pid, place, begin, end] if place.endswith(f":{inode}"):
            last = int(end) if end != "EOF" else WRITE_LOCK_BYTE
            return int(pid) if int(begin) <= WRITE_LOCK_BYTE <= last else None
        case _:
            return None
