"""A table of a database as a target of exactly_once: a token is spent by a mark beside the table.

To spend a token is to raise the pipeline's mark in `headrace_commits` and to do what belongs to it,
in one transaction. The row of the mark is locked from the first statement on: of two that spend at
once one waits, then changes no row, and is refused (E1). A missing mark counts as below epoch 0. A
lost answer is settled by reading the mark (E3), which also lists the epochs below it that were
aborted.

A commit moves the rows from their stage table to the target. A target that is missing is created in
the same transaction: a job that fails before its first commit leaves none.

Epoch 0 opens the target: it does what the save modes ask. `survey` turns the modes into statements
and changes nothing. `opening_change` runs all of them or none in the transaction that raises the
mark to 0, and the mark refuses them from then on: a zombie that wakes after epoch 1 was committed
drops nothing. Databases whose DDL is not transactional could not be opened in this way;
PostgreSQL's is.

Of an ended job the stage tables go first and the mark last, since only the mark says that a token
is spent. A committer that wakes afterwards finds its stage table gone, and its transaction is
rolled back.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Generator, Iterable, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from pydantic import BaseModel, ConfigDict
from pyspark.sql import SparkSession
from pyspark.sql import types as spark

from headrace.connectors.jdbc.database import Connection, Database, connected, transaction
from headrace.connectors.jdbc.dialect import MARK_COLUMNS, MARKS, TableName, stage_prefix
from headrace.connectors.jdbc.leftovers import find_strays, stages_of, stages_of_stray
from headrace.connectors.jdbc.stage import StageHandle, now_ms_of
from headrace.connectors.jdbc.target import (
    columns_of,
    create_statement,
    create_with_first_rows,
    ensure_marks,
    qualified,
    table_exists,
    tables_with_prefix,
)
from headrace.errors import Refused, Unavailable
from headrace.exactly_once.spend import check_deadline
from headrace.exactly_once.target import Mark, SpendLimits, Stray
from headrace.model.jobs.epoch import CommitAt, Deadline, SpentBy
from headrace.plugins.save_modes import DataMode, SaveModes, SchemaMode
from headrace.seams import seam

SPEND_TRIES = 3
SPEND_WAIT_S = 0.5  # back-off before the second try; doubled before each further one
DROP_TIMEOUT_S = 30  # a task that still writes to a stage table blocks its drop
STRAYS_TIMEOUT_S = 30  # for one statement
CREATES = frozenset({SchemaMode.CREATE, SchemaMode.RECREATE})


@dataclass(frozen=True, slots=True)
class SpentAtDatabase:
    by: SpentBy
    epoch: int  # that of the mark: the token's or a later one
    committer: str  # unique for each call, which recognises its own mark by it
    rows: int
    execution: str | None  # the one that staged or aborted; None: the mark is at a later epoch


@dataclass(frozen=True, slots=True)
class DatabaseChange:
    """What is done in the transaction that raises the mark."""

    by: SpentBy
    execution: str  # the one that staged the data, not the one that commits it
    work: Callable[[Connection], None]
    rows: int = 0
    makes_marks: bool = True  # whether it makes a missing table of marks; staging did, for rows
    creates_target = False  # tokens are in the table of marks, so that a missing target hides none


class DatabaseOpening(BaseModel):
    """All that another process needs in order to open the target."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    db_schema: str | None
    table: str
    statements: list[str]

    @property
    def target_table(self) -> TableName:
        return TableName(self.db_schema, self.table)


class DatabaseTarget:
    """The table of one sink, with the marks and the stage tables beside it."""

    def __init__(
        self,
        session: SparkSession,
        database: Database,
        table: TableName,
        *,
        tries_max: int = SPEND_TRIES,
    ) -> None:
        self._session, self._database, self._table = session, database, table
        self.limits = SpendLimits(tries_max, SPEND_WAIT_S)
        self._has_marks = False  # the table of marks was seen; it is never dropped by us

    @property
    def name(self) -> str:
        return str(self._table)

    @property
    def title(self) -> str:
        return f"{self._database.plugin}: table {self._table} in {self._database}"

    def look(self, at: CommitAt) -> SpentAtDatabase | None:
        with self._connected("reading the mark") as connection:
            return self._look(connection, at)

    def attempt(
        self,
        at: CommitAt,
        change: DatabaseChange,
        *,
        committer: str,
        deadline: Deadline | None,
    ) -> str | None:
        try:
            with self._connected("committing") as connection:
                if change.makes_marks and not self._has_marks:
                    ensure_marks(connection, self._database, self._table)
                with transaction(connection):
                    if self._raise_mark(connection, at, change, committer):
                        # A pause can't be long between this check and the end of the transaction:
                        # the server ends transactions that are idle.
                        check_deadline(self.name, at, deadline)
                        change.work(connection)
                    seam("in sink transaction")
        except Unavailable as error:
            return str(error)
        return None

    def abort_change(self, at: CommitAt) -> DatabaseChange:
        return DatabaseChange(SpentBy.ABORT, at.execution, _do_nothing)

    def finish(self, at: CommitAt, spent: SpentAtDatabase) -> None:
        """The transaction was everything."""

    def read_mark(self, at: CommitAt) -> Mark | None:
        with self._connected("reading the mark") as connection:
            mark = self._mark(connection, at)
        if mark is None:
            return None
        return Mark(int(mark["epoch"] or 0), aborted=mark["spent_by"] == SpentBy.ABORT)

    def is_staged(self, at: CommitAt, *, by: str | None) -> bool:  # noqa: ARG002
        with self._connected("sweeping") as connection:
            return bool(tables_with_prefix(connection, self._table.schema, stage_prefix(at)))

    def delete_staged(
        self,
        at: CommitAt,
        spent: SpentAtDatabase | None,  # noqa: ARG002
        *,
        kept: str | None,  # noqa: ARG002
    ) -> None:
        """Drop the epoch's stage tables, also that of `kept`: a commit has moved its rows."""
        with self._connected("dropping stage tables", timeout_s=DROP_TIMEOUT_S) as connection:
            for table in tables_with_prefix(connection, self._table.schema, stage_prefix(at)):
                connection.run(self._database.dialect.drop(table))

    def unspent_epochs(self, at: CommitAt) -> Sequence[CommitAt]:
        with self._connected("looking for what a job left") as connection:
            staged = {one.epoch: one for one, _ in stages_of(connection, self._table, at)}
            # The lowest first: a mark spends all epochs below it.
            epochs = [one for _, one in sorted(staged.items())]
            return [one for one in epochs if self._look(connection, one) is None]

    def delete_leftovers(self, at: CommitAt) -> None:
        with self._connected("forgetting a job", timeout_s=DROP_TIMEOUT_S) as connection:
            for one, table in stages_of(connection, self._table, at):
                if self._look(connection, one) is not None:
                    connection.run(self._database.dialect.drop(table))

    def forget_marks(self, at: CommitAt) -> None:
        with self._connected("forgetting a job", timeout_s=DROP_TIMEOUT_S) as connection:
            if self._marks_exist(connection):
                owner = at.epoch_at
                values = (owner.incarnation, owner.pipeline, at.sink, at.epoch)
                connection.run(self._database.dialect.forget_mark(self._marks), *values)

    def now_ms(self) -> int:
        with self._connected("looking for strays", timeout_s=STRAYS_TIMEOUT_S) as connection:
            return now_ms_of(connection, self._database)

    def strays(self, owners: Collection[str]) -> Iterable[Stray]:
        with self._connected("looking for strays", timeout_s=STRAYS_TIMEOUT_S) as connection:
            marks = self._marks if self._marks_exist(connection) else None
            found = find_strays(connection, self._database, self._table, marks)
        return [stray for stray in found if stray.incarnation not in owners]

    def delete_stray(self, stray: Stray, *, idle_since_ms: int) -> None:
        with self._connected("deleting strays", timeout_s=STRAYS_TIMEOUT_S) as connection:
            for table in stages_of_stray(connection, self._table, stray, idle_since_ms):
                connection.run(self._database.dialect.drop(table))
            if self._marks_exist(connection):
                statement = self._database.dialect.forget_marks(self._marks)
                connection.run(statement, stray.incarnation, idle_since_ms)

    @contextmanager
    def _connected(self, doing: str, *, timeout_s: int | None = None) -> Generator[Connection]:
        with connected(
            self._session, self._database, doing=doing, timeout_s=timeout_s
        ) as connection:
            self._table = qualified(connection, self._table)
            yield connection

    @property
    def _marks(self) -> TableName:
        return self._table.beside(MARKS)

    def _marks_exist(self, connection: Connection) -> bool:
        self._has_marks = self._has_marks or table_exists(connection, self._marks)
        return self._has_marks

    def _mark(self, connection: Connection, at: CommitAt) -> Mapping[str, str | None] | None:
        if not self._marks_exist(connection):
            return None
        owner, statement = at.epoch_at, self._database.dialect.read_mark(self._marks)
        rows = connection.rows(statement, owner.incarnation, owner.pipeline, at.sink)
        return dict(zip(MARK_COLUMNS, rows[0], strict=True)) if rows else None

    def _look(self, connection: Connection, at: CommitAt) -> SpentAtDatabase | None:
        mark = self._mark(connection, at)
        if mark is None or (epoch := int(mark["epoch"] or 0)) < at.epoch:
            return None
        aborted = _abort_entry(at.epoch) in (mark["aborted_epochs"] or "")
        by = SpentBy.ABORT if aborted else SpentBy.DATA
        execution = mark["execution"] if epoch == at.epoch else None
        rows = int(mark["moved_rows"] or 0)
        return SpentAtDatabase(by, epoch, mark["committer"] or "", rows, execution)

    def _raise_mark(
        self, connection: Connection, at: CommitAt, change: DatabaseChange, committer: str
    ) -> bool:
        """Raise the mark, which locks it until the transaction ends. False: the token was spent."""
        changed = connection.run(
            self._database.dialect.raise_mark(self._marks),
            at.epoch_at.incarnation,
            at.epoch_at.pipeline,
            at.sink,
            at.epoch,
            change.by.value,
            _abort_entry(at.epoch) if change.by is SpentBy.ABORT else "",
            change.rows,
            change.execution,
            committer,
        )
        return changed > 0


def rows_change(database: Database, handle: StageHandle) -> DatabaseChange:
    """Move what was staged to the target."""
    return DatabaseChange(
        SpentBy.DATA,
        handle.execution,
        lambda connection: _move(connection, database, handle),
        handle.rows,
        makes_marks=False,
    )


def opening_change(opening: DatabaseOpening, at: CommitAt) -> DatabaseChange:
    """Run the statements of the survey."""

    def work(connection: Connection) -> None:
        for statement in opening.statements:
            connection.execute(statement)

    return DatabaseChange(SpentBy.DATA, at.execution, work)


def survey(
    connection: Connection,
    database: Database,
    target: TableName,
    columns: spark.StructType,
    *,
    keys: Sequence[str],
    modes: SaveModes,
    custom_sql: str | None,
) -> DatabaseOpening:
    """The statements that the save modes ask for; refuses a table that they do not allow."""
    schema, data = modes.schema, modes.data
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
    if data is DataMode.CUSTOM and custom_sql is not None:
        statements.append(custom_sql)
    return DatabaseOpening(db_schema=target.schema, table=target.table, statements=statements)


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


def _do_nothing(_: Connection) -> None:
    """What an abort does beside raising the mark."""
