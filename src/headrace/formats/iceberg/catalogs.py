"""Catalogs and the tables in them, through Iceberg's own Java API.

No session catalog is needed: a job may bring a catalog of its own, and settings of a running
session do not reach its `newSession()`s. The embedded catalog is opened in the same way.
"""

from __future__ import annotations

import hashlib
import json
import threading
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from pyspark.sql import SparkSession
from pyspark.sql.types import StructType

from headrace.errors import Refused
from headrace.formats.iceberg.jvm import (
    JAVA_ERRORS,
    hadoop_configuration,
    java_classes,
    java_message,
    jvm,
    not_granted,
    string_array,
    string_map,
)

EMBEDDED = "headrace"
BUSY_TIMEOUT_MS = 30_000
CATALOGS_OPEN_MAX = 32

_open: OrderedDict[tuple[int, str], Any] = OrderedDict()
_lock = threading.Lock()


@dataclass(frozen=True, slots=True)
class CatalogConfig:
    name: str
    properties: Mapping[str, str] = field(repr=False)  # may hold passwords
    hadoop: Mapping[str, str] = field(default_factory=dict[str, str], repr=False)
    set_by: str = "iceberg.catalog.config"  # for people: where its properties are to be mended

    @property
    def fingerprint(self) -> str:
        told = [self.name, sorted(self.properties.items()), sorted(self.hadoop.items())]
        return hashlib.sha256(json.dumps(told).encode()).hexdigest()


@dataclass(frozen=True, slots=True)
class TableRef:
    catalog: CatalogConfig
    namespace: tuple[str, ...]
    name: str

    def __str__(self) -> str:
        return ".".join((self.catalog.name, *self.namespace, self.name))


def local_path(uri: str) -> Path | None:
    """The path of a `file:` URI or a plain path; None for anything else."""
    parts = urlsplit(uri)
    if parts.scheme not in {"", "file"}:
        return None
    return Path(unquote(parts.path)) if parts.scheme else Path(uri)


def embedded_catalog(warehouse: str) -> CatalogConfig:
    """The JDBC catalog on SQLite that lies in the warehouse folder; PyIceberg reads it too."""
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


def open_catalog(session: SparkSession, config: CatalogConfig) -> Any:
    """The catalog, opened once for each JVM. The longest unused one makes room for a new one."""
    java = jvm(session)
    key = (id(java), config.fingerprint)
    with _lock:
        if key in _open:
            _open.move_to_end(key)
            return _open[key]
        try:
            found = java.org.apache.iceberg.CatalogUtil.buildIcebergCatalog(
                config.name,
                string_map(session, config.properties),
                hadoop_configuration(session, config.hadoop),
            )
        except JAVA_ERRORS as error:
            said = f"catalog {config.name!r} can not be opened: {java_message(error)}"
            raise not_granted(error, f"{said}; check {config.set_by}") from error
        _open[key] = found
        while len(_open) > CATALOGS_OPEN_MAX:
            _, oldest = _open.popitem(last=False)
            if hasattr(oldest, "close"):
                oldest.close()
        return found


def forget_catalogs() -> None:
    """Drop what belongs to a JVM that has ended."""
    with _lock:
        _open.clear()


def identifier(session: SparkSession, ref: TableRef) -> Any:
    parts = string_array(session, *ref.namespace, ref.name)
    return jvm(session).org.apache.iceberg.catalog.TableIdentifier.of(parts)


def exists(session: SparkSession, ref: TableRef) -> bool:
    return bool(open_catalog(session, ref.catalog).tableExists(identifier(session, ref)))


def load_table(session: SparkSession, ref: TableRef) -> Any:
    """The table as it is now; nothing here caches it."""
    try:
        return open_catalog(session, ref.catalog).loadTable(identifier(session, ref))
    except JAVA_ERRORS as error:
        if "NoSuchTableException" not in java_classes(error):
            raise
        raise TableMissing(ref) from error


def columns_of(session: SparkSession, table: Any) -> StructType:
    """A table's columns as Spark sees them."""
    found = jvm(session).org.apache.iceberg.spark.SparkSchemaUtil.convert(table.schema())
    return StructType.fromJson(json.loads(found.json()))


def metadata_of(session: SparkSession, table: Any) -> Mapping[str, Any]:
    """All that a loaded table knows of itself, as its metadata file says it."""
    metadata = table.operations().current()
    return json.loads(jvm(session).org.apache.iceberg.TableMetadataParser.toJson(metadata))


class TableMissing(Refused):
    def __init__(self, ref: TableRef) -> None:
        self.ref = ref
        super().__init__(f"there is no table {ref}; create it, or let the sink create it")
