"""How the databases go about what they are asked."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from typing import Any

import pytest
from sqlalchemy import Connection, Engine, event, text

from headrace.store.core import prepared_statements
from headrace.store.core.engine import is_sqlite, writing

Heard = list[tuple[str, Any]]


@contextmanager
def heard_statements(store: Engine) -> Generator[Heard]:
    """What is asked of the store, as its driver is told it."""
    heard: Heard = []
    execute = prepared_statements.execute

    def hear(conn: Connection, sql: str, values: Any = prepared_statements.NOTHING) -> Any:
        heard.append((sql, values))
        return execute(conn, sql, values)

    def hear_core(_conn: Connection, _cursor: Any, sql: str, given: Any, *_rest: Any) -> None:
        heard.append((sql, given))

    event.listen(store, "before_cursor_execute", hear_core)
    try:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(prepared_statements, "execute", hear)
            yield heard
    finally:
        event.remove(store, "before_cursor_execute", hear_core)


def plans(store: Engine, heard: Heard) -> list[str]:
    """Of each statement. PostgreSQL takes an index wherever it could, however small the table."""
    found: list[str] = []
    with writing(store) as conn:
        if not is_sqlite(store):
            conn.execute(text("SET LOCAL enable_seqscan = off"))
        for statement, given in heard:
            explain = "EXPLAIN QUERY PLAN" if is_sqlite(store) else "EXPLAIN"
            rows = prepared_statements.execute(conn, f"{explain} {statement}", given).fetchall()
            found.append("\n".join(str(row[-1]) for row in rows))
    return found


def reads_all_of(plan: str, *tables: str) -> bool:
    """Whether a whole table is read, be it in the order of an index. Tables go by their aliases.

    An index over a few rows may be read as a whole."""
    lines = [line.strip() for line in plan.splitlines()]
    return "Seq Scan" in plan or any(
        line == f"SCAN {table}"
        or (line.startswith(f"SCAN {table} USING") and "_wanted" not in line)
        for line in lines
        for table in tables
    )
