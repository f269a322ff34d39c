"""Epoch 0 of a table: what save modes ask, before the first row. Fenced like a commit (commit.py).

A table is never dropped to be made anew: a process that was paused in between would drop the rows
of epoch 1. Rows, columns, partitions and sort order are replaced in one transaction instead, which
spends the token, and which the table refuses when the token is spent.
"""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, ConfigDict, JsonValue
from pyspark.sql import SparkSession
from pyspark.sql.types import StructType

from headrace.errors import Refused, TokenSpent
from headrace.formats.iceberg.catalogs import TableRef, exists
from headrace.formats.iceberg.commit import Change, Outcome, spend
from headrace.formats.iceberg.create import TableDefinition, iceberg_schema, spec_of
from headrace.formats.iceberg.jvm import JAVA_ERRORS, java_message, jvm, not_granted
from headrace.formats.iceberg.token import CommitAt, SpentBy
from headrace.model.epoch import COMMIT_DEADLINE_S
from headrace.seams import seam


class Opening(BaseModel):
    """All that a stranger needs in order to open a table, beside the job's own options."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    table: str  # for people
    uuid: str | None  # of the table; None: there was none when it was looked at
    execution: str
    columns: JsonValue  # of the rows to come, as Spark writes a schema
    drop: bool = False
    recreate: bool = False


def open_table(
    session: SparkSession,
    ref: TableRef,
    opening: Opening,
    wanted: TableDefinition,
    at: CommitAt,
    *,
    deadline_s: float = COMMIT_DEADLINE_S,
) -> Outcome | None:
    """Do what was asked, once. `TokenSpent` when an abort was first. None: there is no table, so
    there was nothing to do; the commit of the first rows makes it."""
    seam("before sink open")
    if opening.uuid is None and not exists(session, ref):
        seam("sink opened")
        return None

    def begin(table: Any, transaction: Any) -> Any:
        return _begin(session, ref, opening, wanted, table, transaction)

    change = Change(SpentBy.DATA, opening.execution, begin)
    outcome = spend(session, ref, at, change, deadline_s=deadline_s)
    seam("sink opened")
    if outcome.spent.by is SpentBy.ABORT:
        raise TokenSpent(at.token, str(ref))
    return outcome


def columns_of_opening(opening: Opening) -> StructType:
    columns: Any = opening.columns
    return StructType.fromJson(columns)


def _begin(
    session: SparkSession,
    ref: TableRef,
    opening: Opening,
    wanted: TableDefinition,
    table: Any,
    transaction: Any,
) -> Any:
    """The transaction up to its snapshot, which is returned uncommitted."""
    if opening.uuid is None:
        return transaction.newAppend()  # there was nothing to drop: what came since is not ours
    if str(table.uuid()) != opening.uuid:
        raise Refused(
            f"{opening.table} was dropped and made anew since execution {opening.execution} looked "
            "at it; run the job again"
        )
    if opening.recreate:
        try:
            _recreate(session, ref, wanted, table, transaction)
        except JAVA_ERRORS as error:
            said = f"the schema of {ref} can't be replaced: {java_message(error)}"
            raise not_granted(error, said) from error
    if not opening.drop and not opening.recreate:
        return transaction.newAppend()
    everything = jvm(session).org.apache.iceberg.expressions.Expressions.alwaysTrue()
    return transaction.newDelete().deleteFromRowFilter(everything)


def _recreate(
    session: SparkSession, ref: TableRef, wanted: TableDefinition, table: Any, transaction: Any
) -> None:
    """Columns of the same name are others: they get new ids, so old files can't be read by them."""
    schema = iceberg_schema(session, ref, wanted)
    transaction.replaceSortOrder().commit()
    spec = transaction.updateSpec()
    for field in table.spec().fields():
        spec = spec.removeField(field.name())
    spec.commit()
    update = transaction.updateSchema().allowIncompatibleChanges()
    update = update.setIdentifierFields(_names(session))
    for column in table.schema().columns():
        update = update.deleteColumn(column.name())
    for column in schema.columns():
        add = update.addColumn if column.isOptional() else update.addRequiredColumn
        update = add(None, column.name(), column.type())  # of no parent, dots or not
    update.setIdentifierFields(_names(session, *wanted.primary_keys)).commit()
    _partition(session, ref, wanted, transaction)
    properties = transaction.updateProperties()
    for key, value in wanted.properties.items():
        properties = properties.set(key, value)
    properties.commit()


def _partition(
    session: SparkSession, ref: TableRef, wanted: TableDefinition, transaction: Any
) -> None:
    expressions = jvm(session).org.apache.iceberg.expressions.Expressions
    schema = transaction.table().schema()
    update = transaction.updateSpec()
    for field in spec_of(session, ref, schema, wanted.partition_keys).fields():
        column = schema.findColumnName(field.sourceId())
        update = update.addField(field.name(), expressions.transform(column, field.transform()))
    update.commit()


def _names(session: SparkSession, *names: str) -> Any:
    made = jvm(session).java.util.ArrayList()
    for name in names:
        made.add(name)
    return made
