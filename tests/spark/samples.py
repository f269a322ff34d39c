"""A smallest sample of every plugin: ten rows that it gives, passes on or takes.

This is the one place that a new plugin is added to; tests/spark/connectors/test_pairs.py takes
the names from the declarations and asks here for each. Rows are written and read past the plugin
itself: by PyIceberg, psycopg, pyarrow or plain Python.
"""

from __future__ import annotations

import csv
import io
import json
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

import psycopg
from pyiceberg.catalog import load_catalog
from pyspark.sql import SparkSession

from tests.postgresql import PostgreSQL
from tests.spark.wire import Wire

ROWS = [(n, f"name {n}") for n in range(10)]
SCHEMA = {"fields": {"id": "bigint", "name": "string"}}
INPUT = "given"  # what a transform's input is called

# Neither has types.
_ARROW: Any = import_module("pyarrow")
_PARQUET: Any = import_module("pyarrow.parquet")

Options = Mapping[str, Any]
Row = tuple[int, str]
Found = Sequence[Row]


@dataclass(frozen=True, slots=True)
class Place:
    """Where samples put their files, tables and databases."""

    folder: Path
    warehouse: Path
    session: SparkSession
    server: PostgreSQL
    wire: Wire
    database: str
    printed: Callable[[], str]

    def run(self, statement: str) -> list[tuple[Any, ...]]:
        with psycopg.connect(self.server.url(self.database)) as conn:
            done = conn.execute(statement.encode())
            return done.fetchall() if done.description else []

    @property
    def catalog(self) -> str:
        return f"sqlite:///{self.warehouse}/catalog.db"

    @property
    def jdbc(self) -> dict[str, Any]:
        url = f"jdbc:postgresql://127.0.0.1:{self.wire.port}/{self.database}"
        return {"url": url, "user": "postgres", "password": "secret"}


@dataclass(frozen=True, slots=True)
class SinkSample:
    options: Options
    read: Callable[[], Found | None]  # None: it keeps nothing, and only counts


def _name() -> str:
    return f"t_{uuid.uuid4().hex[:12]}"


def _values() -> str:
    return ", ".join(f"({number}, '{name}')" for number, name in ROWS)


def _fake(_: Place) -> Options:
    rows = [{"kind": "INSERT", "fields": [number, name]} for number, name in ROWS]
    return {"schema": SCHEMA, "rows": rows}


def _iceberg_source(place: Place) -> Options:
    table = _name()
    place.session.sql(  # pyright: ignore[reportUnknownMemberType]
        f"CREATE TABLE headrace.pairs.{table} USING iceberg AS "
        f"SELECT bigint(c1) AS id, c2 AS name FROM VALUES {_values()} AS (c1, c2)"
    )
    return {"namespace": "pairs", "table": table}


def _jdbc_source(place: Place) -> Options:
    table = _name()
    place.run(f"CREATE TABLE {table} (id bigint, name text)")
    place.run(f"INSERT INTO {table} VALUES {_values()}")
    return {**place.jdbc, "table_path": f"public.{table}"}


def _csv_source(place: Place) -> Options:
    folder = place.folder / _name()
    folder.mkdir()
    for half in (ROWS[:5], ROWS[5:]):
        text = io.StringIO()
        csv.writer(text).writerows([("id", "name"), *half])
        (folder / f"{half[0][0]}.csv").write_text(text.getvalue(), encoding="utf-8")
    shape = {"file_format_type": "csv", "skip_header_row_number": 1, "schema": SCHEMA}
    return {"path": str(folder), **shape}


def _parquet_source(place: Place) -> Options:
    folder = place.folder / _name()
    folder.mkdir()
    ids, names = zip(*ROWS, strict=True)
    _PARQUET.write_table(_ARROW.table({"id": ids, "name": names}), folder / "rows.parquet")
    return {"path": str(folder), "file_format_type": "parquet", "fs.defaultFS": "file:///"}


def _assert(_: Place) -> SinkSample:
    """It judges by itself: the job fails when rows are missing or come twice."""
    counts = [{"rule_type": kind, "rule_value": len(ROWS)} for kind in ("MIN_ROW", "MAX_ROW")]
    largest = {"rule_type": "MAX", "rule_value": len(ROWS) - 1}
    field = {"field_name": "id", "field_type": "bigint", "field_value": [largest]}
    return SinkSample({"rules": {"row_rules": counts, "field_rules": [field]}}, lambda: None)


def _console(place: Place) -> SinkSample:
    def read() -> Found:
        lines = [line for line in place.printed().splitlines() if line.startswith("rowIndex=")]
        shown = [line.rpartition("INSERT: ")[2].split(", ") for line in lines]
        return [(int(number), name) for number, name, *_ in shown]

    return SinkSample({}, read)


def _iceberg_sink(place: Place) -> SinkSample:
    table = _name()

    def read() -> Found:
        catalog: Any = load_catalog("headrace", type="sql", uri=place.catalog)
        found = catalog.load_table(f"pairs.{table}")
        return [(row["id"], row["name"]) for row in found.scan().to_arrow().to_pylist()]

    return SinkSample({"namespace": "pairs", "table": table}, read)


def _jdbc_sink(place: Place) -> SinkSample:
    table = _name()
    named = {"generate_sink_sql": True, "database": place.database, "table": f"public.{table}"}

    def read() -> Found:
        return [(row[0], row[1]) for row in place.run(f"SELECT id, name FROM {table}")]

    return SinkSample({**place.jdbc, **named}, read)


def _json_sink(place: Place) -> SinkSample:
    folder = place.folder / _name()

    def read() -> Found:
        texts = [path.read_text(encoding="utf-8") for path in sorted(folder.glob("*.json"))]
        lines = [json.loads(line) for text in texts for line in text.splitlines()]
        return [(line["id"], line["name"]) for line in lines]

    return SinkSample({"path": str(folder), "file_format_type": "json"}, read)


def _parquet_sink(place: Place) -> SinkSample:
    folder = place.folder / _name()

    def read() -> Found:
        tables = [_PARQUET.read_table(path) for path in sorted(folder.glob("*.parquet"))]
        return [(row["id"], row["name"]) for table in tables for row in table.to_pylist()]

    options = {"path": str(folder), "file_format_type": "parquet", "fs.defaultFS": "file:///"}
    return SinkSample(options, read)


def _in_memory(_: Place) -> SinkSample:
    return SinkSample({}, lambda: None)


SOURCES: Mapping[str, Callable[[Place], Options]] = {
    "FakeSource": _fake,
    "HdfsFile": _parquet_source,
    "Iceberg": _iceberg_source,
    "Jdbc": _jdbc_source,
    "LocalFile": _csv_source,
}
# Each keeps `id` and `name` as they are, at the front; what it adds does not matter.
TRANSFORMS: Mapping[str, Options] = {
    "Copy": {"fields": {"id": "id"}},
    "DataValidator": {"field_rules": [{"field_name": "name", "rule_type": "NOT_NULL"}]},
    "FieldMapper": {"field_mapper": {"id": "id", "name": "name"}},
    "FieldRename": {"convert_case": "LOWER"},
    "Filter": {"include_fields": ["id", "name"]},
    "FilterRowKind": {"include_kinds": ["INSERT"]},
    "RowKindExtractor": {},
    "JsonPath": {
        "columns": [
            {
                "src_field": "name",
                "path": "$",
                "dest_field": "json",
                "column_error_handle_way": "SKIP",
            }
        ]
    },
    "Metadata": {"metadata_fields": {"Table": "of"}},
    "RegexExtract": {
        "source_field": "name",
        "regex_pattern": "(.*)",
        "output_fields": ["name"],
    },
    "Replace": {"replace_field": "name", "pattern": "#", "replacement": "_"},
    "Split": {"split_field": "name", "separator": "#", "output_fields": ["name"]},
    "Sql": {"query": f"select id, name from {INPUT} where id >= 0"},
    "TableFilter": {"table_pattern": ".*"},
    "TableMerge": {"table": "all"},
    "TableRename": {"prefix": "new_"},
}
SINKS: Mapping[str, Callable[[Place], SinkSample]] = {
    "Assert": _assert,
    "Console": _console,
    "HdfsFile": _parquet_sink,
    "Iceberg": _iceberg_sink,
    "InMemory": _in_memory,
    "Jdbc": _jdbc_sink,
    "LocalFile": _json_sink,
}
