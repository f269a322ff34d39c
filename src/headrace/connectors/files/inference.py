"""Columns of files that do not say their types: found in the first files, once, at planning.

What was found is recorded with the plan and the position, so that every slice, and one that is read
again, has the same columns (E5). Only the beginning of a few files is looked at; a later value that
does not fit fails the job, as with a schema that was given.

`typed_columns` is pure. A column is `bigint`, `double`, `boolean`, `date` or `timestamp` when all
of its texts are, and else `string`; numbers with leading zeros are texts, and so are the dates of
other countries.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import date, datetime
from typing import Any

from pyspark.sql import SparkSession
from pyspark.sql import types as spark

from headrace.connectors.files.read import ReadAs, sampled_records
from headrace.connectors.files.records import header_places
from headrace.errors import Refused

FILES_MAX = 10  # that are looked at
RECORDS_MAX = 1_000  # of each of them
INFERRED = frozenset({"csv", "json", "xml", "excel"})
Columns = Sequence[Mapping[str, Any]]  # as the `columns` of a schema block: name and type

_INTEGER = re.compile(r"[+-]?(0|[1-9]\d*)")
_NUMBER = re.compile(r"[+-]?(0|[1-9]\d*)(\.\d+)?([eE][+-]?\d+)?")
_INTEGERS = range(-(1 << 63), 1 << 63)


def infer_columns(session: SparkSession, paths: Sequence[str], how: ReadAs) -> Columns:
    """The columns of these files. Raises `Refused` when there is not one record in them."""
    has_header = how.format == "excel" and how.skip_lines > 0
    look = replace(how, skip_lines=how.skip_lines - 1) if has_header else how
    frame = sampled_records(session, paths[:FILES_MAX], look, names=(), records_max=RECORDS_MAX)
    by_file: dict[str, list[Sequence[str | None]]] = {}
    for row in sorted(frame.collect(), key=lambda row: (row["file"], row["line"])):
        by_file.setdefault(row["file"], []).append(row["cells"])
    if not by_file:
        raise Refused(
            f"there are no rows in {paths[0]} to take columns from; add 'schema', or rows"
        )
    match how.format:
        case "json":
            lines = [str(cells[0]) for records in by_file.values() for cells in records]
            return _json_columns(session, lines)
        case "xml":
            rows = [json.loads(str(cells[0])) for records in by_file.values() for cells in records]
            return typed_columns(*_table_of(rows), null=how.text.null)
        case _:
            table = _cells_table(list(by_file.values()), has_header=has_header or how.by_header)
            return typed_columns(*table, null=how.text.null)


def _cells_table(
    files: Sequence[Sequence[Sequence[str | None]]], *, has_header: bool
) -> tuple[Sequence[str], Sequence[Sequence[Any]]]:
    """Names and rows; the names stand in the first record of the first file, or are c0, c1, …"""
    first = files[0][0]
    if not has_header:
        return [f"c{at}" for at in range(len(first))], [row for rows in files for row in rows]
    names = [(cell or "").strip() or f"c{at}" for at, cell in enumerate(first)]
    found: list[Sequence[Any]] = []
    for header, *rows in files:
        places = header_places([cell or "" for cell in header], names)
        if not isinstance(places, str):  # reading a file of other columns says what is wrong
            found += [[row[at] if at < len(row) else None for at in places] for row in rows]
    return names, found


def _table_of(rows: Sequence[Mapping[str, Any]]) -> tuple[Sequence[str], Sequence[Sequence[Any]]]:
    names = list(dict.fromkeys(name for row in rows for name in row))
    return names, [[row.get(name) for name in names] for row in rows]


def typed_columns(
    names: Sequence[str], rows: Sequence[Sequence[Any]], *, null: str | None = None
) -> Columns:
    """The type of each column that fits all of its values; a row may be too short."""
    columns: list[Mapping[str, Any]] = []
    for at, name in enumerate(names):
        values = [row[at] for row in rows if at < len(row) and row[at] not in (None, "", null)]
        columns.append({"name": name, "type": _type_of(values)})
    return columns


def _type_of(values: Sequence[Any]) -> str:
    if not values or not all(isinstance(value, str) for value in values):
        return "string"  # what is nested is read as JSON
    fitting = (kind for kind, fits in _KINDS if all(fits(value.strip()) for value in values))
    return next(fitting, "string")


def _is_integer(text: str) -> bool:
    return _INTEGER.fullmatch(text) is not None and len(text) < 25 and int(text) in _INTEGERS


def _is_date(text: str) -> bool:
    return len(text) == 10 and _parses(date.fromisoformat, text)


def _is_timestamp(text: str) -> bool:
    plain = len(text) >= 19 and text[10] in " T" and text[-1].isdigit() and "+" not in text
    return plain and text.count("-") == 2 and _parses(datetime.fromisoformat, text)


def _parses(parse: Callable[[str], object], text: str) -> bool:
    try:
        parse(text)
    except ValueError:
        return False
    return True


_KINDS: Sequence[tuple[str, Callable[[str], bool]]] = (
    ("bigint", _is_integer),
    ("double", lambda text: _NUMBER.fullmatch(text) is not None),
    ("boolean", lambda text: text.lower() in {"true", "false"}),
    ("date", _is_date),
    ("timestamp", _is_timestamp),
)


def _json_columns(session: SparkSession, lines: Sequence[str]) -> Columns:
    """As Spark finds them in JSON."""
    rdd: Any = session.sparkContext.parallelize(lines, 1)
    found = session.read.options(mode="FAILFAST").json(rdd).schema
    return [{"name": field.name, "type": _type_block(field.dataType)} for field in found.fields]


def _type_block(of: spark.DataType) -> Any:
    """A type as a schema block has it."""
    match of:
        case spark.StructType() if of.fields:
            return {field.name: _type_block(field.dataType) for field in of.fields}
        case spark.ArrayType():
            return f"array<{_type_text(of.elementType)}>"
        case spark.LongType() | spark.DoubleType() | spark.BooleanType():
            return of.simpleString()
        case spark.DecimalType():
            return f"decimal({of.precision}, {of.scale})"
        case _:
            return "string"


def _type_text(of: spark.DataType) -> str:
    block = _type_block(of)
    return block if isinstance(block, str) else _row_text(block)


def _row_text(block: Mapping[str, Any]) -> str:
    inner = (
        f"{json.dumps(name)} = {of if isinstance(of, str) else _row_text(of)}"
        for name, of in block.items()
    )
    return "{" + ", ".join(inner) + "}"


def schema_text(columns: Columns) -> str:
    """The columns as a block that can be copied into a job file."""
    shown = (f"{_shown_name(one['name'])} = {_shown_type(one['type'])}" for one in columns)
    return f"schema = {{ fields {{ {', '.join(shown)} }} }}"


def _shown_name(name: str) -> str:
    return name if re.fullmatch(r"[A-Za-z_]\w*", name) else json.dumps(name, ensure_ascii=False)


def _shown_type(of: Any) -> str:
    if isinstance(of, str):
        return of if of.isalpha() else json.dumps(of, ensure_ascii=False)
    inner = (f"{_shown_name(name)} = {_shown_type(kind)}" for name, kind in of.items())
    return f"{{ {', '.join(inner)} }}"
