"""Resources of a group that were given up: the last few, for people.

The record of such a resource goes (R3), and with it the reason why. So that stays apart, among the
facts of the store, until its group goes.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass

from sqlalchemy import Connection, delete, select, update

from headrace.store.engine import insert_new
from headrace.store.resources import Resource
from headrace.store.schema import facts

KEPT_MAX = 5  # of each group, the latest


@dataclass(frozen=True, slots=True)
class GivenUp:
    resource: str
    container: str
    threads: int
    attempts: int
    reason: str
    at_ms: int


def of(conn: Connection, group: str) -> Sequence[GivenUp]:
    """The latest first."""
    told = conn.scalar(select(facts.c.value).where(facts.c.name == _name(group)))
    return [GivenUp(**each) for each in json.loads(told)] if told else []


def add(conn: Connection, resource: Resource, *, reason: str, now_ms: int) -> None:
    """Its group is locked by the caller, so nobody else writes the same fact."""
    gone = GivenUp(
        resource=resource.id,
        container=resource.container,
        threads=resource.threads,
        attempts=resource.attempts,
        reason=reason,
        at_ms=now_ms,
    )
    before = [each for each in of(conn, resource.group) if each.resource != resource.id]
    value = json.dumps([asdict(each) for each in [gone, *before][:KEPT_MAX]])
    name = _name(resource.group)
    if not insert_new(conn, facts, name=name, value=value):
        conn.execute(update(facts).where(facts.c.name == name).values(value=value))


def forget(conn: Connection, group: str) -> None:
    conn.execute(delete(facts).where(facts.c.name == _name(group)))


def _name(group: str) -> str:
    return f"given_up.{group}"
