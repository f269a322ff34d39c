"""Create a table if it is not there. Two that try at once both end with the same table."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from pyspark.sql import SparkSession
from pyspark.sql.types import StructType

from headrace.errors import Refused
from headrace.formats.iceberg.catalogs import (
    TableMissing,
    TableRef,
    exists,
    identifier,
    load_table,
    open_catalog,
)
from headrace.formats.iceberg.jvm import JAVA_ERRORS, java_message, jvm, not_granted, string_array

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


@dataclass(frozen=True, slots=True)
class TableDefinition:
    columns: StructType
    partition_keys: Sequence[
        str
    ] = ()  # columns, or transforms of one: "days(ts)", "bucket(id, 16)"
    primary_keys: Sequence[str] = ()
    properties: Mapping[str, str] = field(default_factory=dict[str, str])


def ensure_table(session: SparkSession, ref: TableRef, wanted: TableDefinition) -> Any:
    try:
        return load_table(session, ref)
    except TableMissing:
        _ensure_namespace(session, ref)
        _create(session, ref, wanted)
    return load_table(session, ref)


def check_definition(session: SparkSession, ref: TableRef, wanted: TableDefinition) -> None:
    """Raises `Refused` for one that no table could have."""
    spec_of(session, ref, iceberg_schema(session, ref, wanted), wanted.partition_keys)


def _ensure_namespace(session: SparkSession, ref: TableRef) -> None:
    catalog = open_catalog(session, ref.catalog)
    java = jvm(session)
    known = java.java.lang.Class.forName("org.apache.iceberg.catalog.SupportsNamespaces")
    if not known.isInstance(catalog):
        return
    namespace = java.org.apache.iceberg.catalog.Namespace.of(string_array(session, *ref.namespace))
    if catalog.namespaceExists(namespace):
        return
    try:
        catalog.createNamespace(namespace)
    except JAVA_ERRORS as error:
        # Not every catalog says AlreadyExists when another was faster (JDBC: a failed insert).
        if not catalog.namespaceExists(namespace):
            said = f"namespace of {ref} can not be made: {java_message(error)}"
            raise not_granted(error, said) from error


def _create(session: SparkSession, ref: TableRef, wanted: TableDefinition) -> None:
    schema = iceberg_schema(session, ref, wanted)
    builder = open_catalog(session, ref.catalog).buildTable(identifier(session, ref), schema)
    builder = builder.withPartitionSpec(spec_of(session, ref, schema, wanted.partition_keys))
    for key, value in wanted.properties.items():
        builder = builder.withProperty(key, value)
    try:
        builder.create()
    except JAVA_ERRORS as error:
        if not exists(session, ref):
            said = f"table {ref} can not be created: {java_message(error)}"
            raise not_granted(error, said) from error


def iceberg_schema(session: SparkSession, ref: TableRef, wanted: TableDefinition) -> Any:
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
        found = schema.findField(name)
        if found is None:
            raise Refused(f"primary key {name!r} is no column of {ref}")
        ids.add(found.fieldId())
    # Ids of identifier columns are assigned anew together with all others at creation.
    return java.org.apache.iceberg.Schema(schema.columns(), ids)


def spec_of(session: SparkSession, ref: TableRef, schema: Any, keys: Sequence[str]) -> Any:
    builder = jvm(session).org.apache.iceberg.PartitionSpec.builderFor(schema)
    for key in keys:
        try:
            builder = _with_key(builder, key)
        except JAVA_ERRORS as error:
            raise Refused(f"partition key {key!r} of {ref}: {java_message(error)}") from error
    return builder.build()


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
