"""Peer of `sync`: a transaction per claim and another per finish, from several threads.

The same table, the same indexes and the same durability; no HTTP, no batches.
"""

from __future__ import annotations

import sqlite3
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass
from typing import Any

import psycopg
from sqlalchemy import make_url

GROUP = "peer"
THREADS = 8
BUSY_TIMEOUT_S = 30.0
STATEMENT_TIMEOUT_MS = 30_000

_NEXT = "SELECT id FROM tasks WHERE status = 'PLANNED' AND group_name = 'peer' AND lane = 'SLOT'"
_CLAIM = (
    "UPDATE tasks SET status = 'SCHEDULED', attempt = attempt + 1, worker_id = 'peer',"
    " scheduled_at_ms = 1 WHERE id = ({pick}) RETURNING id, attempt"
)
_FINISH = (
    "UPDATE tasks SET status = 'SUCCESS', ended_at_ms = 1"
    " WHERE id = {mark} AND attempt = {mark} AND status = 'SCHEDULED'"
)
_CLAIM_SQLITE = _CLAIM.format(pick=f"{_NEXT} ORDER BY id LIMIT 1")
_CLAIM_POSTGRESQL = _CLAIM.format(pick=f"{_NEXT} ORDER BY id LIMIT 1 FOR UPDATE SKIP LOCKED")
_FINISH_SQLITE = _FINISH.format(mark="?")
_FINISH_POSTGRESQL = _FINISH.format(mark="%s")


@dataclass(frozen=True, slots=True)
class Rate:
    per_s: float
    per_cpu_s: float


def measure(store_url: str, *, seconds: float) -> Rate:
    """Completions per second of `THREADS` threads in so many seconds."""
    url = make_url(store_url)
    work = _sqlite(str(url.database)) if url.drivername == "sqlite" else _postgresql(store_url)
    over = threading.Event()
    timer = threading.Timer(seconds, over.set)
    cpu_s, began_s = time.process_time(), time.perf_counter()
    timer.start()
    with ThreadPoolExecutor(THREADS) as pool:
        counts = [pool.submit(work, over) for _ in range(THREADS)]
        done = sum(count.result() for count in counts)
    wall_s, cpu_s = time.perf_counter() - began_s, time.process_time() - cpu_s
    timer.cancel()
    return Rate(per_s=done / wall_s, per_cpu_s=done / cpu_s)


Work = Callable[[threading.Event], int]


def _loop(over: threading.Event, claim: Callable[[], Any], finish: Callable[[Any], None]) -> int:
    done = 0
    while not over.is_set():
        if (taken := claim()) is None:
            return done
        finish(taken)
        done += 1
    return done


def _sqlite(path: str) -> Work:
    def work(over: threading.Event) -> int:
        with closing(sqlite3.connect(path, timeout=BUSY_TIMEOUT_S, isolation_level=None)) as conn:
            conn.execute("PRAGMA synchronous=FULL")

            def transact(statement: str, values: Sequence[Any] = ()) -> Any:
                conn.execute("BEGIN IMMEDIATE")
                found = conn.execute(statement, values).fetchone()
                conn.execute("COMMIT")
                return found

            return _loop(
                over,
                lambda: transact(_CLAIM_SQLITE),
                lambda taken: transact(_FINISH_SQLITE, taken),
            )

    return work


def _postgresql(store_url: str) -> Work:
    def work(over: threading.Event) -> int:
        options = f"-c statement_timeout={STATEMENT_TIMEOUT_MS}"
        with closing(psycopg.connect(store_url, autocommit=True, options=options)) as conn:

            def finish(taken: Any) -> None:
                conn.execute(_FINISH_POSTGRESQL, taken)

            return _loop(over, lambda: conn.execute(_CLAIM_POSTGRESQL).fetchone(), finish)

    return work
