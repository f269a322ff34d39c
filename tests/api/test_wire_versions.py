"""Programs of two versions together: a real sync loop and a real coordinator, one of them newer.

The next version is made up: a table that has it, and a kind of task that came with it.
"""

from __future__ import annotations

import threading
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx2
import pytest
from fastapi.testclient import TestClient
from sqlalchemy import Engine

from headrace.clock import SystemClock
from headrace.model.ids import RandomIds
from headrace.model.task import Lane, TaskKind, TaskStatus
from headrace.protocol import versions
from headrace.protocol.messages import PROTOCOL_VERSION
from headrace.protocol.versions import SPOKEN, WireVersions
from headrace.store.core.engine import reading, writing
from headrace.store.tasks import tasks, workers
from headrace.store.tasks.tasks import Task
from headrace.worker import sync_loop
from headrace.worker.client import LeaderClient
from headrace.worker.execution import Execution
from headrace.worker.jvm_monitor import Spark
from headrace.worker.outbox import Outbox
from headrace.worker.sync_loop import SyncLoop
from tests.api.conftest import BOUND_S, eventually
from tests.api.test_jobs import submission
from tests.fakes import registration
from tests.protocol.test_versions import NEXT, next_version

NEWER = next_version(kinds={TaskKind.DISCARD: NEXT})
CLOCK = SystemClock()
LANE = Lane.CONTROL


@pytest.fixture(autouse=True)
def short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("BUSY_SYNC_INTERVAL_S", "IDLE_SYNC_INTERVAL_S", "RETRY_PAUSE_S"):
        monkeypatch.setattr(sync_loop, name, 0.05)


class Through(httpx2.BaseTransport):
    """To the application itself, from any thread."""

    def __init__(self, api: TestClient) -> None:
        self._api, self.lock = api, threading.Lock()
        self.refused: list[str] = []

    def handle_request(self, request: httpx2.Request) -> httpx2.Response:
        url, body = request.url.raw_path.decode(), request.read()
        headers = {"Content-Type": "application/json"} if body else {}
        answer = self._api.request(request.method, url, content=body, headers=headers)
        if answer.status_code == 422:
            self.refused.append(answer.json()["error"]["kind"])
        return httpx2.Response(answer.status_code, content=answer.content)


class Ran:
    def __init__(self) -> None:
        self.tasks: list[str] = []

    def __call__(self, execution: Execution) -> Mapping[str, Any] | None:
        self.tasks.append(execution.claim.task)
        return None


@contextmanager
def worker(
    api: TestClient,
    home: Path,
    ran: Ran | None,
    *,
    spoken: WireVersions | None = None,
    name: str = "w1",
) -> Generator[Through]:
    """`ran`: what it does for a NOOP; None: it knows no kind at all."""
    wire = Through(api)
    clients = [
        LeaderClient(["http://127.0.0.1:7300"], token=None, transport=wire, spoken=spoken)
        for _ in range(2)
    ]
    loop = SyncLoop(
        registration(name, control_slots=2),
        clients[0],
        clients[1],
        lambda posted: Outbox(home / name, posted=posted),
        {TaskKind.NOOP: ran} if ran else {},
        Spark(
            alive=lambda: True,
            cancel=lambda _: None,
            rows_written=lambda _: 0,
            tasks_finished=lambda _: (0, 0),
        ),
        CLOCK,
        spoken=spoken,
    )
    thread = threading.Thread(target=loop.run, daemon=True)
    thread.start()
    try:
        yield wire
    finally:
        loop.stop()
        thread.join(BOUND_S)
    assert not thread.is_alive()


def planned(store: Engine, kind: TaskKind) -> str:
    task = RandomIds().new()
    with writing(store) as conn:
        tasks.plan(conn, task_id=task, kind=kind, lane=LANE, group="default", now_ms=1)
    return task


def read(store: Engine, task: str) -> Task:
    with reading(store) as conn:
        found = tasks.get(conn, task)
    assert found is not None
    return found


def status(store: Engine, task: str) -> TaskStatus:
    return read(store, task).status


def version_of(store: Engine) -> int | None:
    with reading(store) as conn:
        known = [each.protocol for each in workers.registered(conn)]
    return known[0] if known else None


@pytest.mark.req("L4")
def test_a_newer_worker_speaks_the_version_of_an_older_coordinator_and_follows_its_upgrade(
    api: TestClient, store: Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ran = Ran()
    with worker(api, tmp_path, ran, spoken=NEWER) as wire:
        first = planned(store, TaskKind.NOOP)
        eventually(lambda: status(store, first) is TaskStatus.SUCCESS)
        assert version_of(store) == PROTOCOL_VERSION
        assert set(wire.refused) == {"ProtocolRefused"}

        monkeypatch.setattr(versions, "SPOKEN", NEWER)  # its leader is a newer one by now
        eventually(lambda: version_of(store) == NEXT)
        monkeypatch.setattr(versions, "SPOKEN", SPOKEN)  # and an older one again
        eventually(lambda: version_of(store) == PROTOCOL_VERSION)
        second = planned(store, TaskKind.NOOP)
        eventually(lambda: status(store, second) is TaskStatus.SUCCESS)
    assert ran.tasks == [first, second]
    assert version_of(store) is None, "its goodbye was understood"


@pytest.mark.req("L4")
def test_a_newer_coordinator_gives_an_older_worker_only_what_it_knows(
    api: TestClient, store: Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(versions, "SPOKEN", NEWER)
    ran = Ran()
    unknown = planned(store, TaskKind.DISCARD)
    with worker(api, tmp_path, ran) as wire:
        known = planned(store, TaskKind.NOOP)
        eventually(lambda: status(store, known) is TaskStatus.SUCCESS)
        assert version_of(store) == PROTOCOL_VERSION
    assert wire.refused == []
    assert ran.tasks == [known]
    assert status(store, unknown) is TaskStatus.PLANNED
    assert read(store, unknown).attempt == 0, "nobody was ever given it"


def test_a_kind_that_a_worker_does_not_know_is_given_back_once_and_another_worker_runs_it(
    api: TestClient, store: Engine, tmp_path: Path
) -> None:
    ran = Ran()
    with worker(api, tmp_path, None):
        first = planned(store, TaskKind.NOOP)  # its coordinator takes it for known
        eventually(lambda: read(store, first).error is not None)
        second = planned(store, TaskKind.NOOP)
        api.post("/v1/jobs", json=submission(job_id="mine"))
        eventually(lambda: api.get("/v1/jobs/mine").json()["status"] != "CREATED")
        found = [read(store, task) for task in (first, second)]
        assert [(t.status, t.attempt, t.failures) for t in found] == [
            (TaskStatus.PLANNED, 1, 0),
            (TaskStatus.PLANNED, 0, 0),
        ]
        assert "does not know what to do for a NOOP task" in (found[0].error or "")
        with worker(api, tmp_path, ran, name="w2"):
            eventually(lambda: status(store, first) is TaskStatus.SUCCESS)
            eventually(lambda: status(store, second) is TaskStatus.SUCCESS)
    assert sorted(ran.tasks) == sorted([first, second])
