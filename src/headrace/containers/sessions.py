"""A session of processes: "all that it started", as a set that can be named and ended.

A worker's JVM is in its process group, but Spark's Python daemons make groups of their own; they
stay in the session.
"""

from __future__ import annotations

import os
import signal

import psutil

POLL_S = 0.05
KILL_WAIT_S = 5.0  # for the kernel to take a killed process away
SWEEPS_MAX = 5  # a process may be born between listing a session and killing it


def members(session: int) -> list[int]:
    """Without its leader, whose id is that of the session."""
    return [pid for pid in psutil.pids() if pid != session and session_of(pid) == session]


def session_of(pid: int) -> int | None:
    try:
        return os.getsid(pid)
    except (ProcessLookupError, PermissionError):  # ended meanwhile, or somebody else's
        return None


def signal_group(leader: int, number: signal.Signals) -> None:
    try:
        os.killpg(leader, number)
    except (ProcessLookupError, PermissionError):  # all of it ended (macOS says the second)
        return


def signal_process(pid: int, number: signal.Signals) -> None:
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        return
