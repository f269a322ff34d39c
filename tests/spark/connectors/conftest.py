"""The packages of examples/, installed as a stranger would install them."""

from __future__ import annotations

import importlib
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from headrace.plugins.catalog import catalog
from tools.tree import ROOT

PACKAGES = ("connector-toy", "transform-toy")
MODULES = ("headrace_connector_toy", "headrace_transform_toy")
INSTALL_MAX_S = 300


def installer() -> str | None:
    """`make` fetches uv, which builds these packages by itself, without a network."""
    fetched = ROOT / ".tools" / "bin" / "uv"
    return shutil.which("uv") or (str(fetched) if fetched.exists() else None)


@pytest.fixture(scope="session")
def packages(tmp_path_factory: pytest.TempPathFactory) -> Path:
    uv = installer()
    if uv is None:
        pytest.skip("there is no uv to install the examples with; `make` fetches it")
    target = tmp_path_factory.mktemp("site")
    for package in PACKAGES:
        command = [uv, "pip", "install", "--quiet", "--offline", "--no-deps", "--no-cache"]
        command += ["--python", sys.executable, "--target", str(target)]
        subprocess.run(
            [*command, str(ROOT / "examples" / package)],
            check=True,
            timeout=INSTALL_MAX_S,
            cwd=target,
        )
    return target


@pytest.fixture
def installed(
    packages: Path, session: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Path]:
    """As after a restart: what is installed is looked up anew, here and in executors."""
    monkeypatch.setattr(sys, "path", [str(packages), *sys.path])
    environment: dict[str, Any] = session.sparkContext.environment
    monkeypatch.setitem(environment, "PYTHONPATH", str(packages))
    importlib.invalidate_caches()
    catalog.cache_clear()
    yield packages
    monkeypatch.undo()
    for name in [name for name in sys.modules if name.partition(".")[0] in MODULES]:
        del sys.modules[name]
    catalog.cache_clear()
