"""Commit, abort and sweep an epoch's rows at a database. Spending the token is spend.py's.

The rows are moved from their stage table to the target in the transaction that raises the mark. A
target that is missing is made there, too: a job that fails before its first commit leaves none.
"""

from __future__ import annotations

from dataclasses import dataclass

from pyspark.sql import SparkSession

from headrace.connectors.jdbc.database import Connection, Database, connected
from headrace.connectors.jdbc.names import MARKS, TableName, stage_prefix
from headrace.connectors.jdbc.spend import Spending, Spent, SpentBy, look, spend
from headrace.connectors.jdbc.staging import Handle
from headrace.connectors.jdbc.target import (
    create_with_first_rows,
    ensure_marks,
    located,
    tables_with,
)
from headrace.errors import Refused, TokenSpent
from headrace.model.deadline import Deadline
from headrace.model.epoch import CommitAt
from headrace.seams import seam

DROP_TIMEOUT_S = 30  # a task that still writes to its stage table holds up its end


@dataclass(frozen=True, slots=True)
class Outcome:
    already: bool  # the token was spent by somebody else's commit of the same epoch
    spent: Spent


def commit(
    session: SparkSession,
    database: Database,
    handle: Handle,
    at: CommitAt,
    *,
    tries_max: int,
    deadline: Deadline | None = None,
) -> Outcome:
    """Make what was staged visible, once. `TokenSpent` when an abort was first."""
    seam("before sink commit")
    spending = Spending(
        database,
        handle.target_table,
        at,
        lambda connection: _move(connection, database, handle),
        handle.execution,
        handle.rows,
        tries_max,
        deadline,
    )
    spent = spend(session, spending)
    seam("sink committed")
    return outcome(spending, spent)


def outcome(spending: Spending, spent: Spent) -> Outcome:
    if spent.by is SpentBy.ABORT:
        raise TokenSpent(spending.at.token, str(spending.target))
    return Outcome(already=spent.committer != spending.committer, spent=spent)


def abort(session: SparkSession, database: Database, target: TableName, at: CommitAt) -> Spent:
    """Spend the token with no rows, then drop whatever was staged under it (E6).

    When data was first nothing is dropped: who asks knows less than the database does (E7).
    """
    seam("before abort")
    with connected(session, database, doing="aborting") as connection:
        target = located(connection, target)
        ensure_marks(connection, database, target)
    spent = spend(session, Spending(database, target, at, None, at.execution))
    seam("abort spent")
    if spent.by is SpentBy.ABORT:
        _drop_stages(session, database, target, at)
    return spent


def sweep(session: SparkSession, database: Database, target: TableName, at: CommitAt) -> None:
    """Drop what any execution staged for an epoch whose token is spent."""
    with connected(session, database, doing="sweeping") as connection:
        target = located(connection, target)
        if not tables_with(connection, target.schema, stage_prefix(at)):
            return  # swept before, or an epoch without rows
        spent = look(connection, database, target.beside(MARKS), at)
    if spent is None:
        raise Refused(
            f"{database.plugin}: {at.token} is not spent at {target}; nothing was dropped"
        )
    seam("before sweep")
    _drop_stages(session, database, target, at)


def _move(connection: Connection, database: Database, handle: Handle) -> None:
    if handle.create is not None:
        create_with_first_rows(connection, handle.target_table, handle.create)
    if handle.rows == 0:
        return
    moved = connection.run(
        database.dialect.move(
            handle.target_table, handle.stage_table, handle.columns, handle.attempt_numbers()
        )
    )
    if moved != handle.rows:
        raise Refused(
            f"{database.plugin}: of {handle.rows} rows that execution "
            f"{handle.execution} staged for {handle.target_table}, {moved} are left in "
            f"{handle.stage_table}; nothing was committed; run the job again"
        )


def _drop_stages(
    session: SparkSession, database: Database, target: TableName, at: CommitAt
) -> None:
    with connected(
        session, database, doing="dropping stage tables", timeout_s=DROP_TIMEOUT_S
    ) as connection:
        for table in tables_with(connection, target.schema, stage_prefix(at)):
            connection.run(database.dialect.drop(table))
