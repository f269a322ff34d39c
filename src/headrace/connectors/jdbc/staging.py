"""Stage rows: in a table of their own, of which nobody reads.

Spark's own JDBC writer fills it, each task in one transaction. A task whose answer was lost is
run again, and leaves its rows twice; so every row carries the number of the task attempt that
wrote it, and the *handle* lists the attempts that Spark counts: of each partition the one whose
success it saw first. Only their rows are ever moved.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from pydantic import BaseModel, ConfigDict
from pyspark.errors import AnalysisException
from pyspark.sql import Column, DataFrame, Observation, SparkSession
from pyspark.sql import functions as f

from headrace.connectors.jdbc.database import Database, connected, sql_exception, told, transaction
from headrace.connectors.jdbc.dialect import ATTEMPT, PARTITION, NewColumn
from headrace.connectors.jdbc.misfit import find_misfit
from headrace.connectors.jdbc.names import TableName, stage_name
from headrace.connectors.jdbc.strays import label_stage
from headrace.errors import Refused
from headrace.formats.iceberg.jvm import JAVA_ERRORS
from headrace.formats.spark_counts import told_or_fail
from headrace.formats.spark_errors import one_line
from headrace.model.epoch import CommitAt
from headrace.seams import seam

BAD_DATA = "22"  # a class of SQLSTATE


@dataclass(frozen=True, slots=True)
class FirstRows:
    """What is staged for a table that is not there yet: the commit makes it."""

    columns: Sequence[NewColumn]
    keys: Sequence[str]  # among them: never null
    create: str  # the statement


class Handle(BaseModel):
    """All that a stranger needs in order to commit what was staged."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    db_schema: str | None
    table: str
    stage: str
    execution: str
    columns: list[str]
    rows: int
    create: str | None = None  # a statement: the target was not there, and its commit makes it
    is_first: bool = True  # nothing was committed by its sink when this was staged
    attempts: list[tuple[int, int]]  # first and last of each run of numbers; both belong to it

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
    first: FirstRows | None = None,
    is_first: bool = True,
) -> Handle:
    """Write the rows of `frame`, whose columns go to `columns`, where only `at` looks for them.

    `first`: there is no target yet. `is_first`: its sink has committed nothing before.
    """
    seam("before stage")
    table = target.beside(stage_name(at))
    with (
        connected(session, database, doing="making a stage table") as connection,
        transaction(connection),
    ):
        connection.run(database.dialect.drop(table))
        if first is None:
            connection.run(database.dialect.create_stage(table, target, columns))
        else:
            connection.run(database.dialect.create_first_stage(table, first.columns))
        label_stage(connection, database, table, at)
    rows, attempts = _write(session, frame, database, table, target, columns, batch_size)
    seam("staged")
    return Handle(
        db_schema=target.schema,
        table=target.table,
        stage=table.table,
        execution=at.execution,
        columns=list(columns),
        rows=rows,
        create=first and first.create,
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
    seen = Observation()
    named = [
        frame[_escaped(name)].alias(place)
        for name, place in zip(frame.columns, columns, strict=True)
    ]
    marked = frame.select(
        *named, f.spark_partition_id().alias(PARTITION), _task_attempt().alias(ATTEMPT)
    ).observe(seen, f.count(f.lit(1)).alias("rows"), f.collect_set(ATTEMPT).alias("attempts"))
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
            raise  # not the database's: a transform, or the source
        state, _ = told(session, error)
        found = None
        if state is not None and state.startswith(BAD_DATA):
            found = find_misfit(session, frame, database, table, columns)
        doing = f"staging rows for table {target}"
        raise database.failed(session, error, doing=doing, found=found) from None
    return _observed(seen)


def _task_attempt() -> Column:
    """The number of the task attempt, unique in this Spark application, and made in the JVM.

    No SQL function gives it, and a Python one would send every row to Python and back. Spark
    names the thread of a task after it: "… (TID 12)". If it ever does not, the cast fails, and
    nothing is staged.
    """
    thread = f.java_method(f.lit("java.lang.Thread"), f.lit("currentThread"))
    number = f.substring_index(f.substring_index(thread, "(TID ", -1), ")", 1)
    return f.coalesce(
        number.try_cast("bigint"),
        f.raise_error(f.lit("this Spark does not name its threads after its tasks")).cast("bigint"),
    )


def _observed(seen: Observation) -> tuple[int, list[int]]:
    told = told_or_fail(seen)
    return int(told["rows"]), [int(number) for number in told["attempts"]]


def runs_of(numbers: Iterable[int]) -> list[tuple[int, int]]:
    """Numbers as runs without a gap: Spark gives them out in a row, so few say many."""
    runs: list[tuple[int, int]] = []
    for number in sorted(set(numbers)):
        if runs and number == runs[-1][1] + 1:
            runs[-1] = (runs[-1][0], number)
        else:
            runs.append((number, number))
    return runs


def _escaped(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"
