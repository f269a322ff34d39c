"""What the schemas of all rooms share, and the tables `facts` and `leases`.

The other tables stand in the schema of their room, in the same `metadata`. Table names are plural
nouns; every time is in milliseconds since the epoch.

Columns are of two kinds. What is *wanted* is written by commands, on any node: the `wanted_*`
columns. What *is* is written only under a term, or under the claim of an execution. Log lines are
neither, nor is the number of a job's last line: any node may log that a job is wanted to end, and
nothing is decided by it.

A status changes only along the transition map of its machine (S1). `may_become` is the guard of
every such write. It is derived from the map, never listed by hand, and it is part of the UPDATE
itself: no caller can write a step that the map does not have, whatever it read before.

`facts` is what the store says about itself: its id, the id of the key that its secrets are
encrypted under, and the oldest program that may write to it (L4). A program has a level, a number
that grows when earlier programs could no longer understand what it writes. A migration that those
could not live with raises the store's `oldest_program` and ends the leader's term in the same
transaction. Other migrations leave both alone, so that during a rolling upgrade programs of two
versions run on one store.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Any

from sqlalchemy import (
    BigInteger,
    Column,
    ColumnElement,
    Connection,
    Index,
    Integer,
    MetaData,
    Table,
    Text,
    UniqueConstraint,
    and_,
    false,
    or_,
    select,
    text,
)

from headrace import __version__
from headrace.errors import ProgramTooOld
from headrace.model.transitions import Status, predecessors
from headrace.store.core.driver_errors import store_name

metadata = MetaData(
    naming_convention={
        "pk": "pk_%(table_name)s",
        "uq": "uq_%(table_name)s_%(column_0_N_name)s",
        "ck": "ck_%(table_name)s_%(constraint_name)s",
        "fk": "fk_%(table_name)s_%(column_0_N_name)s",
        "ix": "ix_%(table_name)s_%(column_0_N_name)s",
    }
)

PROGRAM_LEVEL = 5  # of this program
OLDEST_PROGRAM = "oldest_program"
STORE_ID = "store_id"
ENCRYPTED_UNDER = "secret_key"  # the id of the key that secrets are encrypted under


def quoted_list(values: Iterable[str]) -> str:
    """The values as an SQL list, for the right side of IN in DDL."""
    return "(" + ", ".join(f"'{value}'" for value in sorted(values)) + ")"


def partial_index(name: str, *columns: str, where: str) -> Index:
    """An index over the few rows that loops look for, so that it stays small."""
    return Index(name, *columns, sqlite_where=text(where), postgresql_where=text(where))


def may_become(
    status: ColumnElement[str],
    transitions: Mapping[Status, frozenset[Status]],
    target: Status,
    *,
    among: Collection[Status] | None = None,
) -> ColumnElement[bool]:
    """Whether `target` may follow the status of the row. `among`: and it has one of these."""
    allowed = predecessors(transitions, target)
    return _is_any(status, allowed if among is None else allowed.intersection(among))


def may_become_each(
    status: ColumnElement[str],
    transitions: Mapping[Status, frozenset[Status]],
    target: ColumnElement[Any],
    *,
    targets: Collection[Status],
    among: Collection[Status],
) -> ColumnElement[bool]:
    """Like `may_become`, for a batch in which each row has a `target` of its own, of `targets`."""
    by_allowed: dict[frozenset[Status], list[Status]] = {}
    for each in sorted(targets):
        allowed = predecessors(transitions, each).intersection(among)
        by_allowed.setdefault(allowed, []).append(each)
    return or_(
        false(),
        *(
            and_(_is_any(target, together), _is_any(status, allowed))
            for allowed, together in by_allowed.items()
        ),
    )


def _is_any(column: ColumnElement[Any], statuses: Collection[Status]) -> ColumnElement[bool]:
    # Not IN: a prepared statement has one parameter for each value.
    return or_(false(), *(column == status for status in sorted(statuses)))


facts = Table(
    "facts",
    metadata,
    Column("name", Text, primary_key=True),
    Column("value", Text, nullable=False),
)

leases = Table(
    "leases",
    metadata,
    Column("name", Text, primary_key=True),
    Column("holder", Text, nullable=False),  # host:pid:start-time; empty when resigned
    Column("address", Text, nullable=False),  # where the holder answers
    Column("epoch", Integer, nullable=False),
    Column("renewals", Integer, nullable=False),
    # Whether the holder had the take-over lock: only then does a free lock mean that it is dead.
    Column("hinted", Integer, nullable=False),
    # The leader's time when it last renewed, and how far that is ahead of its wall clock.
    Column("clock_ms", BigInteger, nullable=False, server_default=text("0")),  # 0: never recorded
    Column("offset_ms", BigInteger, nullable=False, server_default=text("0")),
    # When a leader last found its clock set ahead; what looks old then need not be. 0: never.
    Column("set_ahead_at_ms", BigInteger, nullable=False, server_default=text("0")),
    # Makes `epoch` a key column: a take-over waits for FOR KEY SHARE, a renewal does not.
    UniqueConstraint("name", "epoch"),
)


def store_id(conn: Connection) -> str:
    """The id that the store was given when it was made. Its state directory carries the same id."""
    return conn.execute(select(facts.c.value).where(facts.c.name == STORE_ID)).scalar_one()


def check_program(conn: Connection) -> None:
    """Raise ProgramTooOld when this program is older than the store allows."""
    oldest = conn.scalar(select(facts.c.value).where(facts.c.name == OLDEST_PROGRAM))
    if oldest is not None and int(oldest) > PROGRAM_LEVEL:
        raise ProgramTooOld(
            f"store {store_name(conn.engine)} was upgraded and takes programs of level {oldest} or "
            f"newer; this is headrace {__version__}, level {PROGRAM_LEVEL}; install the release "
            "that upgraded it, or name another store"
        )
