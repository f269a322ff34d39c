"""Look at a table's files: cheaply at its metadata alone, or at every file with its deletes.

Both ask the table as it is now. A scan costs a handful of JVM calls for every 5,000 files, and
keeps one small value of each file.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from headrace.errors import Refused
from headrace.formats.iceberg.catalogs import TableRef, columns_of, load_table, metadata_of
from headrace.formats.iceberg.jvm import JAVA_ERRORS, java_message, jvm
from headrace.formats.iceberg.partitions import Partitions, forgotten_specs, specs_of
from headrace.formats.iceberg.records import (
    DeleteKey,
    Heard,
    Page,
    Record,
    delete_key,
    pages,
    references,
    unheard,
)
from headrace.model.tables.files import DataFile, DeleteFile, DeleteKind, TableFiles

FILES_MAX = 2_000_000  # of one scan: about 1 GB of small values
UNSORTED = 0  # the id of the order that orders nothing


@dataclass(frozen=True, slots=True)
class Probe:
    """What a table's metadata says, nothing scanned. Counts are None where no writer told them."""

    uuid: str
    pointer: str  # the metadata file: while it is the same, so is everything else
    format_version: int
    snapshot: int | None
    sequence: int
    committed_at_ms: int | None
    files: int | None
    bytes: int | None
    rows: int | None
    position_deletes: int | None  # rows
    equality_deletes: int | None  # rows
    delete_files: int | None
    properties: Mapping[str, str]


def probe(session: SparkSession, ref: TableRef) -> Probe:
    """Ask the metadata only; the time it takes does not depend on the number of files."""
    current = load_table(session, ref).operations().current()
    snapshot = current.currentSnapshot()
    told: Mapping[str, Any] = {}
    if snapshot is not None:
        told = json.loads(jvm(session).org.apache.iceberg.SnapshotParser.toJson(snapshot))
    summary = told.get("summary", {})

    def total(name: str) -> int | None:
        return int(summary[name]) if name in summary else None

    return Probe(
        uuid=str(current.uuid()),
        pointer=str(current.metadataFileLocation()),
        format_version=int(current.formatVersion()),
        snapshot=told.get("snapshot-id"),
        sequence=int(told.get("sequence-number", 0)),
        committed_at_ms=told.get("timestamp-ms"),
        files=total("total-data-files"),
        bytes=total("total-files-size"),
        rows=total("total-records"),
        position_deletes=total("total-position-deletes"),
        equality_deletes=total("total-equality-deletes"),
        delete_files=total("total-delete-files"),
        properties=dict(current.properties()),
    )


def scan(
    session: SparkSession,
    ref: TableRef,
    *,
    filter: str | None = None,  # noqa: A002 - the property's name
    heard: Heard = unheard,
) -> TableFiles:
    """Every file of the current snapshot; with a filter those that may hold rows it is true for.

    With a filter, a delete file may apply to further files than those that are told. Files of a
    spec by a column that was dropped are not told: nobody can replace them.
    """
    table = load_table(session, ref)
    metadata = metadata_of(session, table)
    planned = table.newScan()
    if filter is not None:
        planned = planned.filter(_expression(session, ref, table, filter))
    found = _Found(ref, metadata)
    for page in pages(session, table, planned, heard=heard):
        found.take(page)
    snapshot, sequence = _current(metadata)
    return TableFiles(
        snapshot=snapshot,
        sequence=sequence,
        files=sorted(found.files, key=lambda file: (file.partition, file.path)),
        deletes=found.deletes,
        properties=metadata.get("properties", {}),
    )


def _current(metadata: Mapping[str, Any]) -> tuple[int | None, int]:
    """The current snapshot and its sequence number; after a rollback it is not the last one."""
    current = metadata.get("current-snapshot-id")
    for snapshot in metadata.get("snapshots", ()):
        if snapshot["snapshot-id"] == current:
            return int(snapshot["snapshot-id"]), int(snapshot.get("sequence-number", 0))
    return None, 0


class _Found:
    """Gathers pages. Equal parts of files are kept once: partitions, and lists of deletes."""

    def __init__(self, ref: TableRef, metadata: Mapping[str, Any]) -> None:
        self.files: list[DataFile] = []
        self.deletes: list[DeleteFile] = []
        self._ref = ref
        self._order = int(metadata.get("default-sort-order-id", UNSORTED))
        self._partitions = Partitions(specs_of(metadata))
        self._forgotten = forgotten_specs(metadata)
        self._places: dict[DeleteKey, int] = {}
        self._applied: dict[tuple[int, ...], tuple[int, ...]] = {}

    def take(self, page: Page) -> None:
        if len(self.files) + len(page.tasks) > FILES_MAX:
            raise Refused(
                f"{self._ref} has more than {FILES_MAX} data files, too many to look at at once; "
                "set self-optimizing.filter to a part of it"
            )
        places = [self._place(record) for record in page.deletes]
        for task in page.tasks:
            if int(task["data-file"]["spec-id"]) not in self._forgotten:
                self.files.append(self._file(task, places))

    def _file(self, task: Record, places: Sequence[int]) -> DataFile:
        record = task["data-file"]
        applied = tuple(sorted(places[index] for index in references(task)))
        order = record.get("sort-order-id", UNSORTED)
        return DataFile(
            path=record["file-path"],
            bytes=int(record["file-size-in-bytes"]),
            rows=int(record["record-count"]),
            partition=self._partitions.of(record),
            sorted=self._order in (UNSORTED, order),
            deletes=self._applied.setdefault(applied, applied),
        )

    def _place(self, record: Record) -> int:
        key = delete_key(record)
        if key not in self._places:
            self._places[key] = len(self.deletes)
            self.deletes.append(_delete(record))
        return self._places[key]


def _delete(record: Record) -> DeleteFile:
    kind = DeleteKind.POSITION
    if record["content"] == "equality-deletes":
        kind = DeleteKind.EQUALITY
    elif record["file-format"] == "puffin":
        kind = DeleteKind.VECTOR
    # A vector is a part of its file, which holds those of many data files.
    size = record.get("content-size-in-bytes", record["file-size-in-bytes"])
    return DeleteFile(record["file-path"], kind, int(size), int(record["record-count"]))


def _expression(session: SparkSession, ref: TableRef, table: Any, text: str) -> Any:
    """Iceberg's expression for a SQL condition on the table's columns."""
    columns = columns_of(session, table)
    spark = session.sparkContext
    empty = session.createDataFrame(spark.emptyRDD(), columns)  # pyright: ignore[reportUnknownMemberType]
    expressions = jvm(session).org.apache.iceberg.expressions.Expressions
    converter = jvm(session).org.apache.spark.sql.execution.datasources.SparkExpressionConverter
    try:
        plan = _optimized(empty.where(text))
        match str(plan.nodeName()):
            case "Filter":
                return converter.convertToIcebergExpression(plan.condition())
            case "LocalRelation":  # never true, and so there is nothing left to filter
                return expressions.alwaysFalse()
            case _:
                return expressions.alwaysTrue()
    except JAVA_ERRORS as error:
        names = ", ".join(columns.fieldNames())
        raise Refused(
            f"self-optimizing.filter of {ref} is {text!r}, and can't be used: "
            f"{java_message(error)}; expected a SQL condition on its columns ({names})"
        ) from error


def _optimized(frame: DataFrame) -> Any:
    return frame._jdf.queryExecution().optimizedPlan()  # noqa: SLF001  # pyright: ignore
