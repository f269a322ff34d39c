"""Which process a pid is: its start, in words that the process and anybody else find the same.

Linux counts a start in ticks since the machine was booted. Told as a time of day it would move
with every correction of the clock, and a live process would be taken for gone.
"""

from __future__ import annotations

import sys
from pathlib import Path

import psutil

_PROC = Path("/proc")
_BOOT_ID = _PROC / "sys" / "kernel" / "random" / "boot_id"
_STARTED = 19  # of the fields behind the program's name in /proc/PID/stat


def start_of(pid: int) -> str | None:
    """None: there is no such process. A pid that was given out again has another start."""
    if sys.platform != "linux":
        return _start_by_psutil(pid)
    try:
        stat = (_PROC / str(pid) / "stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return None
    # The name stands in parentheses, and may hold spaces and parentheses itself.
    ticks = stat.rpartition(")")[2].split()[_STARTED]
    return f"{_BOOT_ID.read_text().strip()} {ticks}"


def _start_by_psutil(pid: int) -> str | None:
    try:
        return repr(psutil.Process(pid).create_time())
    except psutil.NoSuchProcess:
        return None
