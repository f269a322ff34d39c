"""A place in memory, where the machine has one: fsync stays on, and costs nothing there.

A store syncs each commit. On a disk that takes milliseconds, and many more while others write.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

MEMORY = Path("/dev/shm")
MEMORY_FREE_MIN_BYTES = 1_000_000_000


def in_memory() -> Path | None:
    """Where to make folders; None: where temporary ones are made otherwise."""
    usable = MEMORY.is_dir() and os.access(MEMORY, os.W_OK)
    roomy = usable and shutil.disk_usage(MEMORY).free > MEMORY_FREE_MIN_BYTES
    return MEMORY if roomy else None


@contextmanager
def fast_folder(name: str) -> Generator[Path]:
    """A folder for the body, also when a process still writes into it while it is removed."""
    with tempfile.TemporaryDirectory(
        prefix=f"headrace-{name}-", dir=in_memory(), ignore_cleanup_errors=True
    ) as folder:
        yield Path(folder)
