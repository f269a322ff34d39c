"""The packages of examples/, installed as a stranger would install them."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from headrace.plugins.catalog import catalog
from tests.example_packages import install

PACKAGES = ("connector-toy", "transform-toy")
MODULES = ("headrace_connector_toy", "headrace_transform_toy")


@pytest.fixture(scope="session")
def packages(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return install(PACKAGES, tmp_path_factory.mktemp("site"))


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
