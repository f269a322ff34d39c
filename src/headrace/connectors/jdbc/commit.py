"""Spend a token at a database: by data, or by an abort. The database refuses a second time.

One transaction raises the pipeline's mark from below the epoch to the epoch, and moves the rows.
The row of the mark is locked from the first statement on, so that of two committers one waits,
and then changes no row: refused (E1). A lost answer is settled by reading the mark (E3).
"""

from __future__ import annotations

import logging
import threading
import uuid
from dataclasses import dataclass
from enum import StrEnum

from pyspark.sql import SparkSession

from headrace.connectors.jdbc.database import Connection, Database, connected, transaction
from headrace.connectors.jdbc.dialect import MARK_COLUMNS
from headrace.connectors.jdbc.names import MARKS, CommitAt, TableName
from headrace.connectors.jdbc.staging import Handle
from headrace.connectors.jdbc.target import ensure_marks, located, tables_with
from headrace.errors import Refused, TokenSpent, Unavailable
from headrace.seams import seam

log = logging.getLogger(__name__)

SPEND_TRIES = 3
SPEND_WAIT_S = 0.5  # before the second try; doubled before each further one
DROP_TIMEOUT_S = 30  # a task that still writes to its stage table holds up its end


class SpentBy(StrEnum):
    DATA = "data"
    ABORT = "abort"


@dataclass(frozen=True, slots=True)
class Spent:
    by: SpentBy
    epoch: int  # of the mark: at the token's or above it
    committer: str  # one call of commit: tells its own mark from another's
    rows: int


@dataclass(frozen=True, slots=True)
class Outcome:
    already: bool  # the token was spent by somebody else's commit of the same epoch
    spent: Spent


@dataclass(frozen=True, slots=True)
class Spending:
    """One call of commit or abort."""

    database: Database
    target: TableName
    at: CommitAt
    handle: Handle | None  # None: an abort
    committer: str
    tries_max: int = SPEND_TRIES

    @property
    def marks(self) -> TableName:
        return self.target.beside(MARKS)

    @property
    def by(self) -> SpentBy:
        return SpentBy.ABORT if self.handle is None else SpentBy.DATA


def commit(
    session: SparkSession, database: Database, handle: Handle, at: CommitAt, *, tries_max: int
) -> Outcome:
    """Make what was staged visible, once. `TokenSpent` when an abort was first."""
    seam("before sink commit")
    spending = Spending(database, handle.target_table, at, handle, uuid.uuid4().hex, tries_max)
    spent = _spend(session, spending)
    seam("sink committed")
    if spent.by is SpentBy.ABORT:
        raise TokenSpent(at.token, str(handle.target_table))
    return Outcome(already=spent.committer != spending.committer, spent=spent)


def abort(session: SparkSession, database: Database, target: TableName, at: CommitAt) -> Spent:
    """Spend the token with no rows, then drop whatever was staged under it (E6).

    When data was first it stays; what was staged goes all the same, since it was moved.
    """
    seam("before abort")
    with connected(session, database, doing="aborting") as connection:
        target = located(connection, target)
        ensure_marks(connection, database, target)
    spent = _spend(session, Spending(database, target, at, None, uuid.uuid4().hex))
    seam("abort spent")
    _drop_stages(session, database, target, at)
    return spent


def sweep(session: SparkSession, database: Database, target: TableName, at: CommitAt) -> None:
    """Drop what any execution staged for an epoch whose token is spent."""
    with connected(session, database, doing="sweeping") as connection:
        target = located(connection, target)
        spent = look(connection, database, target.beside(MARKS), at)
    if spent is None:
        raise Refused(
            f"{database.plugin}: {at.token} is not spent at {target}; nothing was dropped"
        )
    seam("before sweep")
    _drop_stages(session, database, target, at)


def look(
    connection: Connection, database: Database, marks: TableName, at: CommitAt
) -> Spent | None:
    """Ask the database what spent the token (E3); None while it is unspent."""
    whose = at.epoch_at
    found = connection.rows(
        database.dialect.read_mark(marks), whose.incarnation, whose.pipeline, at.sink
    )
    if not found:
        return None
    mark = dict(zip(MARK_COLUMNS, found[0], strict=True))
    epoch = int(mark["epoch"] or 0)
    if epoch < at.epoch:
        return None
    aborted = mark["aborted_epoch"] == str(at.epoch)
    by = SpentBy.ABORT if aborted else SpentBy.DATA
    return Spent(by, epoch, mark["committer"] or "", int(mark["moved_rows"] or 0))


def _spend(session: SparkSession, spending: Spending) -> Spent:
    reason: Exception | None = None
    for tries in range(spending.tries_max):
        if tries:
            threading.Event().wait(SPEND_WAIT_S * 2 ** (tries - 1))
        answer = _try(session, spending)
        if isinstance(answer, Spent):
            return answer
        reason = answer
        facts = {"sink": spending.at.sink, "reason": str(reason)}
        log.info("commit not confirmed", extra=facts)
    raise Unavailable(
        f"{spending.database.plugin}: it is not known whether {spending.target} took the commit "
        f"{spending.at.token}, after {spending.tries_max} tries; nothing was deleted; the last "
        f"reason was: {reason}"
    )


def _try(session: SparkSession, spending: Spending) -> Spent | Unavailable:
    """Try once. Whether it landed is not believed from here, but asked of the database."""
    failure: Refused | Unavailable = Unavailable("it was accepted, but is not there")
    try:
        try:
            _attempt(session, spending)
        except (Refused, Unavailable) as error:
            failure = error
        with connected(session, spending.database, doing="reading the mark") as connection:
            spent = look(connection, spending.database, spending.marks, spending.at)
    except Unavailable as error:
        return error
    if spent is not None:
        return spent
    if isinstance(failure, Refused):
        raise failure
    return failure


def _attempt(session: SparkSession, spending: Spending) -> None:
    """One fenced transaction. It may be made again: the mark refuses what has landed before."""
    with (
        connected(session, spending.database, doing="committing") as connection,
        transaction(connection),
    ):
        if _raise_mark(connection, spending) and spending.handle is not None:
            _move(connection, spending, spending.handle)
        seam("in sink transaction")


def _raise_mark(connection: Connection, spending: Spending) -> bool:
    """Whether the token was still unspent, and is now. Nobody else can spend it until the end."""
    at, handle = spending.at, spending.handle
    changed = connection.run(
        spending.database.dialect.raise_mark(spending.marks),
        at.epoch_at.incarnation,
        at.epoch_at.pipeline,
        at.sink,
        at.epoch,
        spending.by.value,
        at.epoch if handle is None else None,
        handle.rows if handle else 0,
        # Who staged the data, not who commits it.
        handle.execution if handle else at.execution,
        spending.committer,
    )
    return changed > 0


def _move(connection: Connection, spending: Spending, handle: Handle) -> None:
    if handle.rows == 0:
        return
    moved = connection.run(
        spending.database.dialect.move(
            handle.target_table, handle.stage_table, handle.columns, handle.attempt_numbers()
        )
    )
    if moved != handle.rows:
        raise Refused(
            f"{spending.database.plugin}: of {handle.rows} rows that execution "
            f"{handle.execution} staged for {handle.target_table}, {moved} are left in "
            f"{handle.stage_table}; nothing was committed; run the job again"
        )


def _drop_stages(
    session: SparkSession, database: Database, target: TableName, at: CommitAt
) -> None:
    with connected(
        session, database, doing="dropping stage tables", timeout_s=DROP_TIMEOUT_S
    ) as connection:
        for table in tables_with(connection, target.schema, at.stage_prefix):
            connection.run(database.dialect.drop(table))
