"""The packages of examples/, installed as a stranger would install them."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from tools.tree import ROOT

INSTALL_MAX_S = 300


def install(packages: Sequence[str], target: Path) -> Path:
    """Install them into a folder, which then has to be on the path; without a network."""
    fetched = ROOT / ".tools" / "bin" / "uv"  # `make` fetches it, and it builds by itself
    uv = shutil.which("uv") or (str(fetched) if fetched.exists() else None)
    if uv is None:
        pytest.skip("there is no uv to install the examples with; `make` fetches it")
    command = [uv, "pip", "install", "--quiet", "--offline", "--no-deps", "--no-cache"]
    command += ["--python", sys.executable, "--target", str(target)]
    for package in packages:
        subprocess.run(
            [*command, str(ROOT / "examples" / package)],
            check=True,
            timeout=INSTALL_MAX_S,
            cwd=target,
        )
    return target
