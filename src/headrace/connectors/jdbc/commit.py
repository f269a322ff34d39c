"""Commit, abort, open and sweep an epoch at a database, exactly once, by a mark in that database.

To spend a token is to raise the pipeline's mark in `headrace_commits` and to do what belongs to it,
in one transaction. The row of the mark is locked from the first statement on: of two that spend at
once one waits, then changes no row, and is refused (E1). A missing mark counts as below epoch 0. A
lost answer is settled by reading the mark (E3), which also lists the epochs below it that were
aborted.

A commit moves the rows from their stage table to the target. A target that is missing is created in
the same transaction: a job that fails before its first commit leaves none.

Epoch 0 opens the target: it does what the save modes ask. `survey` turns the modes into statements
and changes nothing. `open_target` runs all of them or none in the transaction that raises the mark
to 0, and the mark refuses them from then on: a zombie that wakes after epoch 1 was committed drops
nothing. Databases whose DDL is not transactional could not be opened in this way; PostgreSQL's is.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from uuid import uuid4

from pydantic import BaseModel, ConfigDict, JsonValue
from pyspark.sql import SparkSession
from pyspark.sql import types as spark

from headrace.connectors.jdbc.database import Connection, Database, connected, transaction
from headrace.connectors.jdbc.dialect import MARK_COLUMNS, MARKS, TableName, stage_prefix
from headrace.connectors.jdbc.stage import StageHandle
from headrace.connectors.jdbc.target import (
    columns_of,
    create_statement,
    create_with_first_rows,
    ensure_marks,
    qualified,
    tables_with_prefix,
)
from headrace.errors import Fenced, Refused, TokenSpent, Unavailable
from headrace.jobfile.option_values import DataMode, SchemaMode, data_mode, schema_mode
from headrace.model.jobs.epoch import CommitAt, Deadline, SpentBy
from headrace.seams import seam

log = logging.getLogger(__name__)

SPEND_TRIES = 3
SPEND_WAIT_S = 0.5  # back-off before the second try; doubled before each further one
DROP_TIMEOUT_S = 30  # a task that still writes to a stage table blocks its drop
CREATES = frozenset({SchemaMode.CREATE, SchemaMode.RECREATE})


@dataclass(frozen=True, slots=True)
class SpentAtDatabase:
    by: SpentBy
    epoch: int  # that of the mark: the token's or a later one
    committer: str  # unique for each call, which recognises its own mark by it
    rows: int
    execution: str | None  # the one that staged or aborted; None: the mark is at a later epoch


@dataclass(frozen=True, slots=True)
class Spending:
    """One call of commit, open or abort."""

    database: Database
    target: TableName
    at: CommitAt
    work: Callable[[Connection], None] | None  # runs in the same transaction; None: an abort
    execution: str  # the one that staged the data, not the one that commits it
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


@dataclass(frozen=True, slots=True)
class DatabaseCommit:
    already: bool  # another call had committed the same epoch before
    spent: SpentAtDatabase


class DatabaseOpening(BaseModel):
    """All that another process needs in order to open the target."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    db_schema: str | None
    table: str
    statements: list[str]

    @property
    def target_table(self) -> TableName:
        return TableName(self.db_schema, self.table)


def commit(
    session: SparkSession,
    database: Database,
    handle: StageHandle,
    at: CommitAt,
    *,
    tries_max: int,
    deadline: Deadline | None = None,
) -> DatabaseCommit:
    """Make what was staged visible, once. Raises `TokenSpent` when an abort came first."""
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
    return _commit_result(spending, spent)


def abort(
    session: SparkSession, database: Database, target: TableName, at: CommitAt
) -> SpentAtDatabase:
    """Spend the token without rows, then drop what was staged under it (E6).

    When a commit came first, nothing is dropped: the database knows better than the caller (E7).
    """
    seam("before abort")
    with connected(session, database, doing="aborting") as connection:
        target = qualified(connection, target)
        ensure_marks(connection, database, target)
    spent = spend(session, Spending(database, target, at, None, at.execution))
    seam("abort spent")
    if spent.by is SpentBy.ABORT:
        _drop_stages(session, database, target, at)
    return spent


def sweep(session: SparkSession, database: Database, target: TableName, at: CommitAt) -> None:
    """Drop what any execution staged for an epoch whose token is spent."""
    with connected(session, database, doing="sweeping") as connection:
        target = qualified(connection, target)
        if not tables_with_prefix(connection, target.schema, stage_prefix(at)):
            return  # it was swept before, or the epoch had no rows
        spent = look(connection, database, target.beside(MARKS), at)
    if spent is None:
        raise Refused(
            f"{database.plugin}: {at.token} is not spent at {target}; nothing was dropped"
        )
    seam("before sweep")
    _drop_stages(session, database, target, at)


def survey(
    connection: Connection,
    database: Database,
    target: TableName,
    columns: spark.StructType,
    *,
    keys: Sequence[str],
    options: Mapping[str, JsonValue],
) -> DatabaseOpening:
    """The statements that the save modes ask for; refuses a table that they do not allow."""
    schema, data = schema_mode(options), data_mode(options)
    exists = bool(columns_of(connection, target))
    if schema is SchemaMode.ERROR and not exists:
        raise Refused(
            f"{database.plugin}: there is no table {target} in {database}; make it, or set "
            f"schema_save_mode = {SchemaMode.CREATE}"
        )
    if (
        data is DataMode.ERROR
        and exists
        and connection.rows(database.dialect.some_row(target))  # checked for RECREATE_SCHEMA, too
    ):
        raise Refused(
            f"{database.plugin}: table {target} in {database} holds rows, and data_save_mode is "
            f"{DataMode.ERROR}; empty the table, or set another mode"
        )
    statements: list[str] = []
    if not exists:
        # The first commit of rows creates it, so that a job that fails before leaves none. But
        # the user's own SQL may refer to the table, and needs it now.
        if data is DataMode.CUSTOM and schema in CREATES:
            statements.append(create_statement(database, target, columns, keys))
    elif schema is SchemaMode.RECREATE:
        statements.append(database.dialect.drop(target))
        statements.append(create_statement(database, target, columns, keys))
    elif data is DataMode.DROP:
        statements.append(database.dialect.empty(target))
    if data is DataMode.CUSTOM:
        statements.append(str(options["custom_sql"]))
    return DatabaseOpening(db_schema=target.schema, table=target.table, statements=statements)


def open_target(
    session: SparkSession,
    database: Database,
    opening: DatabaseOpening,
    at: CommitAt,
    *,
    tries_max: int,
    deadline: Deadline | None = None,
) -> DatabaseCommit:
    """Run the statements of the survey, once. Raises `TokenSpent` when an abort came first."""
    seam("before sink open")
    target = opening.target_table

    def work(connection: Connection) -> None:
        for statement in opening.statements:
            connection.execute(statement)

    with connected(session, database, doing="opening") as connection:
        ensure_marks(connection, database, target)
    spending = Spending(
        database, target, at, work, at.execution, tries_max=tries_max, deadline=deadline
    )
    spent = spend(session, spending)
    seam("sink opened")
    return _commit_result(spending, spent)


def look(
    connection: Connection, database: Database, marks: TableName, at: CommitAt
) -> SpentAtDatabase | None:
    """Read from the mark what spent the token (E3); None while it is unspent."""
    mark = _read_mark(connection, database, marks, at)
    if mark is None or (epoch := int(mark["epoch"] or 0)) < at.epoch:
        return None
    aborted = _abort_entry(at.epoch) in (mark["aborted_epochs"] or "")
    by = SpentBy.ABORT if aborted else SpentBy.DATA
    execution = mark["execution"] if epoch == at.epoch else None
    return SpentAtDatabase(
        by, epoch, mark["committer"] or "", int(mark["moved_rows"] or 0), execution
    )


def look_marked(
    connection: Connection, database: Database, marks: TableName, at: CommitAt
) -> tuple[int, SpentBy] | None:
    """The highest spent epoch of this sink, whichever `at` names; None when none is spent."""
    mark = _read_mark(connection, database, marks, at)
    if mark is None:
        return None
    return int(mark["epoch"] or 0), SpentBy(mark["spent_by"] or SpentBy.DATA)


def spend(session: SparkSession, spending: Spending) -> SpentAtDatabase:
    """Spend the token with retries and back-off; returns what spent it, this call or another."""
    reason: Exception | None = None
    for tries in range(spending.tries_max):
        if tries:
            threading.Event().wait(SPEND_WAIT_S * 2 ** (tries - 1))
        result = _try_once(session, spending)
        if isinstance(result, SpentAtDatabase):
            return result
        reason = result
        facts = {"sink": spending.at.sink, "reason": str(reason)}
        log.info("commit not confirmed", extra=facts)
    raise Unavailable(
        f"{spending.database.plugin}: it is not known whether {spending.target} took the commit "
        f"{spending.at.token}, after {spending.tries_max} tries; nothing was deleted; the last "
        f"reason was: {reason}"
    )


def _commit_result(spending: Spending, spent: SpentAtDatabase) -> DatabaseCommit:
    if spent.by is SpentBy.ABORT:
        raise TokenSpent(spending.at.token, str(spending.target))
    return DatabaseCommit(already=spent.committer != spending.committer, spent=spent)


def _try_once(session: SparkSession, spending: Spending) -> SpentAtDatabase | Unavailable:
    """Try once, then read the mark: only the database knows whether the transaction landed."""
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
    """Run one fenced transaction. It may be repeated: the mark refuses what has landed before."""
    with (
        connected(session, spending.database, doing="committing") as connection,
        transaction(connection),
    ):
        if _raise_mark(connection, spending):
            _check_deadline(spending)
            if spending.work is not None:
                spending.work(connection)
        seam("in sink transaction")


def _raise_mark(connection: Connection, spending: Spending) -> bool:
    """Raise the mark, which locks it until the transaction ends. False: the token was spent."""
    at = spending.at
    changed = connection.run(
        spending.database.dialect.raise_mark(spending.marks),
        at.epoch_at.incarnation,
        at.epoch_at.pipeline,
        at.sink,
        at.epoch,
        spending.by.value,
        _abort_entry(at.epoch) if spending.by is SpentBy.ABORT else "",
        spending.rows,
        spending.execution,
        spending.committer,
    )
    return changed > 0


def _check_deadline(spending: Spending) -> None:
    """Fence an execution that is too old: its mark may have been forgotten since it began.

    The transaction is then rolled back. Nor can the execution pause for long between this check and
    the end of the transaction: the server ends transactions that are idle.
    """
    if spending.deadline is not None and spending.deadline.passed:
        raise Fenced(
            f"{spending.database.plugin}: the commit of {spending.at.token} to {spending.target} "
            f"began more than {spending.deadline} ago; this execution is too old to commit"
        )


def _read_mark(
    connection: Connection, database: Database, marks: TableName, at: CommitAt
) -> dict[str, str | None] | None:
    epoch_at = at.epoch_at
    statement = database.dialect.read_mark(marks)
    rows = connection.rows(statement, epoch_at.incarnation, epoch_at.pipeline, at.sink)
    return dict(zip(MARK_COLUMNS, rows[0], strict=True)) if rows else None


def _abort_entry(epoch: int) -> str:
    """An epoch in the list of aborted ones.

    It has a comma on both sides, so that a list that was cut short holds no false number.
    """
    return f",{epoch},"


def _move(connection: Connection, database: Database, handle: StageHandle) -> None:
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
        for table in tables_with_prefix(connection, target.schema, stage_prefix(at)):
            connection.run(database.dialect.drop(table))
