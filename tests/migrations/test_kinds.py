"""A store in which only texts said what an error was about: the upgrade reads them once more."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from alembic import command
from sqlalchemy import Connection, Engine, text

from headrace.model.groups import ResourceErrorKind as ErrorKind
from headrace.model.groups import ResourceNotice as Notice
from headrace.model.tables.status import TableErrorKind
from headrace.store.core.engine import reading, writing
from headrace.store.groups import resources
from headrace.store.migrate import migrations_config, prepare_store
from headrace.store.tables import lake_tables
from tests.postgresql import PostgreSQL
from tests.stores import KEY, open_store

BEFORE = "0012"

# As the program before wrote them, and what they meant.
TABLE_ERRORS = [
    (None, None),
    ("it can't be evaluated: metadata v7.json is corrupt", TableErrorKind.EVALUATION),
    ("1 of 2 rewrite tasks failed: it can't be evaluated: x", TableErrorKind.OPTIMIZING),
    ("it can't be planned: KeyError", TableErrorKind.OPTIMIZING),
]
NOTICES = [
    (None, None),
    ("gave up after 5 attempts: exit code 137", Notice.GAVE_UP),
    ("it was made for the floor of its group, which needs it no more", Notice.NOT_NEEDED),
    ("its group is removed", Notice.GROUP_REMOVED),
    (
        "its container 'farm' is no longer configured, so nobody can start it; configure the "
        "container again, or release the resource",
        Notice.ISOLATED,
    ),
    ("its container 'farm' leaves starting to you; nobody else starts it", Notice.LEFT_TO_USER),
    (
        "its container 'k8s' does not have it started again by us; release the resource if it does "
        "not come back",
        Notice.OPTED_OUT,
    ),
]
RESOURCE_ERRORS = [
    ("STARTED", None, None),
    ("STARTED", "exit code 137, Killed", ErrorKind.ENDED),
    ("FAILED", "no such queue", ErrorKind.NOT_STARTED),
    ("INTENDED", "no such queue", ErrorKind.NOT_STARTED),
    ("STARTED", "could not be stopped: connection refused", ErrorKind.NOT_STOPPED),
]


@pytest.fixture(params=["sqlite", "postgresql"])
def old(request: pytest.FixtureRequest, store_folder: Path) -> Iterator[Engine]:
    """A store of the revision before."""
    if request.param == "sqlite":
        engine = open_store(f"sqlite:///{store_folder}/old.db")
    else:
        server: PostgreSQL = request.getfixturevalue("postgresql")
        engine = open_store(server.url(server.create_database(template="template1")))
    config = migrations_config()
    # Nothing is sealed on the way: there are no jobs yet.
    config.attributes |= {"secret_key": KEY.id, "seal": None}
    with writing(engine) as conn:
        config.attributes["connection"] = conn
        command.upgrade(config, BEFORE)
    yield engine
    engine.dispose()


def _insert(conn: Connection, into: str, **values: object) -> None:
    names = ", ".join(values)
    given = ", ".join(f":{name}" for name in values)
    conn.execute(text(f"INSERT INTO {into} ({names}) VALUES ({given})"), values)


def _table(conn: Connection, name: str, error: str | None) -> None:
    about = {"id": name, "catalog": "lake", "namespace": "[]", "name": name, "identifier": name}
    times = {"created_at_ms": 1, "status_since_ms": 1, "due_at_ms": 1, "interval_ms": 1}
    chosen = {"group_name": "default", "quota": 0.5, "min_plan_interval_ms": 1}
    _insert(conn, "lake_tables", **about, **times, **chosen, status="IDLE", error=error, failures=1)


def _resource(conn: Connection, name: str, **values: object) -> None:
    about = {"id": name, "group_name": "g", "container": "farm", "threads": 1, "memory_mb": 1}
    made = {"properties": "{}", "made_for": "user", "created_at_ms": 1}
    _insert(conn, "resources", **about, **made, **values)


def test_the_errors_of_tables_keep_their_meaning(old: Engine) -> None:
    with writing(old) as conn:
        catalog = {"name": "lake", "type": "rest", "properties": "{}", "defaults": "{}"}
        _insert(conn, "catalogs", **catalog, group_name="g", created_at_ms=1, due_at_ms=1)
        for number, (error, _) in enumerate(TABLE_ERRORS):
            _table(conn, f"t{number}", error)

    prepare_store(old)

    with reading(old) as conn:
        found = [lake_tables.get(conn, f"t{number}") for number in range(len(TABLE_ERRORS))]
    assert [each and (each.error, each.error_kind) for each in found] == TABLE_ERRORS


def test_what_was_said_of_resources_keeps_its_meaning(old: Engine) -> None:
    with writing(old) as conn:
        _insert(conn, "groups", name="g", container="farm", created_at_ms=1)
        for number, (told, _) in enumerate(NOTICES):
            _resource(conn, f"told{number}", step="STARTED", told=told)
        for number, (step, error, _) in enumerate(RESOURCE_ERRORS):
            _resource(conn, f"error{number}", step=step, error=error)

    prepare_store(old)

    with reading(old) as conn:
        said = [resources.get(conn, f"told{number}") for number in range(len(NOTICES))]
        failed = [resources.get(conn, f"error{number}") for number in range(len(RESOURCE_ERRORS))]
    assert [each and (each.told, each.notice) for each in said] == NOTICES
    assert [each and (each.step, each.error, each.error_kind) for each in failed] == RESOURCE_ERRORS
