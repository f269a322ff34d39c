"""Spend a token at a database: raise a mark, and do what belongs to it, in one transaction.

The row of the mark is locked from the first statement on, so that of two who spend one waits, and
then changes no row: refused (E1). A mark that is not there stands below epoch 0. A lost answer is
settled by reading the mark (E3), which also lists the epochs below it that were aborted.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import StrEnum
from uuid import uuid4

from pyspark.sql import SparkSession

from headrace.connectors.jdbc.database import Connection, Database, connected, transaction
from headrace.connectors.jdbc.dialect import MARK_COLUMNS
from headrace.connectors.jdbc.names import MARKS, TableName
from headrace.errors import Fenced, Refused, Unavailable
from headrace.model.deadline import Deadline
from headrace.model.epoch import CommitAt
from headrace.seams import seam

log = logging.getLogger(__name__)

SPEND_TRIES = 3
SPEND_WAIT_S = 0.5  # before the second try; doubled before each further one


class SpentBy(StrEnum):
    DATA = "data"
    ABORT = "abort"


@dataclass(frozen=True, slots=True)
class Spent:
    by: SpentBy
    epoch: int  # of the mark: at the token's or above it
    committer: str  # one call of commit: tells its own mark from another's
    rows: int
    execution: str | None  # that staged what is there, or aborted; None: of a later epoch


@dataclass(frozen=True, slots=True)
class Spending:
    """One call of commit, open or abort."""

    database: Database
    target: TableName
    at: CommitAt
    work: Callable[[Connection], None] | None  # in the same transaction; None: an abort
    execution: str  # who staged the data, not who commits it
    rows: int = 0
    tries_max: int = SPEND_TRIES
    deadline: Deadline | None = None
    committer: str = field(default_factory=lambda: uuid4().hex)

    @property
    def marks(self) -> TableName:
        return self.target.beside(MARKS)

    @property
    def by(self) -> SpentBy:
        return SpentBy.ABORT if self.work is None else SpentBy.DATA


def look(
    connection: Connection, database: Database, marks: TableName, at: CommitAt
) -> Spent | None:
    """Ask the database what spent the token (E3); None while it is unspent."""
    mark = _read(connection, database, marks, at)
    if mark is None or (epoch := int(mark["epoch"] or 0)) < at.epoch:
        return None
    aborted = _listed(at.epoch) in (mark["aborted_epochs"] or "")
    by = SpentBy.ABORT if aborted else SpentBy.DATA
    execution = mark["execution"] if epoch == at.epoch else None
    return Spent(by, epoch, mark["committer"] or "", int(mark["moved_rows"] or 0), execution)


def look_marked(
    connection: Connection, database: Database, marks: TableName, at: CommitAt
) -> tuple[int, SpentBy] | None:
    """The highest epoch that is spent, whichever `at` names; None: none is."""
    mark = _read(connection, database, marks, at)
    if mark is None:
        return None
    return int(mark["epoch"] or 0), SpentBy(mark["spent_by"] or SpentBy.DATA)


def _read(
    connection: Connection, database: Database, marks: TableName, at: CommitAt
) -> dict[str, str | None] | None:
    whose = at.epoch_at
    statement = database.dialect.read_mark(marks)
    found = connection.rows(statement, whose.incarnation, whose.pipeline, at.sink)
    return dict(zip(MARK_COLUMNS, found[0], strict=True)) if found else None


def spend(session: SparkSession, spending: Spending) -> Spent:
    """What spent the token: this call, or somebody before it."""
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
        if _raise_mark(connection, spending):
            _check_deadline(spending)
            if spending.work is not None:
                spending.work(connection)
        seam("in sink transaction")


def _check_deadline(spending: Spending) -> None:
    """Its mark may have been forgotten since it began. Rolled back, and the server lets nobody
    stand still between here and the end of the transaction."""
    if spending.deadline is not None and spending.deadline.passed:
        raise Fenced(
            f"{spending.database.plugin}: the commit of {spending.at.token} to {spending.target} "
            f"began more than {spending.deadline} ago; this execution is too old to commit"
        )


def _raise_mark(connection: Connection, spending: Spending) -> bool:
    """Whether the token was still unspent, and is now. Nobody else can spend it until the end."""
    at = spending.at
    changed = connection.run(
        spending.database.dialect.raise_mark(spending.marks),
        at.epoch_at.incarnation,
        at.epoch_at.pipeline,
        at.sink,
        at.epoch,
        spending.by.value,
        _listed(at.epoch) if spending.by is SpentBy.ABORT else "",
        spending.rows,
        spending.execution,
        spending.committer,
    )
    return changed > 0


def _listed(epoch: int) -> str:
    """Closed on both sides: a list that was cut short holds no number that was not in it."""
    return f",{epoch},"
