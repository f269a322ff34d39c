"""Statements that run on the driver's own cursor: the same values, moments and errors as Core's."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from typing import Any

import pytest
from sqlalchemy import (
    JSON,
    Connection,
    Engine,
    Integer,
    Text,
    Update,
    bindparam,
    insert,
    select,
    update,
)
from sqlalchemy.exc import IntegrityError

from headrace.errors import StoreUnavailable
from headrace.model.task import Lane, TaskKind
from headrace.store.core.engine import open_store, open_writer, reading, writing, writing_on
from headrace.store.core.prepared_statements import (
    PreparedBatch,
    PreparedStatement,
    RowColumns,
    execute,
    one_of,
)
from headrace.store.core.schema import facts
from headrace.store.tasks import tasks
from headrace.store.tasks.schema import tasks as rows

ADD = PreparedStatement(insert(facts).values(name=bindparam("key"), value=bindparam("text")))
VALUE = PreparedStatement(select(facts.c.value).where(facts.c.name == bindparam("key")))
AMONG = PreparedStatement(select(rows.c.id).where(one_of(rows.c.id, "ids")).order_by(rows.c.id))


@pytest.fixture
def sqlite_store(sqlite_url: str) -> Iterator[Engine]:
    engine = open_store(sqlite_url)
    yield engine
    engine.dispose()


@pytest.fixture
def postgresql_store(postgresql_url: str) -> Iterator[Engine]:
    engine = open_store(postgresql_url)
    yield engine
    engine.dispose()


def given_tasks(store: Engine, *ids: str, payload: Any = None) -> None:
    with writing(store) as conn:
        for task in ids:
            tasks.plan(
                conn,
                task_id=task,
                kind=TaskKind.NOOP,
                lane=Lane.SLOT,
                group="g",
                now_ms=1,
                payload=payload,
            )


def test_json_goes_in_and_comes_out_as_it_was(store: Engine) -> None:
    payload: dict[str, Any] = {
        "text": 'ä "quoted" \\ %s :name',
        "list": [1, 2.5, None, True],
        "empty": {},
    }
    given_tasks(store, "a", payload=payload)

    with reading(store) as conn:
        task = tasks.get(conn, "a")
        by_core = conn.scalars(select(rows.c.payload).where(rows.c.id == "a")).one()

    assert task is not None
    assert task.payload == payload == by_core


def test_one_statement_serves_a_list_of_any_length(store: Engine) -> None:
    given_tasks(store, "a", "b", "c")

    with reading(store) as conn:
        found = [AMONG.rows(conn, {"ids": ids}) for ids in ([], ["b"], ["a", "c", "nobody"])]

    assert found == [[], [("b",)], [("a",), ("c",)]]


def test_many_rows_are_changed_each_to_its_own_values(store: Engine) -> None:
    def note(said: RowColumns) -> Update:
        return update(rows).where(rows.c.id == said["task"]).values(result=said["found"])

    many = PreparedBatch(
        note, key=rows.c.id, task=Text(), found=JSON(none_as_null=True), unused=Integer()
    )
    given_tasks(store, "a", "b", "c")
    given = {"a": {"rows": 1, "of": ["x"]}, "b": None}

    with writing(store) as conn:
        many.change(conn, [{"task": t, "found": f, "unused": 0} for t, f in given.items()])

    with reading(store) as conn:
        found = conn.execute(
            select(rows.c.id, rows.c.result, rows.c.result.is_(None)).order_by(rows.c.id)
        )
        assert [tuple(row) for row in found] == [
            ("a", {"rows": 1, "of": ["x"]}, False),
            ("b", None, True),  # not the JSON value null
            ("c", None, True),
        ]


def test_it_says_how_many_rows_it_changed(store: Engine) -> None:
    rename = PreparedStatement(
        update(facts).where(facts.c.name == bindparam("key")).values(value="new")
    )
    with writing(store) as conn:
        ADD.change(conn, {"key": "there", "text": "old"})

        assert rename.change(conn, {"key": "there"}) == 1
        assert rename.change(conn, {"key": "not there"}) == 0


def test_a_broken_constraint_is_sqlalchemys_error_and_undoes_the_transaction(
    store: Engine,
) -> None:
    def add_twice(conn: Connection) -> None:
        ADD.change(conn, {"key": "k", "text": "first"})
        ADD.change(conn, {"key": "k", "text": "second"})

    with pytest.raises(IntegrityError), writing(store) as conn:
        add_twice(conn)

    with reading(store) as conn:
        assert VALUE.row(conn, {"key": "k"}) is None


def test_a_savepoint_that_is_undone_undoes_what_ran_in_it(store: Engine) -> None:
    with writing(store) as conn:
        ADD.change(conn, {"key": "kept", "text": ""})
        inner = conn.begin_nested()
        ADD.change(conn, {"key": "undone", "text": ""})
        inner.rollback()

    with reading(store) as conn:
        assert VALUE.row(conn, {"key": "kept"}) == ("",)
        assert VALUE.row(conn, {"key": "undone"}) is None


def test_on_sqlite_what_is_read_together_is_of_one_moment(sqlite_store: Engine) -> None:
    with reading(sqlite_store) as conn:
        assert VALUE.row(conn, {"key": "late"}) is None
        with writing(sqlite_store) as other:
            ADD.change(other, {"key": "late", "text": ""})
        assert VALUE.row(conn, {"key": "late"}) is None

    with reading(sqlite_store) as conn:
        assert VALUE.row(conn, {"key": "late"}) == ("",)


def test_a_kept_connection_that_was_cut_says_so_and_connects_anew(
    postgresql_store: Engine,
) -> None:
    with closing(open_writer(postgresql_store)) as kept:
        with pytest.raises(StoreUnavailable), writing_on(kept):
            execute(kept, "SELECT pg_terminate_backend(pg_backend_pid())")

        with writing_on(kept):
            ADD.change(kept, {"key": "after", "text": ""})

    with reading(postgresql_store) as conn:
        assert VALUE.row(conn, {"key": "after"}) == ("",)
