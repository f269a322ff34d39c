"""A store in which things wait, and a leader that begins with a clock."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sqlalchemy import Engine, insert

from headrace.coordinator.context import CoordinatorSettings
from headrace.coordinator.leadership.leader import LeaderClock, begin_time, longest_pauses
from headrace.store.core.engine import writing
from headrace.store.core.transactions import Term
from headrace.store.tables import catalogs as known_catalogs
from headrace.store.tables.catalogs import NewCatalog
from headrace.store.tables.schema import blockers, lake_tables
from tests.conftest import ADDRESS
from tests.fakes import FakeClock

HOUR_MS = 3_600_000
NOW_MS = 1_700_000_000_000
OPTIONS = CoordinatorSettings("sqlite:///nowhere", ADDRESS)

TABLE: Mapping[str, Any] = {
    "id": "t",
    "catalog": "lake",
    "namespace": ["db"],
    "name": "t",
    "identifier": "lake.db.t",
    "created_at_ms": NOW_MS,
    "status": "PENDING",
    "status_since_ms": NOW_MS,
    "interval_ms": 60_000,
    "group_name": "default",
    "quota": 0.5,
    "min_plan_interval_ms": 60_000,
    "flaws": [],
    "file_failures": {},
}


def keep(store: Engine, table: Mapping[str, Any], *, expires_at_ms: int = NOW_MS) -> None:
    with writing(store) as conn:
        known_catalogs.add(conn, NewCatalog("lake", "rest", {}, "default"), now_ms=NOW_MS)
        conn.execute(insert(lake_tables).values(**TABLE, **table))
        blocker = {"table_id": "t", "name": "b", "reason": "", "created_at_ms": NOW_MS}
        conn.execute(insert(blockers).values(**blocker, expires_at_ms=expires_at_ms))


def begin(store: Engine, term: Term, clock: FakeClock) -> None:
    begin_time(store, term, LeaderClock(clock), longest_pauses(OPTIONS))
