"""Read a list of files with Spark, as the columns of a schema."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql import types as spark

from headrace.errors import Refused
from headrace.formats.files.first_lines import UTF8
from headrace.formats.files.headers import HeaderFormat, other_headers
from headrace.formats.files.text import TimeFormats, cast_value, value_of

CONTENT = "content"  # the one column of text without a schema
_LINE = "__headrace_line"
_PATTERN = re.compile(r"[\\*?\[\]{}]")
HEADER_NAMES_SHOWN = 30  # of each list in an error
_TYPES_FROM_PATHS = "spark.sql.sources.partitionColumnTypeInference.enabled"


@dataclass(frozen=True, slots=True)
class ReadAs:
    """How files become rows."""

    format: str
    schema: spark.StructType | None  # None: what the files say themselves
    base: str | None  # below it `k=v` folders are columns; None: they are not
    delimiter: str = ","
    skip_lines: int = 0
    encoding: str = "UTF-8"
    times: TimeFormats = field(default_factory=TimeFormats)
    clock_columns: Mapping[str, str] = field(default_factory=dict[str, str])  # times of day: format
    columns: Sequence[str] = ()  # empty: all
    hadoop: Mapping[str, str] = field(default_factory=dict[str, str], repr=False)


def read(session: SparkSession, paths: Sequence[str], how: ReadAs) -> DataFrame:
    session.conf.set(_TYPES_FROM_PATHS, "false")
    _set_charsets(session, how)
    match how.format:
        case "text":
            frame = _text(session, paths, how)
        case "csv":
            frame = _csv(session, paths, how)
        case "json":
            frame = _json(session, paths, how)
        case _:
            frame = _columnar(session, paths, how)
    return frame.select(*(f"`{name}`" for name in how.columns)) if how.columns else frame


def check_headers(session: SparkSession, paths: Sequence[str], how: ReadAs) -> None:
    """Raises `Refused` when a header says that columns stand in another order than the schema's.

    They are read by their place, so that such a file would be read wrongly without a word.
    """
    if how.format != "csv" or how.skip_lines == 0 or how.schema is None:
        return
    _set_charsets(session, how)
    keys = {key.lower() for key in _keys(paths)} if how.base is not None else set[str]()
    names = [field.name for field in how.schema.fields if field.name.lower() not in keys]
    wanted = HeaderFormat(names, how.delimiter, how.encoding, how.hadoop)
    others = other_headers(session, paths, wanted)
    if not others:
        return
    first = others[0]
    more = f" (and {len(others) - 1} more files are like it)" if len(others) > 1 else ""
    raise Refused(
        f"{first.file}: line {first.line} has {_listed(first.names)}; "
        f"schema has {_listed(names)}{more}; the "
        "columns of csv are read by their place, so give 'schema' the names and the order of the "
        "file, and read files of another order by a source of their own"
    )


def _listed(names: Sequence[str]) -> str:
    shown = ", ".join(names[:HEADER_NAMES_SHOWN])
    more = len(names) - HEADER_NAMES_SHOWN
    return f"{shown} and {more} more" if more > 0 else shown


def _set_charsets(session: SparkSession, how: ReadAs) -> None:
    if how.encoding.lower() not in UTF8:
        session.conf.set("spark.sql.legacy.javaCharsets", "true")  # GBK and its like


def _load(
    session: SparkSession,
    paths: Sequence[str],
    how: ReadAs,
    options: Mapping[str, str],
    schema: spark.StructType | None = None,
) -> DataFrame:
    told = {**how.hadoop, **options}
    if how.base is not None:
        told["basePath"] = how.base
    reader = session.read.format(how.format).options(**told)
    if schema is not None:
        reader = reader.schema(schema)
    # Spark takes paths for patterns. Its option not to reads files twice when one looks like one.
    return reader.load([_PATTERN.sub(r"\\\g<0>", path) for path in paths])


def _text(session: SparkSession, paths: Sequence[str], how: ReadAs) -> DataFrame:
    whole = how.skip_lines > 0  # else nobody knows which line is a file's first
    frame = _load(session, paths, how, {"wholetext": "true"} if whole else {})
    line = f.col("value")
    if how.encoding.lower() not in UTF8:
        line = f.decode(line.cast("binary"), how.encoding)
    partitions = [name for name in frame.columns if name != "value"]
    if whole:
        lines = f.slice(f.split(f.regexp_replace(line, "\r?\n$", ""), "\r?\n", -1), 1, 1 << 30)
        kept = f.slice(lines, how.skip_lines + 1, 1 << 30)
        frame = frame.select(f.explode(kept).alias(_LINE), *partitions)
    else:
        frame = frame.select(line.alias(_LINE), *partitions)
    if how.schema is None:
        return frame.withColumnRenamed(_LINE, CONTENT)
    fields = f.split(f.col(_LINE), _pattern(how.delimiter), -1)
    texts = [f.get(fields, f.lit(number)) for number in range(len(how.schema.fields))]
    return frame.select(*_parsed(texts, how.schema, how), *_other(partitions, how.schema))


def _csv(session: SparkSession, paths: Sequence[str], how: ReadAs) -> DataFrame:
    assert how.schema is not None
    names = [field.name for field in how.schema.fields]
    texts = spark.StructType([spark.StructField(name, spark.StringType()) for name in names])
    options = {
        "sep": how.delimiter,
        "header": str(how.skip_lines == 1).lower(),
        "encoding": how.encoding,
        "escape": '"',
        "multiLine": "true",  # a quoted value may hold a line's end
        "mode": "FAILFAST",
    }
    frame = _load(session, paths, how, options, texts)
    columns = [frame[f"`{name}`"] for name in names]
    partitions = [name for name in frame.columns if name not in names]
    return frame.select(*_parsed(columns, how.schema, how), *_other(partitions, how.schema))


def _json(session: SparkSession, paths: Sequence[str], how: ReadAs) -> DataFrame:
    options = {"encoding": how.encoding, "mode": "FAILFAST"}
    if how.encoding.lower() not in UTF8:
        options["lineSep"] = "\n"  # Spark can't guess it from other bytes than UTF-8's
    if how.times.date:
        options["dateFormat"] = how.times.date
    if how.times.datetime:
        options |= {"timestampNTZFormat": how.times.datetime, "timestampFormat": how.times.datetime}
    return _load(session, paths, how, options, how.schema)


def _columnar(session: SparkSession, paths: Sequence[str], how: ReadAs) -> DataFrame:
    """The files know their own types; a schema picks columns, and casts them."""
    frame = _load(session, paths, how, {})
    if how.schema is None:
        return frame
    wanted = [_cast(frame, column, how).alias(column.name) for column in how.schema.fields]
    partitions = _other(_partitions(frame, how), how.schema)
    return frame.select(*wanted, *partitions)


def _cast(frame: DataFrame, column: spark.StructField, how: ReadAs) -> Column:
    found = frame[f"`{column.name}`"]
    given = frame.schema[column.name].dataType
    if column.name in how.clock_columns and isinstance(
        given, spark.TimestampType | spark.TimestampNTZType
    ):
        return f.date_format(found, "HH:mm:ss")
    return cast_value(found, column.name, given, column.dataType)


def _partitions(frame: DataFrame, how: ReadAs) -> list[str]:
    """Spark puts columns that come from folders behind all others."""
    if how.base is None:
        return []
    keys = _keys(frame.inputFiles())
    return [name for name in frame.columns if name in keys]


def _keys(paths: Sequence[str]) -> set[str]:
    return {
        part.partition("=")[0] for path in paths for part in path.split("/")[:-1] if "=" in part
    }


def _parsed(texts: Sequence[Column], schema: spark.StructType, how: ReadAs) -> list[Column]:
    parsed: list[Column] = []
    for text, column in zip(texts, schema.fields, strict=True):
        value = value_of(text, column.name, column.dataType, how.times)
        pattern = how.clock_columns.get(column.name)
        if pattern:
            value = f.date_format(f.to_timestamp(value, pattern), "HH:mm:ss")
        parsed.append(value.alias(column.name))
    return parsed


def _other(partitions: Sequence[str], schema: spark.StructType) -> list[str]:
    """Columns from folders that are not in the files themselves."""
    held = {field.name.lower() for field in schema.fields}
    return [f"`{name}`" for name in partitions if name.lower() not in held]


def _pattern(delimiter: str) -> str:
    """A delimiter of text is a regular expression, as in SeaTunnel; a single letter is itself."""
    if len(delimiter) == 1 or re.fullmatch(r"(?:[|*+?.^$]){2,}", delimiter):
        return "".join(
            rf"\{letter}" if letter in r"\|*+?.^$()[]{}" else letter for letter in delimiter
        )
    return delimiter
