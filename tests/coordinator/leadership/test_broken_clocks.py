"""One table whose row can't be read, and a clock that was set: somebody leads all the same (T6)."""

from __future__ import annotations

import json

import pytest
from sqlalchemy import Engine, Text, cast, insert, select, text

from headrace.store.core import leases
from headrace.store.core.engine import is_sqlite, reading, writing
from headrace.store.core.leases import LeaderTime
from headrace.store.core.transactions import Term
from headrace.store.tables.schema import lake_tables
from tests.coordinator.leadership.clocked import HOUR_MS, TABLE, begin, keep
from tests.fakes import FakeClock

BROKEN_CLOCKS = {
    "no list": '{"p": 5}',
    "no mapping": "[1]",
    "a text for a time": '{"p": ["soon"]}',
    "no number of milliseconds": '{"p": [1e400]}',
    "no JSON": '{"p": [',
}


@pytest.mark.req("T6")
@pytest.mark.parametrize("broken", sorted(BROKEN_CLOCKS))
def test_one_table_whose_clocks_cant_be_read_keeps_nobody_from_leading(
    store: Engine, term: Term, clock: FakeClock, caplog: pytest.LogCaptureFixture, broken: str
) -> None:
    stored = BROKEN_CLOCKS[broken]
    if broken == "no JSON" and not is_sqlite(store):
        stored = "null"  # PostgreSQL keeps nothing but JSON
    now_ms = clock.wall_ms()
    keep(store, {"due_at_ms": now_ms, "clocks": {"p": [now_ms]}})
    with writing(store) as conn:
        other = {**TABLE, "id": "a", "name": "a", "identifier": "lake.db.a"}
        conn.execute(insert(lake_tables).values(**other, due_at_ms=now_ms))
        written = text("UPDATE lake_tables SET clocks = CAST(:stored AS JSON) WHERE id = 'a'")
        if is_sqlite(store):
            written = text("UPDATE lake_tables SET clocks = :stored WHERE id = 'a'")
        conn.execute(written, {"stored": stored})
        leases.record_time(conn, term, LeaderTime(now_ms + HOUR_MS, 0))

    begin(store, term, clock)

    with reading(store) as conn:
        rows = select(lake_tables.c.id, cast(lake_tables.c.clocks, Text()), lake_tables.c.due_at_ms)
        found = {id_: (clocks, due_ms) for id_, clocks, due_ms in conn.execute(rows)}
        assert leases.leader_time(conn) == LeaderTime(now_ms, 0)
    assert found["a"] == (stored, now_ms - HOUR_MS)
    assert json.loads(found["t"][0]) == {"p": [now_ms - HOUR_MS]}
    [told] = [r for r in caplog.records if r.getMessage() == "clocks of a table can't be moved"]
    assert vars(told)["table"] == "a"
