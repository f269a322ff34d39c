"""Create a table in the transaction of its first commit.

Rows for a table that does not exist yet are staged as if it did: with the columns, the partitions
and the location that it is going to have, all of which the handle records (`Creation`). The commit
creates the table together with its first rows and marks in one step, which the catalog refuses when
the table exists. So a job that fails before its first commit leaves no table behind. When two jobs
create it at once, the second appends to the table of the first, if that has the same columns, ids
included.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from pydantic import BaseModel, ConfigDict
from pyspark.sql import SparkSession
from pyspark.sql.types import StructType

from headrace.errors import Refused, Unavailable
from headrace.lake.catalog import TableRef
from headrace.lake.iceberg.catalogs import identifier, open_catalog
from headrace.spark.jvm_bridge import (
    JAVA_ERRORS,
    java_classes,
    java_message,
    jvm,
    refused_or_unavailable,
    string_array,
)

_PLAIN_TRANSFORMS = {
    "identity": "identity",
    "year": "year",
    "years": "year",
    "month": "month",
    "months": "month",
    "day": "day",
    "days": "day",
    "hour": "hour",
    "hours": "hour",
}
_SIZED_TRANSFORMS = {"bucket": "bucket", "truncate": "truncate"}
_CALL = re.compile(r"(?P<name>\w+)\((?P<column>[^,()]+)(?:,\s*(?P<size>\d+)\s*)?\)")

_ALREADY = "AlreadyExistsException"
_RECREATE = "RECREATE_SCHEMA"


class TableExists(Unavailable):
    """Somebody else created the table meanwhile: look at it, then decide."""


@dataclass(frozen=True, slots=True)
class TableDefinition:
    """How a table is to be created."""

    columns: StructType
    # Each is a column, or a transform of one: "days(ts)", "bucket(id, 16)".
    partition_keys: Sequence[str] = ()
    primary_keys: Sequence[str] = ()
    properties: Mapping[str, str] = field(default_factory=dict[str, str])


class Creation(BaseModel):
    """All that any process needs to create the table that rows were staged for."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    location: str
    columns: str  # Iceberg's JSON of a schema, ids included
    partitions: str  # Iceberg's JSON of a partition spec
    properties: dict[str, str]


def plan_creation(
    session: SparkSession, ref: TableRef, wanted: TableDefinition
) -> tuple[Any, Creation]:
    """A transaction for staging, which would create the table, and the record of its creation.

    Creates nothing but the namespace. Raises `TableExists` when somebody was faster.
    """
    _ensure_namespace(session, ref)
    schema = iceberg_schema(session, ref, wanted)
    spec = spec_of(session, ref, schema, wanted.partition_keys)
    transaction = _begin_transaction(session, ref, schema, spec, wanted.properties)
    table, iceberg = transaction.table(), jvm(session).org.apache.iceberg
    return transaction, Creation(
        location=str(table.location()),
        columns=str(iceberg.SchemaParser.toJson(table.schema())),
        partitions=str(iceberg.PartitionSpecParser.toJson(table.spec())),
        properties=dict(wanted.properties),
    )


def begin_creation(session: SparkSession, ref: TableRef, creation: Creation) -> Any:
    """An open transaction that creates the table as it was when rows were staged for it."""
    _ensure_namespace(session, ref)
    schema, spec = _parsed(session, creation)
    transaction = _begin_transaction(
        session, ref, schema, spec, creation.properties, creation.location
    )
    check_fits(session, ref, transaction.table(), creation)
    return transaction


def check_fits(session: SparkSession, ref: TableRef, table: Any, creation: Creation) -> None:
    """Refuse a table that rows staged before its creation do not fit into. Column ids have to
    agree, too: Iceberg finds the columns of a file by them."""
    schema, spec = _parsed(session, creation)
    columns = any(schema.sameSchema(known) for known in table.schemas().values())
    partitions = spec.equals(table.specs().get(spec.specId()))
    if not (columns and partitions and str(table.location()) == creation.location):
        raise Refused(
            f"{ref} was made by somebody else since rows were staged for it, with other columns or "
            "partitions or at another place, so they can't be committed to it; run the job again, "
            f"or set schema_save_mode = {_RECREATE} to make the table anew"
        )


def check_definition(session: SparkSession, ref: TableRef, wanted: TableDefinition) -> None:
    """Raise `Refused` for a definition that no table could have."""
    spec_of(session, ref, iceberg_schema(session, ref, wanted), wanted.partition_keys)


def location_to_be(session: SparkSession, ref: TableRef) -> tuple[str, Any]:
    """Where a table that does not exist would lie, and its file system (Iceberg's FileIO)."""
    nothing = jvm(session).org.apache.iceberg.Schema(jvm(session).java.util.ArrayList())
    unpartitioned = jvm(session).org.apache.iceberg.PartitionSpec.unpartitioned()
    table = _begin_transaction(session, ref, nothing, unpartitioned, {}).table()
    return str(table.location()), table.io()


def has_namespace(session: SparkSession, ref: TableRef) -> bool:
    """Whether the catalog has the namespace of the table, or has no namespaces at all."""
    catalog = open_catalog(session, ref.catalog)
    java = jvm(session)
    known = java.java.lang.Class.forName("org.apache.iceberg.catalog.SupportsNamespaces")
    return not known.isInstance(catalog) or catalog.namespaceExists(_namespace(session, ref))


def iceberg_schema(session: SparkSession, ref: TableRef, wanted: TableDefinition) -> Any:
    """The definition's columns and primary keys as an Iceberg schema."""
    java = jvm(session)
    columns: Any = java.org.apache.spark.sql.types.DataType.fromJson(wanted.columns.json())
    try:
        schema = java.org.apache.iceberg.spark.SparkSchemaUtil.convert(columns)
    except JAVA_ERRORS as error:
        raise Refused(f"table {ref} can not be created: {java_message(error)}") from error
    if not wanted.primary_keys:
        return schema
    ids = java.java.util.HashSet()
    for name in wanted.primary_keys:
        column = schema.findField(name)
        if column is None:
            raise Refused(f"primary key {name!r} is no column of {ref}")
        ids.add(column.fieldId())
    # Iceberg assigns all column ids anew at creation, and keeps these identifiers in step.
    return java.org.apache.iceberg.Schema(schema.columns(), ids)


def spec_of(session: SparkSession, ref: TableRef, schema: Any, keys: Sequence[str]) -> Any:
    """The partition spec for these partition keys."""
    builder = jvm(session).org.apache.iceberg.PartitionSpec.builderFor(schema)
    for key in keys:
        try:
            builder = _with_key(builder, key)
        except JAVA_ERRORS as error:
            raise Refused(f"partition key {key!r} of {ref}: {java_message(error)}") from error
    return builder.build()


def _parsed(session: SparkSession, creation: Creation) -> tuple[Any, Any]:
    iceberg = jvm(session).org.apache.iceberg
    schema = iceberg.SchemaParser.fromJson(creation.columns)
    return schema, iceberg.PartitionSpecParser.fromJson(schema, creation.partitions)


def _namespace(session: SparkSession, ref: TableRef) -> Any:
    of = jvm(session).org.apache.iceberg.catalog.Namespace.of
    return of(string_array(session, *ref.namespace))


def _ensure_namespace(session: SparkSession, ref: TableRef) -> None:
    if has_namespace(session, ref):
        return
    try:
        open_catalog(session, ref.catalog).createNamespace(_namespace(session, ref))
    except JAVA_ERRORS as error:
        # Not every catalog says AlreadyExists when another was faster (JDBC: a failed insert).
        if not has_namespace(session, ref):
            message = f"namespace of {ref} can not be made: {java_message(error)}"
            raise refused_or_unavailable(error, message) from error


def _begin_transaction(
    session: SparkSession,
    ref: TableRef,
    schema: Any,
    spec: Any,
    properties: Mapping[str, str],
    location: str | None = None,
) -> Any:
    builder = open_catalog(session, ref.catalog).buildTable(identifier(session, ref), schema)
    builder = builder.withPartitionSpec(spec)
    for key, value in properties.items():
        builder = builder.withProperty(key, value)
    if location is not None:
        builder = builder.withLocation(location)
    try:
        return builder.createTransaction()
    except JAVA_ERRORS as error:
        if _ALREADY in java_classes(error):
            raise TableExists(f"{ref} was made by somebody else at this moment") from error
        message = f"table {ref} can not be created: {java_message(error)}"
        raise refused_or_unavailable(error, message) from error


def _with_key(builder: Any, key: str) -> Any:
    call = _CALL.fullmatch(key.strip())
    if call is None:
        return builder.identity(key.strip())
    name, column, size = call["name"].lower(), call["column"].strip(), call["size"]
    if name in _PLAIN_TRANSFORMS and size is None:
        return getattr(builder, _PLAIN_TRANSFORMS[name])(column)
    if name in _SIZED_TRANSFORMS and size is not None:
        return getattr(builder, _SIZED_TRANSFORMS[name])(column, int(size))
    raise Refused(
        f"partition key {key!r} is not understood; write a column, or one of "
        "years(c), months(c), days(c), hours(c), bucket(c, n), truncate(c, n)"
    )
