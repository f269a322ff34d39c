"""Which of the two stores a test runs on.

A test that takes `store` or `store_url` is collected for both. Most of them prove a decision that
no dialect of SQL changes: each takes its turn on one store, which follows from its name, so that
half of all run on each and every statement still meets both databases. What a dialect may change
is marked `both_stores` and runs on both each time. `--both-stores` runs everything on both.

Scenarios that kill processes take turns as well; their other halves belong to the kill matrix.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from zlib import crc32

import pytest

STORES = ["sqlite", "postgresql"]


def mark_turns(items: Iterable[pytest.Item]) -> None:
    """Mark what needs a PostgreSQL server, and what is not run on this store unless asked for."""
    stores: dict[str, dict[str, pytest.Item]] = defaultdict(dict)
    for item in items:
        store = _store_of(item)
        if store == "postgresql" or "postgresql" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.postgresql)
        if store is not None:
            stores[_without_store(item.nodeid, store)][store] = item
    for scenario, by_store in stores.items():
        if len(by_store) == len(STORES):
            _mark_other(by_store[_other_than(turn_of(scenario))])


def turn_of(scenario: str) -> str:
    """The same in each run and on each machine, whatever else is collected."""
    return STORES[crc32(scenario.encode()) % len(STORES)]


def _other_than(store: str) -> str:
    return next(name for name in STORES if name != store)


def _mark_other(item: pytest.Item) -> None:
    if item.get_closest_marker("crash") is not None:
        item.add_marker(pytest.mark.matrix)
    elif item.get_closest_marker("both_stores") is None:
        item.add_marker(pytest.mark.other_store)


def _store_of(item: pytest.Item) -> str | None:
    if not isinstance(item, pytest.Function) or not hasattr(item, "callspec"):
        return None
    store = item.callspec.params.get("store_url")
    return store if isinstance(store, str) else None


def _without_store(node_id: str, store: str) -> str:
    name, _, parameters = node_id.partition("[")
    parts = parameters.removesuffix("]").split("-")
    parts.remove(store)
    return f"{name}[{'-'.join(parts)}]"
