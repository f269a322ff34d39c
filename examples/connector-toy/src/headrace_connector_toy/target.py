"""What a SQLite file can do with tokens. When it is done, and in which order, is not said here."""

# ruff: noqa: S608 - names are quoted, and values are bound

from __future__ import annotations

import json
import sqlite3
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace

from headrace.clock import SystemClock
from headrace.errors import Refused, Unavailable
from headrace.exactly_once.spend import check_deadline
from headrace.exactly_once.target import Mark, SpendLimits, Stray
from headrace.model.jobs.epoch import CommitAt, Deadline, SpentBy
from headrace_connector_toy.database import key_of, quoted, transaction
from headrace_connector_toy.descriptor import ToyTable

_TABLES = ("headrace_stage", "headrace_tokens")
_KEY = "incarnation, pipeline, epoch, sink"
_THIS = f"({_KEY}) = (?, ?, ?, ?)"
_UP_TO_THIS = "incarnation = ? AND pipeline = ? AND epoch <= ? AND sink = ?"
_SPENT = f"(SELECT {_KEY} FROM headrace_tokens)"
_TOUCHED = (
    "(SELECT incarnation, touched_ms FROM headrace_stage "
    "UNION ALL SELECT incarnation, touched_ms FROM headrace_tokens)"
)


@dataclass(frozen=True, slots=True)
class ToyChange:
    """What is done under a token: the rows that an execution staged are moved, or nothing."""

    by: SpentBy
    execution: str
    rows: int = 0
    creates_target: bool = False  # a file is there as soon as it is connected to


@dataclass(frozen=True, slots=True)
class ToySpent:
    """What spent a token."""

    by: SpentBy
    execution: str
    committer: str


class ToySqliteTarget:
    """A `CommitTarget`, made anew for each call of the sink."""

    limits = SpendLimits(tries_max=3, wait_s=0.5)

    def __init__(self, sink: str, table: ToyTable) -> None:
        self._path, self._table = table.path, table.name
        self.name = f"table {table.name} of {table.path}"
        self.title = f"sink {sink}: {self.name}"

    def look(self, at: CommitAt) -> ToySpent | None:
        query = f"SELECT spent_by, execution, committer FROM headrace_tokens WHERE {_THIS}"
        with transaction(self._path) as database:
            found = database.execute(query, key_of(at.token)).fetchone()
        return found and ToySpent(SpentBy(found[0]), found[1], found[2])

    def attempt(
        self, at: CommitAt, change: ToyChange, *, committer: str, deadline: Deadline | None
    ) -> str | None:
        insert = "INSERT OR IGNORE INTO headrace_tokens VALUES (?, ?, ?, ?, ?, ?, ?, ?)"
        token = (*key_of(at.token), change.by, change.execution, committer, self.now_ms())
        try:
            with transaction(self._path) as database:
                if database.execute(insert, token).rowcount == 0:
                    return "the token is spent"
                if change.by is SpentBy.DATA:
                    self._move(database, at, change)
                check_deadline(self.name, at, deadline)
        except Unavailable as error:
            return str(error)
        return None

    def _move(self, database: sqlite3.Connection, at: CommitAt, change: ToyChange) -> None:
        staged = f"FROM headrace_stage, json_each(rows_json) WHERE {_THIS} AND execution = ?"
        mine, moved = (*key_of(at.token), change.execution), 0
        first = database.execute(f"SELECT columns_json {staged} LIMIT 1", mine).fetchone()
        if first is not None:
            table, columns = quoted(self._table), json.loads(first[0])
            names = ", ".join(map(quoted, columns))
            values = ", ".join(f"json_extract(value, '$[{n}]')" for n in range(len(columns)))
            database.execute(f"CREATE TABLE IF NOT EXISTS {table} ({names})")
            insert = f"INSERT INTO {table} ({names}) SELECT {values} {staged}"
            moved = database.execute(insert, mine).rowcount
        if moved != change.rows:
            raise Refused(f"{self.title}: {moved} of {change.rows} staged rows are left")

    def abort_change(self, at: CommitAt) -> ToyChange:
        return ToyChange(SpentBy.ABORT, at.execution)

    def finish(self, at: CommitAt, spent: ToySpent) -> None:
        """The transaction was everything."""

    def read_mark(self, at: CommitAt) -> Mark | None:
        incarnation, pipeline, _, sink = key_of(at.token)
        query = (
            "SELECT epoch, spent_by FROM headrace_tokens "
            "WHERE (incarnation, pipeline, sink) = (?, ?, ?) ORDER BY epoch DESC LIMIT 1"
        )
        with transaction(self._path) as database:
            found = database.execute(query, (incarnation, pipeline, sink)).fetchone()
        return found and Mark(found[0], aborted=found[1] == SpentBy.ABORT)

    def is_staged(self, at: CommitAt, *, by: str | None) -> bool:  # noqa: ARG002
        query = f"SELECT 1 FROM headrace_stage WHERE {_THIS}"
        with transaction(self._path) as database:
            return database.execute(query, key_of(at.token)).fetchone() is not None

    def delete_staged(self, at: CommitAt, spent: ToySpent | None, *, kept: str | None) -> None:  # noqa: ARG002
        self._run(f"DELETE FROM headrace_stage WHERE {_THIS}", *key_of(at.token))

    def unspent_epochs(self, at: CommitAt) -> Sequence[CommitAt]:
        query = (
            f"SELECT DISTINCT epoch FROM headrace_stage WHERE {_UP_TO_THIS} "
            f"AND ({_KEY}) NOT IN {_SPENT} ORDER BY epoch"
        )
        with transaction(self._path) as database:
            found = database.execute(query, key_of(at.token)).fetchall()
        return [replace(at, epoch_at=replace(at.epoch_at, epoch=epoch)) for (epoch,) in found]

    def delete_leftovers(self, at: CommitAt) -> None:
        spent = f"({_KEY}) IN {_SPENT}"
        self._run(f"DELETE FROM headrace_stage WHERE {_UP_TO_THIS} AND {spent}", *key_of(at.token))

    def forget_marks(self, at: CommitAt) -> None:
        self._run(f"DELETE FROM headrace_tokens WHERE {_UP_TO_THIS}", *key_of(at.token))

    def now_ms(self) -> int:
        return SystemClock().wall_ms()

    def strays(self, owners: Collection[str]) -> Iterable[Stray]:
        query = f"SELECT incarnation, max(touched_ms) FROM {_TOUCHED} GROUP BY incarnation"
        with transaction(self._path) as database:
            found = database.execute(query).fetchall()
        return [Stray(*one) for one in found if one[0] not in owners]

    def delete_stray(self, stray: Stray, *, idle_since_ms: int) -> None:
        changed = f"SELECT 1 FROM {_TOUCHED} WHERE incarnation = ? AND touched_ms > ?"
        with transaction(self._path) as database:
            if database.execute(changed, (stray.incarnation, idle_since_ms)).fetchone() is None:
                for table in _TABLES:
                    delete = f"DELETE FROM {table} WHERE incarnation = ?"
                    database.execute(delete, (stray.incarnation,))

    def _run(self, statement: str, *values: str | int) -> None:
        with transaction(self._path) as database:
            database.execute(statement, values)
