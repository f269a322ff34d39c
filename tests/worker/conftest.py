"""A leader, a worker that syncs with it, and pauses short enough for tests."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from headrace.worker import sync_loop
from tests.worker.leader import Leader, Worker, at_work


@pytest.fixture(autouse=True)
def short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("BUSY_SYNC_INTERVAL_S", "IDLE_SYNC_INTERVAL_S", "RETRY_PAUSE_S"):
        monkeypatch.setattr(sync_loop, name, 0.02)
    monkeypatch.setattr(sync_loop, "RETRY_PAUSE_MAX_S", 0.05)
    monkeypatch.setattr(sync_loop, "GOODBYE_TIMEOUT_S", 0.2)


@pytest.fixture
def leader() -> Leader:
    return Leader()


@pytest.fixture
def worker(leader: Leader, tmp_path: Path) -> Iterator[Worker]:
    with at_work(leader, tmp_path) as worker:
        yield worker
