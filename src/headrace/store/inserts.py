"""Many rows at once, of which some may be there already."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from sqlalchemy import Connection, Table
from sqlalchemy.dialects import postgresql, sqlite

from headrace.store.engine import is_sqlite


def insert_absent(conn: Connection, table: Table, rows: Sequence[Mapping[str, Any]]) -> None:
    """Insert those whose key is not there; the others stay as they are."""
    insert = sqlite.insert(table) if is_sqlite(conn) else postgresql.insert(table)
    conn.execute(insert.on_conflict_do_nothing(), [dict(row) for row in rows])
