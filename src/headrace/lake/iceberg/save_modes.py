"""Epoch 0 of a table: its save modes, before the first row, fenced like a commit (commit.py).

A table is never dropped and created again: a process that was paused in between would drop the rows
of epoch 1. Instead, rows, columns, partitions and sort order are replaced in one transaction, which
spends the token, and which the table refuses when the token is spent.
"""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, ConfigDict, JsonValue
from pyspark.sql import SparkSession
from pyspark.sql.types import StructType

from headrace.errors import Refused
from headrace.lake.iceberg.catalogs import TableRef
from headrace.lake.iceberg.commit import TableChange
from headrace.lake.iceberg.creation import TableDefinition, iceberg_schema, spec_of
from headrace.model.jobs.epoch import SpentBy
from headrace.spark.jvm_bridge import JAVA_ERRORS, java_message, jvm, refused_or_unavailable


class TableOpening(BaseModel):
    """All that any process needs to open a table, beside the job's own options."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    table: str  # for people
    uuid: str | None  # of the table; None: it did not exist when it was looked at
    execution: str
    columns: JsonValue  # of the rows to come, as Spark's JSON of a schema
    drop: bool = False
    recreate: bool = False


def opening_change(
    session: SparkSession, ref: TableRef, opening: TableOpening, wanted: TableDefinition
) -> TableChange:
    """Carry out the save modes. A table that did not exist when it was looked at, and still does
    not, has nothing to be opened: the commit of the first rows creates it."""

    def begin(table: Any, transaction: Any) -> Any:
        return _begin(session, ref, opening, wanted, table, transaction)

    return TableChange(SpentBy.DATA, opening.execution, begin)


def columns_of_opening(opening: TableOpening) -> StructType:
    """The columns of the rows to come."""
    columns: Any = opening.columns
    return StructType.fromJson(columns)


def _begin(
    session: SparkSession,
    ref: TableRef,
    opening: TableOpening,
    wanted: TableDefinition,
    table: Any,
    transaction: Any,
) -> Any:
    """The transaction up to its snapshot, which is returned uncommitted."""
    if opening.uuid is None:
        return transaction.newAppend()  # there was nothing to drop; what came since is not ours
    if str(table.uuid()) != opening.uuid:
        raise Refused(
            f"{opening.table} was dropped and made anew since execution {opening.execution} looked "
            "at it; run the job again"
        )
    if opening.recreate:
        try:
            _recreate(session, ref, wanted, table, transaction)
        except JAVA_ERRORS as error:
            message = f"the schema of {ref} can't be replaced: {java_message(error)}"
            raise refused_or_unavailable(error, message) from error
    if not opening.drop and not opening.recreate:
        return transaction.newAppend()
    everything = jvm(session).org.apache.iceberg.expressions.Expressions.alwaysTrue()
    return transaction.newDelete().deleteFromRowFilter(everything)


def _recreate(
    session: SparkSession, ref: TableRef, wanted: TableDefinition, table: Any, transaction: Any
) -> None:
    """Replace columns, partitions, keys and sort order. Columns of the same name get new ids, so
    that old files can't be read by them."""
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
        update = add(None, column.name(), column.type())  # no parent, even with a dot in its name
    update.setIdentifierFields(_names(session, *wanted.primary_keys)).commit()
    _partition(session, ref, wanted, transaction)
    properties = transaction.updateProperties()
    for key, value in wanted.properties.items():
        properties = properties.set(key, value)
    properties.commit()


def _partition(
    session: SparkSession, ref: TableRef, wanted: TableDefinition, transaction: Any
) -> None:
    """Add the wanted partition fields to a spec that has none left."""
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
