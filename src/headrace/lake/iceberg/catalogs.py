"""Iceberg catalogs, opened once per JVM, and the tables in them, through Iceberg's own Java API.

No Spark session catalog is involved: a job may bring a catalog of its own, and settings of a
running session do not reach its `newSession()`s. The embedded catalog is opened in the same way.

Listing a catalog goes namespace by namespace and takes a few JVM calls for each, however many
tables it has. A namespace that can't be listed (closed to us, or broken) is reported and does not
stop the others.
"""

from __future__ import annotations

import json
import threading
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from pyspark.sql import SparkSession
from pyspark.sql.types import StructType

from headrace.errors import Refused
from headrace.lake.catalog import (
    CatalogConfig,
    Namespace,
    OnProgress,
    TableListing,
    TableMissing,
    TableRef,
    ignore_progress,
)
from headrace.spark.jvm_bridge import (
    JAVA_ERRORS,
    JavaError,
    get_each,
    hadoop_configuration,
    java_classes,
    java_message,
    jvm,
    refused_or_unavailable,
    string_array,
    string_map,
)

EMBEDDED = "headrace"
EMBEDDED_TYPE = "embedded"
TYPES = ("jdbc", "rest", "hive", "glue", "hadoop")  # Iceberg uses the same names
BUSY_TIMEOUT_MS = 30_000
CATALOGS_OPEN_MAX = 32
NAMESPACE_DEPTH_MAX = 8  # levels
NAMESPACES_MAX = 20_000

_open: OrderedDict[tuple[int, str], Any] = OrderedDict()
_lock = threading.Lock()
_NAME = ("org.apache.iceberg.catalog.TableIdentifier", "name")
_LEVELS = ("org.apache.iceberg.catalog.Namespace", "levels")
_NAMESPACES = "org.apache.iceberg.catalog.SupportsNamespaces"
_HADOOP = "hadoop."  # prefix of properties for Hadoop rather than the catalog
_IMPLEMENTATION = "catalog-impl"


def embedded_catalog(warehouse: str) -> CatalogConfig:
    """The JDBC catalog on SQLite in the warehouse folder. PyIceberg can read it, too."""
    folder = local_path(warehouse)
    if folder is None:
        raise Refused(f"the embedded warehouse must be a local folder, and is {warehouse!r}")
    database = folder.absolute() / "catalog.db"
    return CatalogConfig(
        EMBEDDED,
        {
            "type": "jdbc",
            "uri": f"jdbc:sqlite:{database}?busy_timeout={BUSY_TIMEOUT_MS}",
            "jdbc.schema-version": "V1",
            "warehouse": f"file:{folder.absolute()}",
        },
    )


def catalog_config(
    name: str, kind: str, properties: Mapping[str, str], *, warehouse: str
) -> CatalogConfig:
    """How a catalog is opened, from the properties that a user gave it. `kind`: one of `TYPES`, or
    the embedded one, which lies in the warehouse of the worker."""
    if kind == EMBEDDED_TYPE:
        return replace(embedded_catalog(warehouse), set_by="--warehouse of this worker")
    own = {key: value for key, value in properties.items() if not key.startswith(_HADOOP)}
    if _IMPLEMENTATION not in own:  # Iceberg accepts only one of the two
        own["type"] = kind
    return CatalogConfig(
        name,
        own,
        {
            key.removeprefix(_HADOOP): value
            for key, value in properties.items()
            if key.startswith(_HADOOP)
        },
        set_by=f"its type and properties (`headrace catalog show {name}`)",
    )


def open_catalog(session: SparkSession, config: CatalogConfig) -> Any:
    """The catalog, opened once per JVM. At most `CATALOGS_OPEN_MAX` stay open: the least recently
    used one is closed for a new one."""
    java = jvm(session)
    key = (id(java), config.fingerprint)
    with _lock:
        if key in _open:
            _open.move_to_end(key)
            return _open[key]
        try:
            catalog = java.org.apache.iceberg.CatalogUtil.buildIcebergCatalog(
                config.name,
                string_map(session, config.properties),
                hadoop_configuration(session, config.hadoop),
            )
        except JAVA_ERRORS as error:
            message = f"catalog {config.name!r} can not be opened: {java_message(error)}"
            raise refused_or_unavailable(error, f"{message}; check {config.set_by}") from error
        _open[key] = catalog
        while len(_open) > CATALOGS_OPEN_MAX:
            _, oldest = _open.popitem(last=False)
            if hasattr(oldest, "close"):
                oldest.close()
        return catalog


def forget_catalogs() -> None:
    """Drop every open catalog, because the JVM that held them has ended."""
    with _lock:
        _open.clear()


def identifier(session: SparkSession, ref: TableRef) -> Any:
    parts = string_array(session, *ref.namespace, ref.name)
    return jvm(session).org.apache.iceberg.catalog.TableIdentifier.of(parts)


def exists(session: SparkSession, ref: TableRef) -> bool:
    return bool(open_catalog(session, ref.catalog).tableExists(identifier(session, ref)))


def load_table(session: SparkSession, ref: TableRef) -> Any:
    """Load the table as it is now, or raise `TableMissing`; nothing is cached here."""
    try:
        return open_catalog(session, ref.catalog).loadTable(identifier(session, ref))
    except JAVA_ERRORS as error:
        if "NoSuchTableException" not in java_classes(error):
            raise
        raise TableMissing(ref) from error


def columns_of(session: SparkSession, table: Any) -> StructType:
    """The columns of a loaded table as a Spark schema."""
    schema = jvm(session).org.apache.iceberg.spark.SparkSchemaUtil.convert(table.schema())
    return StructType.fromJson(json.loads(schema.json()))


def metadata_of(session: SparkSession, table: Any) -> Mapping[str, Any]:
    """The whole metadata of a loaded table, as its metadata file has it."""
    metadata = table.operations().current()
    return json.loads(jvm(session).org.apache.iceberg.TableMetadataParser.toJson(metadata))


def list_namespaces(
    session: SparkSession, config: CatalogConfig, parent: Namespace = ()
) -> Sequence[Namespace]:
    """The namespaces directly below `parent`, by default those at the root of the catalog."""
    catalog = open_catalog(session, config)
    if not jvm(session).java.lang.Class.forName(_NAMESPACES).isInstance(catalog):
        raise Refused(
            f"catalog {config.name!r} does not list its namespaces, so its tables can't be found; "
            "use one of Iceberg's own catalogs"
        )
    namespaces = catalog.listNamespaces(_namespace(session, parent))
    levels: list[Sequence[str]] = get_each(session, _java_list(session, namespaces), _LEVELS)
    return sorted(tuple(each) for each in levels)


def list_tables(
    session: SparkSession,
    config: CatalogConfig,
    *,
    wanted: Callable[[Namespace, str], bool],
    tables_max: int,
    on_progress: OnProgress = ignore_progress,
) -> TableListing:
    """The wanted tables of the catalog, by namespace.

    Raises Java's error when the root of the catalog can't be listed, and `Refused` when more than
    `tables_max` tables are wanted or there are too many namespaces.
    """
    tables: dict[Namespace, Sequence[str]] = {}
    failed: dict[Namespace, str] = {}
    pending = list(reversed(list_namespaces(session, config)))
    seen, count, others = len(pending), 0, 0
    while pending:
        on_progress()
        namespace = pending.pop()
        try:
            names = _table_names(session, config, namespace)
            children = _child_namespaces(session, config, namespace)
        except JAVA_ERRORS as error:
            if not _is_gone(error):
                failed[namespace] = f"{java_classes(error)[0]}: {java_message(error)}"
            continue
        tables[namespace] = [name for name in names if wanted(namespace, name)]
        others += len(names) - len(tables[namespace])
        seen, count = seen + len(children), count + len(tables[namespace])
        _check_limits(config, seen, count, tables_max)
        pending.extend(reversed(children))
    return TableListing(tables, others, failed)


def local_path(uri: str) -> Path | None:
    """The path of a `file:` URI or a plain path; None for anything else."""
    parts = urlsplit(uri)
    if parts.scheme not in {"", "file"}:
        return None
    return Path(unquote(parts.path)) if parts.scheme else Path(uri)


def _table_names(
    session: SparkSession, config: CatalogConfig, namespace: Namespace
) -> Sequence[str]:
    identifiers = open_catalog(session, config).listTables(_namespace(session, namespace))
    return sorted(get_each(session, _java_list(session, identifiers), _NAME))


def _child_namespaces(
    session: SparkSession, config: CatalogConfig, parent: Namespace
) -> Sequence[Namespace]:
    """The namespaces below `parent`. A catalog with one level of namespaces has none, whatever it
    answers when asked: some refuse, some list the same level again."""
    if len(parent) >= NAMESPACE_DEPTH_MAX:
        return ()
    try:
        children = list_namespaces(session, config, parent)
    except JAVA_ERRORS as error:
        if not _is_flat(error):
            raise
        return ()
    return [each for each in children if each[: len(parent)] == parent and len(each) > len(parent)]


def _is_gone(error: JavaError) -> bool:
    """Whether the namespace was dropped since it was listed, and its tables with it."""
    return "NoSuchNamespaceException" in java_classes(error)


def _is_flat(error: JavaError) -> bool:
    """Whether the catalog answered that its namespaces have one level only."""
    flat = {"UnsupportedOperationException", "NoSuchNamespaceException", "ValidationException"}
    return not flat.isdisjoint(java_classes(error)[:1])


def _check_limits(config: CatalogConfig, namespaces: int, tables: int, tables_max: int) -> None:
    for what, count, most in (
        ("namespaces", namespaces, NAMESPACES_MAX),
        ("tables", tables, tables_max),
    ):
        if count > most:
            raise Refused(
                f"catalog {config.name!r} has more than {most} {what}, too many to look after; "
                f"let a filter choose some: `headrace catalog set {config.name} --filter REGEX`"
            )


def _namespace(session: SparkSession, levels: Namespace) -> Any:
    java = jvm(session)
    return java.org.apache.iceberg.catalog.Namespace.of(string_array(session, *levels))


def _java_list(session: SparkSession, items: Any) -> Any:
    return jvm(session).java.util.ArrayList(items)
