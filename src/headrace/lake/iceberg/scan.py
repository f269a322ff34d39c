"""Scan a table's files: `probe` reads the metadata alone, `scan` every file with its deletes.

Both read the table as it is now. A scan costs a handful of JVM calls for every 5,000 files, and
keeps one small value for each file.

Partitions are named by Iceberg's own path for them. The names are built here from partition values,
in pure Python: a table may have 100,000 partitions, and one JVM call for each name would take
minutes.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from datetime import date, timedelta
from typing import Any
from urllib.parse import quote

from pyspark.sql import DataFrame, SparkSession

from headrace.errors import Refused
from headrace.lake.catalog import OnProgress, TableRef, ignore_progress
from headrace.lake.iceberg.catalogs import columns_of, load_table, metadata_of
from headrace.lake.iceberg.file_records import (
    DeleteKey,
    Page,
    Record,
    delete_key,
    pages,
    references,
)
from headrace.lake.table_format import Probe
from headrace.model.tables.files import DataFile, DeleteFile, DeleteKind, Partition, TableFiles
from headrace.spark.jvm_bridge import JAVA_ERRORS, java_message, jvm

FILES_MAX = 2_000_000  # in one scan: about 1 GB of small values
UNSORTED = 0  # the id of the sort order that sorts nothing

Specs = Mapping[int, Sequence[tuple[str, str]]]  # by spec id: name and transform of each field

_EPOCH = date(1970, 1, 1)
_MONTHS = 12
_HOURS = 24
_CYCLE_YEARS, _CYCLE_DAYS = 400, 146_097  # the calendar's cycle; Python's dates end with 9999
_NULL_TEXT = "%6Eull"  # the text `null`, which Iceberg's own path does not tell from no value


def probe(session: SparkSession, ref: TableRef) -> Probe:
    """Read the metadata only; the time it takes does not depend on the number of files."""
    current = load_table(session, ref).operations().current()
    snapshot = current.currentSnapshot()
    fields: Mapping[str, Any] = {}
    if snapshot is not None:
        fields = json.loads(jvm(session).org.apache.iceberg.SnapshotParser.toJson(snapshot))
    summary = fields.get("summary", {})

    def total(name: str) -> int | None:
        return int(summary[name]) if name in summary else None

    return Probe(
        uuid=str(current.uuid()),
        pointer=str(current.metadataFileLocation()),
        format_version=int(current.formatVersion()),
        snapshot=fields.get("snapshot-id"),
        sequence=int(fields.get("sequence-number", 0)),
        committed_at_ms=fields.get("timestamp-ms"),
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
    on_progress: OnProgress = ignore_progress,
) -> TableFiles:
    """Every data file of the current snapshot; with a filter, those that may hold matching rows.

    With a filter, a delete file may apply to more files than those returned. Files in a partition
    spec whose column was dropped are left out: nobody can replace them (`forgotten_specs`).
    """
    table = load_table(session, ref)
    metadata = metadata_of(session, table)
    planned = table.newScan()
    if filter is not None:
        planned = planned.filter(_expression(session, ref, table, filter))
    collected = _FileCollector(ref, metadata)
    for page in pages(session, table, planned, on_progress=on_progress):
        collected.take(page)
    snapshot, sequence = _current_snapshot(metadata)
    return TableFiles(
        snapshot=snapshot,
        sequence=sequence,
        files=sorted(collected.files, key=lambda file: (file.partition, file.path)),
        deletes=collected.deletes,
        properties=metadata.get("properties", {}),
    )


class Partitions:
    """Makes each partition once, so that all files in it share one value."""

    def __init__(self, specs: Specs) -> None:
        self._specs = specs
        self._made: dict[tuple[Any, ...], Partition] = {}

    def of(self, record: Mapping[str, Any]) -> Partition:
        """The partition of a file record."""
        spec, values = int(record["spec-id"]), record.get("partition", ())
        key = (spec, repr(values))  # compared by value, -0.0 and 0.0 would be one partition
        partition = self._made.get(key)
        if partition is None:
            partition = self._made[key] = Partition(spec, partition_path(self._specs[spec], values))
        return partition


def partition_path(fields: Sequence[tuple[str, str]], values: Sequence[Any]) -> str:
    """The path of a partition, as Iceberg writes it: `name=value/name=value`."""
    return "/".join(
        f"{_encoded(name)}={_NULL_TEXT if value == 'null' else _encoded(_shown(transform, value))}"
        for (name, transform), value in zip(fields, values, strict=True)
    )


def specs_of(metadata: Mapping[str, Any]) -> Specs:
    """The partition specs in a table's metadata."""
    return {
        int(spec["spec-id"]): [(field["name"], field["transform"]) for field in spec["fields"]]
        for spec in metadata["partition-specs"]
    }


def forgotten_specs(metadata: Mapping[str, Any]) -> frozenset[int]:
    """Ids of partition specs on a column that was dropped. Iceberg no longer reads the values of
    their partitions, and so does not find their files when they are to be replaced."""
    current = metadata.get("current-schema-id")
    schemas = metadata.get("schemas", ())
    there = {each for one in schemas if one["schema-id"] == current for each in _ids(one)}
    return frozenset(
        int(spec["spec-id"])
        for spec in metadata["partition-specs"]
        if any(
            field["transform"] != "void" and not there.issuperset(_sources(field))
            for field in spec["fields"]
        )
    )


class _FileCollector:
    """Collects the files of all pages; equal partitions and lists of deletes are kept once."""

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
            self.deletes.append(_delete_file(record))
        return self._places[key]


def _current_snapshot(metadata: Mapping[str, Any]) -> tuple[int | None, int]:
    """The current snapshot and its sequence number. After a rollback it is not the last one."""
    current = metadata.get("current-snapshot-id")
    for snapshot in metadata.get("snapshots", ()):
        if snapshot["snapshot-id"] == current:
            return int(snapshot["snapshot-id"]), int(snapshot.get("sequence-number", 0))
    return None, 0


def _delete_file(record: Record) -> DeleteFile:
    kind = DeleteKind.POSITION
    if record["content"] == "equality-deletes":
        kind = DeleteKind.EQUALITY
    elif record["file-format"] == "puffin":
        kind = DeleteKind.VECTOR
    # A deletion vector is a part of its file, which holds the vectors of many data files.
    size = record.get("content-size-in-bytes", record["file-size-in-bytes"])
    return DeleteFile(record["file-path"], kind, int(size), int(record["record-count"]))


def _expression(session: SparkSession, ref: TableRef, table: Any, text: str) -> Any:
    """Iceberg's expression for a SQL condition on the table's columns. Spark's optimizer simplifies
    it."""
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
            case "LocalRelation":  # the condition is never true, so nothing is left to filter
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


def _sources(field: Mapping[str, Any]) -> Sequence[int]:
    """Ids of the columns that a partition field is derived from; version 3 allows several."""
    return field.get("source-ids") or (field["source-id"],)


def _ids(struct: Mapping[str, Any]) -> Iterator[int]:
    """Ids of all columns that a partition may be derived from, those within structs included."""
    for field in struct["fields"]:
        yield field["id"]
        if isinstance(field["type"], Mapping) and "fields" in field["type"]:
            yield from _ids(field["type"])


def _shown(transform: str, value: Any) -> str:
    """A partition value as Iceberg's path shows it. Iceberg's JSON has days, dates and times as
    text already; years, months and hours are counts since 1970."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return str(value).lower()
    match transform:
        case "year":
            return f"{1970 + value:04d}"
        case "month":
            return f"{1970 + value // _MONTHS:04d}-{value % _MONTHS + 1:02d}"
        case "hour":
            return _hour(value)
        case _:
            return str(value)


def _hour(value: int) -> str:
    """Format hours since 1970. Covers every timestamp of Iceberg: a year beyond Python's 9999 must
    not fail a scan."""
    days, hour = divmod(value, _HOURS)
    cycles, days = divmod(days, _CYCLE_DAYS)
    day = _EPOCH + timedelta(days=days)
    return f"{day.year + cycles * _CYCLE_YEARS:04d}-{day:%m-%d}-{hour:02d}"


def _encoded(text: str) -> str:
    return quote(text, safe="* ").replace(" ", "+").replace("~", "%7E")  # as Java's URLEncoder does
