"""Peer of `submit`: the least that can tell another process of a new row.

PostgreSQL: insert and NOTIFY in one transaction, a session that LISTENs. SQLite: insert, and
somebody who reads `PRAGMA data_version` every 25 ms. No HTTP, no job, nothing is claimed.
"""

from __future__ import annotations

import queue
import random
import sqlite3
import threading
import time
from collections.abc import Callable
from contextlib import closing

import psycopg
from sqlalchemy import make_url

WHAT = {
    "sqlite": "an insert, seen by a poll of data_version every 25 ms",
    "postgresql": "an insert and NOTIFY, heard by a session that LISTENs",
}
POLL_S = 0.025
HEAR_MAX_S = 10.0
LISTEN_S = 0.2  # then the listener looks whether it is over
BETWEEN_MIN_S, BETWEEN_MAX_S = 0.005, 0.055  # at random, or inserts fall in step with the poll
SEED = 1
_INSERT = "INSERT INTO facts (name, value) VALUES ('bench-{number}', '')"

Hear = Callable[[threading.Event, "queue.Queue[float]"], None]


def measure(store_url: str, *, count: int) -> list[float]:
    """Seconds from before the insert until the other side knows, so many times."""
    url = make_url(store_url)
    if url.drivername == "sqlite":
        path = str(url.database)
        with closing(sqlite3.connect(path, isolation_level=None)) as conn:
            conn.execute("PRAGMA synchronous=FULL")
            return _measure(conn.execute, _poll(path), count=count)
    with closing(psycopg.connect(store_url)) as conn:

        def insert(statement: str) -> None:
            conn.execute(statement.encode())
            conn.execute("SELECT pg_notify('bench', '')")
            conn.commit()

        return _measure(insert, _listen(store_url), count=count)


def _measure(insert: Callable[[str], object], hear: Hear, *, count: int) -> list[float]:
    heard: queue.Queue[float] = queue.Queue()
    over = threading.Event()
    listener = threading.Thread(target=hear, args=(over, heard), daemon=True)
    listener.start()
    heard.get(timeout=HEAR_MAX_S)  # it says once that it listens
    took_s: list[float] = []
    pauses = random.Random(SEED)
    try:
        for number in range(count):
            began_s = time.perf_counter()
            insert(_INSERT.format(number=number))
            took_s.append(heard.get(timeout=HEAR_MAX_S) - began_s)
            time.sleep(pauses.uniform(BETWEEN_MIN_S, BETWEEN_MAX_S))
    finally:
        over.set()
        listener.join(HEAR_MAX_S)
    return took_s


def _poll(path: str) -> Hear:
    def hear(over: threading.Event, heard: queue.Queue[float]) -> None:
        with closing(sqlite3.connect(path, isolation_level=None)) as conn:

            def version() -> int:
                return conn.execute("PRAGMA data_version").fetchone()[0]

            seen = version()
            heard.put(time.perf_counter())
            while not over.wait(POLL_S):
                if (now := version()) != seen:
                    seen = now
                    heard.put(time.perf_counter())

    return hear


def _listen(store_url: str) -> Hear:
    def hear(over: threading.Event, heard: queue.Queue[float]) -> None:
        with closing(psycopg.connect(store_url, autocommit=True)) as conn:
            conn.execute("LISTEN bench")
            heard.put(time.perf_counter())
            while not over.is_set():
                for _ in conn.notifies(timeout=LISTEN_S, stop_after=1):
                    heard.put(time.perf_counter())

    return hear
