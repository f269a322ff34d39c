"""What /metrics says of groups: what stands in the store now, never a counter kept beside it."""

from __future__ import annotations

from dataclasses import asdict

from prometheus_client import CollectorRegistry, Gauge
from sqlalchemy import Connection

from headrace.coordinator.groups.look import Look
from headrace.coordinator.service import Coordinator
from headrace.store import groups


def count_groups(registry: CollectorRegistry, conn: Connection, coordinator: Coordinator) -> None:
    """Every state of every group, also one that nothing is in."""
    doc = "Threads of a group: wanted as its floor, effective, and by where each of them is"
    threads = Gauge("headrace_group_threads", doc, ["group", "state"], registry=registry)
    doc = "Resources of a group that have no worker"
    orphans = Gauge("headrace_group_orphans", doc, ["group"], registry=registry)
    now_ms = coordinator.groups.now_ms()
    for group in groups.all_of_them(conn):
        look = Look.at(conn, group, coordinator.options.groups, now_ms=now_ms)
        floor, effective = group.min_parallelism, group.keeping.effective
        states = {"wanted": floor, "effective": floor if effective is None else effective}
        for state, count in {**states, **asdict(look.capacity)}.items():
            threads.labels(group.name, state).set(count)
        alone = [each for each, _ in look.decisions if each.id not in look.workers]
        orphans.labels(group.name).set(len(alone))
