"""The programs of an earlier commit of this repository, to run beside those of the present one.

They are run by this environment's own Python, so that commit must not need other packages.
"""

from __future__ import annotations

import io
import os
import subprocess
import tarfile
import tomllib
from pathlib import Path

import pytest

from tools.tree import GIT_LIMIT_S, ROOT

LOCK = "requirements.lock"
PROJECT = "pyproject.toml"


def source_of(commit: str, folder: Path) -> Path:
    """The folder to put in front of PYTHONPATH, made below `folder`.

    Skips the test in a clone without that commit, and fails it where CI is set: there the history
    has to be whole.
    """
    packed = subprocess.run(
        ["git", "archive", "--format=tar", commit, "src", LOCK, PROJECT],
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
    _describe(made)
    return made / "src"


def _describe(made: Path) -> None:
    """Give the program its own metadata, in front of those of this one: its entry points are not
    what an older program expects under the same names."""
    project = tomllib.loads((made / PROJECT).read_text())["project"]
    metadata = made / "src" / "headrace-0.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: headrace\nVersion: 0\n")
    groups: dict[str, dict[str, str]] = project.get("entry-points", {})
    lines = [
        line
        for group, points in groups.items()
        for line in (f"[{group}]", *(f"{name} = {value}" for name, value in points.items()))
    ]
    (metadata / "entry_points.txt").write_text("\n".join(lines) + "\n")
