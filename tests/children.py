"""Real Python processes that a test starts, talks to and kills."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Generator
from contextlib import contextmanager


@contextmanager
def child(code: str, *args: str) -> Generator[subprocess.Popen[str]]:
    """Run `code` in a process of its own; it is dead and reaped when the block ends.

    Its stdin stays open, so `sys.stdin.read()` waits; what it prints comes by `stdout.readline()`.
    """
    with subprocess.Popen(
        [sys.executable, "-c", code, *args],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def heard(process: subprocess.Popen[str]) -> str:
    """The next line a child prints; empty when it has ended."""
    assert process.stdout is not None
    return process.stdout.readline().strip()
