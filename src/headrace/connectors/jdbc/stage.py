"""Stage rows in a table of their own, which nobody reads, and find the value that did not fit.

Spark's own JDBC writer fills the stage table, each task in one transaction. A task whose answer was
lost is run again, and leaves its rows twice. So every row carries the number of the task attempt
that wrote it, and the *handle* lists the attempts that Spark counts: of each partition the one
whose success it saw first. Only their rows are ever moved.

Many databases say that a value does not fit, but not which one. `find_misfit` looks for it, only
after a job has failed because of it: it reads the rows a second time, up to the first such value.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from pydantic import BaseModel, ConfigDict
from pyspark.errors import AnalysisException
from pyspark.sql import Column, DataFrame, Observation, SparkSession
from pyspark.sql import functions as f
from pyspark.sql import types as spark

from headrace.connectors.jdbc.database import (
    Connection,
    Database,
    connected,
    sql_exception,
    sql_state_and_message,
    transaction,
)
from headrace.connectors.jdbc.dialect import ATTEMPT, PARTITION, NewColumn, TableName, stage_name
from headrace.connectors.jdbc.target import pattern_of
from headrace.errors import HeadraceError, Refused
from headrace.model.jobs.epoch import CommitAt
from headrace.model.text import shortened
from headrace.seams import seam
from headrace.spark.errors import one_line
from headrace.spark.jvm_bridge import JAVA_ERRORS
from headrace.spark.row_counts import require_metrics

log = logging.getLogger(__name__)

STAGE_LABEL = re.compile(r"headrace: staged by (?P<incarnation>\S+) at (?P<made_ms>\d+) ms")
VALUE_CHARACTERS_SHOWN = 100
LENGTH_UNLIMITED = 2**31 - 1
# java.sql.Types
_TEXTS = frozenset({1, 12, -9, -15})
_WHOLE = {5: 2**15, 4: 2**31}  # with the lowest number that is too large
_DECIMALS = frozenset({2, 3})
BAD_DATA = "22"  # the SQLSTATE class of data exceptions


@dataclass(frozen=True, slots=True)
class NewTable:
    """A target that does not exist yet, and that the commit of the first rows creates."""

    columns: Sequence[NewColumn]
    keys: Sequence[str]  # those of the columns that are never null
    create: str  # the statement that creates it


class StageHandle(BaseModel):
    """All that another process needs in order to commit what was staged."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    db_schema: str | None
    table: str
    stage: str
    execution: str
    columns: list[str]
    rows: int
    create: str | None = None  # the statement by which the commit creates a missing target
    is_first: bool = True  # its sink had committed nothing when this was staged
    attempts: list[tuple[int, int]]  # first and last of each run of numbers, both inclusive

    @property
    def target_table(self) -> TableName:
        return TableName(self.db_schema, self.table)

    @property
    def stage_table(self) -> TableName:
        return TableName(self.db_schema, self.stage)

    def attempt_numbers(self) -> list[int]:
        return [number for first, last in self.attempts for number in range(first, last + 1)]


def stage(
    session: SparkSession,
    frame: DataFrame,
    database: Database,
    target: TableName,
    at: CommitAt,
    *,
    columns: Sequence[str],
    batch_size: int,
    new_table: NewTable | None = None,
    is_first: bool = True,
) -> StageHandle:
    """Write the rows of `frame`, whose columns go to `columns`, to the stage table of `at`.

    `new_table`: given when there is no target yet. `is_first`: the sink has committed nothing yet.
    """
    seam("before stage")
    table = target.beside(stage_name(at))
    with (
        connected(session, database, doing="making a stage table") as connection,
        transaction(connection),
    ):
        connection.run(database.dialect.drop(table))
        if new_table is None:
            connection.run(database.dialect.create_stage(table, target, columns))
        else:
            connection.run(database.dialect.create_first_stage(table, new_table.columns))
        label_stage(connection, database, table, at)
    rows, attempts = _write(session, frame, database, table, target, columns, batch_size)
    seam("staged")
    return StageHandle(
        db_schema=target.schema,
        table=target.table,
        stage=table.table,
        execution=at.execution,
        columns=list(columns),
        rows=rows,
        create=new_table and new_table.create,
        is_first=is_first,
        attempts=runs_of(attempts),
    )


def _write(
    session: SparkSession,
    frame: DataFrame,
    database: Database,
    table: TableName,
    target: TableName,
    columns: Sequence[str],
    batch_size: int,
) -> tuple[int, list[int]]:
    observation = Observation()
    named = [
        frame[_escaped(name)].alias(place)
        for name, place in zip(frame.columns, columns, strict=True)
    ]
    marked = frame.select(
        *named, f.spark_partition_id().alias(PARTITION), _task_attempt().alias(ATTEMPT)
    ).observe(
        observation, f.count(f.lit(1)).alias("rows"), f.collect_set(ATTEMPT).alias("attempts")
    )
    options = database.spark_options() | {
        "dbtable": database.dialect.table(table),
        "batchsize": str(batch_size),
        "isolationLevel": "READ_COMMITTED",
    }
    try:
        marked.write.format("jdbc").options(**options).mode("append").save()
    except AnalysisException as error:
        raise Refused(f"{database.plugin}: {one_line(error)}") from error
    except JAVA_ERRORS as error:
        if sql_exception(session, error) is None:
            raise  # not from the database, but from a transform or the source
        state, _ = sql_state_and_message(session, error)
        misfit = None
        if state is not None and state.startswith(BAD_DATA):
            misfit = find_misfit(session, frame, database, table, columns)
        doing = f"staging rows for table {target}"
        raise database.failed(session, error, doing=doing, detail=misfit) from None
    return _observed(observation)


def _task_attempt() -> Column:
    """The number of the task attempt, unique in this Spark application, computed in the JVM.

    No SQL function gives it, and a Python one would send every row to Python and back. Spark names
    the thread of a task after it: "… (TID 12)". If it ever stops doing so, the cast fails, and
    nothing is staged.
    """
    thread = f.java_method(f.lit("java.lang.Thread"), f.lit("currentThread"))
    number = f.substring_index(f.substring_index(thread, "(TID ", -1), ")", 1)
    return f.coalesce(
        number.try_cast("bigint"),
        f.raise_error(f.lit("this Spark does not name its threads after its tasks")).cast("bigint"),
    )


def _observed(observation: Observation) -> tuple[int, list[int]]:
    metrics = require_metrics(observation)
    return int(metrics["rows"]), [int(number) for number in metrics["attempts"]]


def runs_of(numbers: Iterable[int]) -> list[tuple[int, int]]:
    """Numbers as runs without gaps: Spark's are mostly consecutive, so few runs hold many."""
    runs: list[tuple[int, int]] = []
    for number in sorted(set(numbers)):
        if runs and number == runs[-1][1] + 1:
            runs[-1] = (runs[-1][0], number)
        else:
            runs.append((number, number))
    return runs


def _escaped(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"


def label_stage(connection: Connection, database: Database, table: TableName, at: CommitAt) -> None:
    """Set the comment that names the owner, in the transaction that creates the table."""
    label = f"headrace: staged by {at.epoch_at.incarnation} at {now_ms_of(connection, database)} ms"
    connection.run(database.dialect.comment(table, label))


def now_ms_of(connection: Connection, database: Database) -> int:
    ((now_ms,),) = connection.rows(database.dialect.now_ms())
    return int(now_ms or 0)


@dataclass(frozen=True, slots=True)
class _ColumnLimits:
    """Which values a column of the table can hold."""

    name: str
    kind: int
    type_name: str
    size: int
    scale: int

    def __str__(self) -> str:
        if self.kind in _TEXTS:
            return f"{self.type_name}({self.size})"
        scaled = self.kind in _DECIMALS
        return f"{self.type_name}({self.size},{self.scale})" if scaled else self.type_name

    def refuses(self, column: Column, data_type: spark.DataType) -> Column | None:
        """The condition that a value does not fit; None when it is not known for the type."""
        if self.kind in _TEXTS and isinstance(data_type, spark.StringType):
            return f.length(column) > self.size if 0 < self.size < LENGTH_UNLIMITED else None
        if not isinstance(data_type, spark.IntegralType | spark.DecimalType):
            return None
        if (above := _WHOLE.get(self.kind)) is not None:
            return (column >= above) | (column < -above)
        if self.kind in _DECIMALS and self.size > 0:
            return f.abs(column) >= f.lit(10 ** (self.size - self.scale)).cast("decimal(38,0)")
        return None


def find_misfit(
    session: SparkSession,
    frame: DataFrame,
    database: Database,
    table: TableName,
    columns: Sequence[str],
) -> str | None:
    """The column and value of the first row that does not fit `table`; None when not known."""
    try:
        with connected(session, database, doing="looking at the columns") as connection:
            limits = {each.name: each for each in _column_limits(connection, table)}
        return _first_misfit(frame, [limits.get(name) for name in columns])
    except (*JAVA_ERRORS, HeadraceError) as error:  # the first failure is the one to report
        log.info("what did not fit can't be found", extra={"reason": str(error)})
        return None


def _column_limits(connection: Connection, table: TableName) -> Sequence[_ColumnLimits]:
    metadata = connection.java.getMetaData()
    schema, name = (pattern_of(metadata, part) for part in (table.schema or "", table.table))
    result = metadata.getColumns(connection.java.getCatalog(), schema, name, "%")
    limits: list[_ColumnLimits] = []
    while result.next():
        limits.append(
            _ColumnLimits(
                result.getString("COLUMN_NAME"),
                int(result.getInt("DATA_TYPE")),
                result.getString("TYPE_NAME"),
                int(result.getInt("COLUMN_SIZE")),
                int(result.getInt("DECIMAL_DIGITS")),
            )
        )
    result.close()
    return limits


def _first_misfit(frame: DataFrame, limits: Sequence[_ColumnLimits | None]) -> str | None:
    checks: list[tuple[_ColumnLimits, Column]] = []
    for field, limit in zip(frame.schema.fields, limits, strict=True):
        column = frame["`" + field.name.replace("`", "``") + "`"]
        misfits = limit.refuses(column, field.dataType) if limit is not None else None
        if limit is not None and misfits is not None:
            checks.append((limit, f.when(misfits, column.cast("string"))))
    if not checks:
        return None
    values = [value.alias(str(number)) for number, (_, value) in enumerate(checks)]
    some = f.coalesce(*(f.col(str(number)) for number in range(len(checks))))
    chosen = frame.select(*values).filter(some.isNotNull())
    for row in chosen.limit(1).collect():
        number = next(n for n in range(len(checks)) if row[n] is not None)
        limit = checks[number][0]
        shown = shortened(str(row[number]), VALUE_CHARACTERS_SHOWN)
        return f"column {limit.name!r}: {shown!r} does not fit into {limit}"
    return None
