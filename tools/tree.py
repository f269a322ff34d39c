"""Which files belong to the project: what git tracks, and what it would track if asked."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
GIT_LIMIT_S = 60


def project_files(*patterns: str) -> Iterator[Path]:
    """Files below ROOT that are tracked or new, and not ignored; as paths relative to it."""
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard", "--", *patterns],
        cwd=ROOT,
        check=True,
        capture_output=True,
        text=True,
        timeout=GIT_LIMIT_S,
    ).stdout
    for name in sorted(set(filter(None, listed.split("\0")))):
        if (ROOT / name).is_file():  # a file may be deleted and not committed yet
            yield Path(name)
