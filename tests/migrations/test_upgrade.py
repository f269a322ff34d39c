"""A store with jobs in it that the program before made: they go on, and it does not (L4)."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from alembic import command
from sqlalchemy import Connection, Engine, select, text

from headrace.clock import SystemClock
from headrace.errors import LeaderFenced
from headrace.model.jobs.status import JobStatus
from headrace.store.core import leases
from headrace.store.core.engine import reading, writing
from headrace.store.core.schema import OLDEST_PROGRAM, PROGRAM_LEVEL, facts
from headrace.store.core.transactions import LEADER, Term, fenced
from headrace.store.jobs import queue
from headrace.store.migrate import migrations_config, prepare_store
from headrace.store.tasks import tasks, workers
from tests.coordinator.jobs.streaming import restored, streaming
from tests.coordinator.leader_harness import LeaderHarness
from tests.coordinator.specs import ROWS
from tests.fakes import FakeClock
from tests.postgresql import PostgreSQL
from tests.stores import open_store

BEFORE = "0003"
DAY_MS = 86_400_000
LED = Term("old", 4)


@pytest.fixture(params=["sqlite", "postgresql"])
def old(request: pytest.FixtureRequest, store_folder: Path) -> Iterator[Engine]:
    """A store of the revision before, which somebody leads."""
    if request.param == "sqlite":
        engine = open_store(f"sqlite:///{store_folder}/old.db")
    else:
        server: PostgreSQL = request.getfixturevalue("postgresql")
        engine = open_store(server.url(server.create_database(template="template1")))
    _upgrade(engine, BEFORE)
    with writing(engine) as conn:
        lease = {"name": LEADER, "holder": LED.holder, "epoch": LED.epoch}
        _insert(conn, "leases", **lease, address="http://old:1", renewals=9, hinted=0)
    yield engine
    engine.dispose()


def _upgrade(engine: Engine, to: str) -> None:
    config = migrations_config()
    with writing(engine) as conn:
        config.attributes["connection"] = conn
        command.upgrade(config, to)


def _insert(conn: Connection, into: str, **values: object) -> None:
    names = ", ".join(values)
    given = ", ".join(f":{name}" for name in values)
    conn.execute(text(f"INSERT INTO {into} ({names}) VALUES ({given})"), values)


def _job(conn: Connection, name: str, status: JobStatus, *, ended_at_ms: int | None) -> None:
    spec = json.dumps(streaming().model_dump(mode="json", exclude={"secrets"}))
    about = {"id": name, "incarnation": f"of-{name}", "submission_key": f"key-{name}"}
    times = {"created_at_ms": 1, "started_at_ms": 2, "ended_at_ms": ended_at_ms}
    _insert(
        conn, "jobs", **about, name=name, group_name="default", spec=spec, status=status, **times
    )
    _insert(
        conn,
        "pipelines",
        job_id=name,
        number=1,
        status="FINISHED" if ended_at_ms else "RUNNING",
        epoch=3,
        positions=json.dumps({"FakeSource-1": 3 * ROWS}),
        commits="{}",
    )


def _with_jobs(old: Engine) -> None:
    """One that ended with a savepoint, and one that runs."""
    with writing(old) as conn:
        _job(conn, "saved", JobStatus.SAVEPOINT_DONE, ended_at_ms=1_699_999_000_000)
        _job(conn, "runs", JobStatus.RUNNING, ended_at_ms=None)
        _insert(
            conn,
            "savepoints",
            incarnation="of-saved",
            job_id="saved",
            kind="SAVEPOINT",
            epoch=3,
            positions=json.dumps({"FakeSource-1": 3 * ROWS}),
            ready="[]",
            written="{}",
            made_at_ms=1_699_999_000_000,
        )


@pytest.mark.req("L4")
def test_programs_that_know_of_no_cleanup_are_shut_out(old: Engine) -> None:
    prepare_store(old)

    with reading(old) as conn:
        oldest = conn.scalar(select(facts.c.value).where(facts.c.name == OLDEST_PROGRAM))
    assert oldest == "5", "they can't read a FORGET task, one of a table, a secret, or a wish"
    assert int(oldest) <= PROGRAM_LEVEL
    with pytest.raises(LeaderFenced), fenced(old, LED):
        pass


def test_log_lines_of_a_worker_whose_clock_is_ahead_were_taken_by_now(old: Engine) -> None:
    """They would outlive all others by as much."""
    now_ms = SystemClock().wall_ms()
    _upgrade(old, "0006")
    with writing(old) as conn:
        for number, at_ms in enumerate((now_ms - 60_000, now_ms + 10 * 365 * DAY_MS)):
            line = {"incarnation": "i", "source": "w1", "number": number, "at_ms": at_ms}
            _insert(conn, "job_logs", **line, job_id="j", level="INFO", text="said")
    prepare_store(old)
    with reading(old) as conn:
        taken = conn.execute(text("SELECT taken_at_ms FROM job_logs ORDER BY number")).scalars()
        first_ms, second_ms = taken.all()
    assert first_ms == now_ms - 60_000
    assert now_ms <= second_ms <= SystemClock().wall_ms()


def test_jobs_that_wait_keep_their_places_in_the_queue(old: Engine) -> None:
    _upgrade(old, "0006")
    with writing(old) as conn:
        for name, created_at_ms in (("a", 30), ("b", 10), ("c", 20)):
            _job(conn, name, JobStatus.PENDING, ended_at_ms=None)
            created = text("UPDATE jobs SET created_at_ms = :at WHERE id = :id")
            conn.execute(created, {"at": created_at_ms, "id": name})
    prepare_store(old)
    with reading(old) as conn:
        assert [each.job_id for each in queue.front(conn, "default", most=10)] == ["b", "c", "a"]
        numbers = conn.execute(text("SELECT queue_number FROM jobs ORDER BY id")).scalars().all()
    assert numbers == [3, 1, 2]


def test_lost_workers_that_were_counted_as_errors_are_forgiven(old: Engine) -> None:
    _upgrade(old, "0006")
    with writing(old) as conn:
        _job(conn, "runs", JobStatus.RUNNING, ended_at_ms=None)
        about = {"group_name": "default", "payload": "{}", "created_at_ms": 1, "failures": 2}
        of_job = {**about, "job_id": "runs", "pipeline": 1}
        _insert(conn, "tasks", id="a", kind="PIPELINE", lane="SLOT", status="PLANNED", **of_job)
        ended = {"status": "FAILED", "ended_at_ms": 2}
        _insert(conn, "tasks", id="b", kind="PIPELINE", lane="SLOT", **ended, **of_job)
        _insert(conn, "tasks", id="c", kind="SETTLE", lane="CONTROL", status="PLANNED", **of_job)
    prepare_store(old)
    with reading(old) as conn:
        counted = conn.execute(text("SELECT failures FROM tasks ORDER BY id")).scalars().all()
    assert counted == [0, 2, 2]


def test_a_savepoint_that_was_wanted_of_the_program_before_is_still_wanted(old: Engine) -> None:
    _upgrade(old, "0007")  # the next one seals secrets, which takes a start
    with writing(old) as conn:
        _job(conn, "runs", JobStatus.DOING_SAVEPOINT, ended_at_ms=None)
        about = {"group_name": "default", "lane": "SLOT", "created_at_ms": 1}
        of_job = {**about, "kind": "PIPELINE", "status": "PLANNED", "job_id": "runs", "pipeline": 1}
        _insert(conn, "tasks", id="a", payload='{"savepoint": true, "retry_times": 2}', **of_job)
        _insert(conn, "tasks", id="b", payload='{"retry_times": 2}', **of_job)
    prepare_store(old)
    with reading(old) as conn:
        wishes = {
            task.id: (task.savepoint, dict(task.payload)) for task in tasks.of_job(conn, "runs")
        }
    assert wishes == {"a": (True, {"retry_times": 2}), "b": (False, {"retry_times": 2})}


@pytest.mark.req("C5", "L4")
def test_jobs_of_the_program_before_are_cleaned_up_and_can_be_restored_after_that(
    old: Engine, clock: FakeClock
) -> None:
    _with_jobs(old)
    prepare_store(old)
    with writing(old) as conn:
        term = leases.take(conn, leases.read(conn), holder="new", address="http://new:1")
    assert term is not None
    desk = LeaderHarness(old, clock, term)

    for _ in range(2):  # it is recorded, then it is due
        assert desk.clean().failed == []

    with reading(old) as conn:
        assert conn.execute(text("SELECT id FROM jobs")).scalars().all() == ["runs"]
        assert conn.execute(text("SELECT job_id FROM history")).scalars().all() == ["saved"]
    restored(desk, "saved")
    assert (desk.job("saved").run, desk.job("saved").incarnation) == (2, "of-saved")
    assert desk.pipeline("saved").positions == {"FakeSource-1": 3 * ROWS}
    assert desk.pipeline("saved").epoch == 3


def test_workers_that_are_registered_speak_the_version_before_versions_were_told(
    old: Engine,
) -> None:
    with writing(old) as conn:
        about = {"group_name": "default", "slots": 2, "control_slots": 1, "version": "0.1"}
        at = {"host": "h", "pid": 1, "spark_application": "app"}
        _insert(conn, "workers", id="w1", **about, **at, registered_at_ms=1, seen_at_ms=1)
    prepare_store(old)
    with reading(old) as conn:
        [worker] = workers.registered(conn)
    assert (worker.id, worker.protocol) == ("w1", 4)
