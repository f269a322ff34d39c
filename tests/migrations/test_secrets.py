"""A store of the program before, with secrets in clear: the start that upgrades it seals them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from alembic import command
from sqlalchemy import Connection, Engine, select, text
from sqlalchemy.exc import DBAPIError

from headrace.errors import KeyRefused, LeaderFenced
from headrace.store.core.encryption import current_key_id
from headrace.store.core.engine import is_sqlite, reading, with_keyring, writing
from headrace.store.core.keyring import Keyring
from headrace.store.core.schema import OLDEST_PROGRAM, PROGRAM_LEVEL, facts, metadata
from headrace.store.core.transactions import LEADER, Term, fenced
from headrace.store.jobs import cleanups, jobs
from headrace.store.jobs.schema import job_secrets
from headrace.store.migrate import migrations_config, prepare_store, revision
from headrace.store.tables import catalogs
from tests.coordinator.jobs.test_commands import with_secret
from tests.coordinator.specs import SECRET
from tests.postgresql import PostgreSQL
from tests.stores import KEY, open_store

BEFORE = "0006"
LED = Term("old", 4)
OF_SINK = with_secret().secrets
CLEAR = json.dumps({"lake.token": SECRET})
CATALOG = {
    "type": "rest",
    "properties": "{}",
    "defaults": "{}",
    "group_name": "default",
    "created_at_ms": 1,
    "due_at_ms": 1,
}
BOUND_S = 120.0  # for a state to come, also on a busy machine
ALL = {**OF_SINK, "FakeSource-1.password": SECRET, "env.password": SECRET}


@pytest.fixture(params=["sqlite", "postgresql"])
def old(request: pytest.FixtureRequest, store_folder: Path) -> Iterator[Engine]:
    if request.param == "sqlite":
        engine = open_store(f"sqlite:///{store_folder}/old.db")
    else:
        server: PostgreSQL = request.getfixturevalue("postgresql")
        engine = open_store(server.url(server.create_database(template="template1")))
    config = migrations_config()
    with writing(engine) as conn:
        config.attributes["connection"] = conn
        command.upgrade(config, BEFORE)
        lease = {"name": LEADER, "holder": LED.holder, "epoch": LED.epoch}
        _insert(conn, "leases", **lease, address="http://old:1", renewals=9, hinted=0)
        _fill(conn)
    yield engine
    engine.dispose()


def _insert(conn: Connection, into: str, **values: object) -> None:
    names = ", ".join(values)
    given = ", ".join(f":{name}" for name in values)
    conn.execute(text(f"INSERT INTO {into} ({names}) VALUES ({given})"), values)


def _fill(conn: Connection) -> None:
    """A job that runs, one that ended and awaits cleanup, two whose rows are gone; a catalog."""
    spec = json.dumps(with_secret().model_dump(mode="json", exclude={"secrets"}))
    for name, status, ended_at_ms in (("runs", "RUNNING", None), ("ended", "FINISHED", 9)):
        about = {"id": name, "incarnation": f"of-{name}", "submission_key": f"key-{name}"}
        times = {"created_at_ms": 1, "started_at_ms": 2, "ended_at_ms": ended_at_ms}
        rest = {"name": name, "group_name": "default", "spec": spec, "status": status}
        _insert(conn, "jobs", **about, **rest, **times)
        _insert(conn, "job_secrets", job_id=name, secrets=json.dumps(ALL))
    for name, step, secrets in (
        ("ended", "STATE", None),
        ("gone", "TARGETS", json.dumps(OF_SINK)),
        ("open", "TARGETS", "{}"),
    ):
        about = {"incarnation": f"of-{name}", "job_id": name, "group_name": "default"}
        times = {"made_at_ms": 9, "due_at_ms": 99, "targets_due_at_ms": 999}
        _insert(conn, "cleanups", **about, **times, step=step, secrets=secrets)
    _insert(conn, "catalogs", **CATALOG, name="lake")
    _insert(conn, "catalog_secrets", catalog="lake", secrets=CLEAR)


def _everything(store: Engine) -> str:
    with reading(store) as conn:
        return "\n".join(
            str(row) for t in metadata.sorted_tables for row in conn.execute(select(t))
        )


@pytest.mark.req("C2", "L4")
def test_what_stood_in_clear_is_encrypted_and_what_an_ended_job_needs_no_longer_is_gone(
    old: Engine,
) -> None:
    prepare_store(old)

    assert SECRET not in _everything(old)
    with reading(old) as conn:
        assert jobs.spec_and_secrets_of(conn, "runs")[1] == ALL
        assert conn.execute(select(job_secrets.c.job_id)).scalars().all() == ["runs"]
        assert cleanups.spec_and_secrets_of(conn, "of-ended")[1] == OF_SINK
        assert cleanups.spec_and_secrets_of(conn, "of-gone")[1] == OF_SINK
        assert cleanups.spec_and_secrets_of(conn, "of-open")[1] == {}
        assert catalogs.secrets_of(conn, "lake") == {"lake.token": SECRET}
        assert is_sqlite(conn) or current_key_id(conn) == KEY.id


@pytest.mark.req("L4")
def test_programs_that_encrypt_nothing_are_shut_out(old: Engine) -> None:
    prepare_store(old)
    with reading(old) as conn:
        oldest = conn.scalar(select(facts.c.value).where(facts.c.name == OLDEST_PROGRAM))
    assert 4 <= int(oldest or 0) <= PROGRAM_LEVEL
    with pytest.raises(LeaderFenced), fenced(old, LED):
        pass


@pytest.mark.req("L4")
@pytest.mark.parametrize(
    "written",
    [
        "INSERT INTO job_secrets (job_id, secrets) VALUES ('ended', :clear)",
        "UPDATE job_secrets SET secrets = :clear",
        "INSERT INTO catalog_secrets (catalog, secrets) VALUES ('headrace', :clear)"
        " ON CONFLICT DO NOTHING",
        "UPDATE catalog_secrets SET secrets = :clear WHERE catalog = 'lake'",
        "UPDATE cleanups SET secrets = :clear WHERE incarnation = 'of-open'",
    ],
)
def test_a_program_that_encrypts_nothing_can_write_no_secret_any_more(
    old: Engine, written: str
) -> None:
    """One that runs goes on answering, and takes jobs. These are its statements."""
    prepare_store(old)
    before = _everything(old)

    with pytest.raises(DBAPIError, match="secrets") as refused, writing(old) as conn:
        conn.execute(text(written), {"clear": CLEAR})

    assert SECRET not in str(refused.value)
    assert _everything(old) == before


@pytest.mark.req("L4")
def test_what_a_program_is_writing_in_clear_is_waited_for_and_encrypted(old: Engine) -> None:
    if is_sqlite(old):
        return  # the upgrade holds the write lock
    with ThreadPoolExecutor(1) as pool:
        with writing(old) as conn:
            _insert(conn, "catalogs", **CATALOG, name="late")
            _insert(conn, "catalog_secrets", catalog="late", secrets=CLEAR)
            upgraded = pool.submit(prepare_store, old)
            while not upgraded.done() and not _waits_for_a_lock(old):
                pass
        upgraded.result(BOUND_S)

    assert SECRET not in _everything(old)
    with reading(old) as conn:
        assert catalogs.secrets_of(conn, "late") == {"lake.token": SECRET}


def _waits_for_a_lock(store: Engine) -> bool:
    question = (
        "SELECT count(*) FROM pg_stat_activity"
        " WHERE datname = current_database() AND wait_event_type = 'Lock'"
    )
    with reading(store) as conn:
        return bool(conn.exec_driver_sql(question).scalar())


@pytest.mark.req("L4")
def test_a_store_that_is_not_given_a_key_stays_as_it_was(old: Engine) -> None:
    with_keyring(old, Keyring())
    with pytest.raises(KeyRefused, match="HEADRACE_SECRET_KEY"):
        prepare_store(old)
    with reading(old) as conn:
        assert revision(conn) == BEFORE


def test_nothing_of_it_is_left_in_the_file(old: Engine) -> None:
    """A value that is overwritten is zeroed: deleted rows are, too."""
    if not is_sqlite(old):
        return
    path = Path(str(old.url.database))
    prepare_store(old)
    old.dispose()
    assert SECRET.encode() not in path.read_bytes()
    assert not path.with_name("old.db-wal").exists()
