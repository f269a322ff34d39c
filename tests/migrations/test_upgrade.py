"""A store with jobs in it that the program before made: they go on, and it does not (L4)."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from alembic import command
from sqlalchemy import Connection, Engine, select, text

from headrace.errors import LeaderFenced
from headrace.model.job import JobStatus
from headrace.store import leases
from headrace.store.engine import open_store, reading, writing
from headrace.store.facts import OLDEST_PROGRAM, PROGRAM_LEVEL
from headrace.store.fence import LEADER, Term, fenced
from headrace.store.migrate import migrations_config, prepare_store
from headrace.store.schema import facts
from tests.coordinator.desk import Desk
from tests.coordinator.specs import ROWS
from tests.coordinator.streaming import restored, streaming
from tests.fakes import FakeClock
from tests.postgresql import PostgreSQL

BEFORE = "0003"
LED = Term("old", 4)


@pytest.fixture(params=["sqlite", "postgresql"])
def old(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Engine]:
    """A store of the revision before, which somebody leads."""
    if request.param == "sqlite":
        engine = open_store(f"sqlite:///{tmp_path}/old.db")
    else:
        server: PostgreSQL = request.getfixturevalue("postgresql")
        engine = open_store(server.url(server.create_database(template="template1")))
    config = migrations_config()
    with writing(engine) as conn:
        config.attributes["connection"] = conn
        command.upgrade(config, BEFORE)
        lease = {"name": LEADER, "holder": LED.holder, "epoch": LED.epoch}
        _insert(conn, "leases", **lease, address="http://old:1", renewals=9, hinted=0)
    yield engine
    engine.dispose()


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
    assert oldest == "3", "they can't read a FORGET task, or one of a table"
    assert int(oldest) <= PROGRAM_LEVEL
    with pytest.raises(LeaderFenced), fenced(old, LED):
        pass


@pytest.mark.req("C5", "L4")
def test_jobs_of_the_program_before_are_cleaned_up_and_can_be_restored_after_that(
    old: Engine, clock: FakeClock
) -> None:
    _with_jobs(old)
    prepare_store(old)
    with writing(old) as conn:
        term = leases.take(conn, leases.read(conn), holder="new", address="http://new:1")
    assert term is not None
    desk = Desk(old, clock, term)

    for _ in range(2):  # it is recorded, then it is due
        assert desk.clean().failed == []

    with reading(old) as conn:
        assert conn.execute(text("SELECT id FROM jobs")).scalars().all() == ["runs"]
        assert conn.execute(text("SELECT job_id FROM history")).scalars().all() == ["saved"]
    restored(desk, "saved")
    assert (desk.job("saved").run, desk.job("saved").incarnation) == (2, "of-saved")
    assert desk.pipeline("saved").positions == {"FakeSource-1": 3 * ROWS}
    assert desk.pipeline("saved").epoch == 3
