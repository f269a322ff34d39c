"""The programs of an earlier commit of this repository, to run beside those of the present one.

They are run by this environment's own Python, so that commit must not need other packages.
"""

from __future__ import annotations

import io
import os
import subprocess
import tarfile
from pathlib import Path

import pytest

from tools.tree import GIT_LIMIT_S, ROOT

LOCK = "requirements.lock"


def source_of(commit: str, folder: Path) -> Path:
    """The folder to put in front of PYTHONPATH, made below `folder`.

    Skips the test in a clone without that commit, and fails it where CI is set: there the history
    has to be whole.
    """
    packed = subprocess.run(
        ["git", "archive", "--format=tar", commit, "src", LOCK],
        cwd=ROOT,
        capture_output=True,
        timeout=GIT_LIMIT_S,
        check=False,
    )
    if packed.returncode != 0:
        why = packed.stderr.decode().strip()
        reason = f"commit {commit} is not in this clone ({why}): fetch its whole history"
        if os.environ.get("CI") == "true":
            pytest.fail(reason)
        pytest.skip(reason)
    made = folder / commit
    with tarfile.open(fileobj=io.BytesIO(packed.stdout)) as archive:
        archive.extractall(made, filter="data")
    return made / "src"
