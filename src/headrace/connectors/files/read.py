"""Read a list of files with Spark as the columns of a schema, and convert rows to text and back.

The text form is SeaTunnel's: fields are separated by the delimiter, the parts of a field by \u0002,
the parts of those by \u0003, and so on; null is empty text. CSV files hold nested values in the
same way.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql import types as spark

from headrace.connectors.files.headers import UTF8, HeaderFormat, mismatched_headers
from headrace.errors import Refused

SEPARATORS = "\u0001\u0002\u0003\u0004\u0005\u0006\u0007\u0008"
VALUE_CHARACTERS_SHOWN = 100
DEPTH_MAX = len(SEPARATORS) - 2  # levels of arrays, maps and rows nested in each other
CONTENT = "content"  # the only column of text files that are read without a schema
_LINE = "__headrace_line"
_PATTERN = re.compile(r"[\\*?\[\]{}]")
HEADER_NAMES_SHOWN = 30  # in each list of names in an error message
_TYPES_FROM_PATHS = "spark.sql.sources.partitionColumnTypeInference.enabled"


@dataclass(frozen=True, slots=True)
class TimeFormats:
    """Formats of parsed dates and times. None: any that Spark knows, e.g. with and without a T."""

    date: str | None = None
    datetime: str | None = None


@dataclass(frozen=True, slots=True)
class ReadAs:
    """How files become rows: format, columns, and what Spark needs to read them."""

    format: str
    schema: spark.StructType | None  # None: the files' own
    base: str | None  # `k=v` folders below it become columns; None: they do not
    delimiter: str = ","
    skip_lines: int = 0
    encoding: str = "UTF-8"
    times: TimeFormats = field(default_factory=TimeFormats)
    # Columns that hold a time of day, each with its format.
    clock_columns: Mapping[str, str] = field(default_factory=dict[str, str])
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
    """Raise `Refused` when a header has its columns in another order than the schema.

    Columns are read by position, so such a file would silently be read wrongly.
    """
    if how.format != "csv" or how.skip_lines == 0 or how.schema is None:
        return
    _set_charsets(session, how)
    keys = {key.lower() for key in _partition_keys(paths)} if how.base is not None else set[str]()
    names = [field.name for field in how.schema.fields if field.name.lower() not in keys]
    header = HeaderFormat(names, how.delimiter, how.encoding, how.hadoop)
    mismatched = mismatched_headers(session, paths, header)
    if not mismatched:
        return
    first = mismatched[0]
    more = f" (and {len(mismatched) - 1} more files are like it)" if len(mismatched) > 1 else ""
    raise Refused(
        f"{first.file}: line {first.line} has {_shown_names(first.names)}; "
        f"schema has {_shown_names(names)}{more}; the "
        "columns of csv are read by their place, so give 'schema' the names and the order of the "
        "file, and read files of another order by a source of their own"
    )


def _shown_names(names: Sequence[str]) -> str:
    shown = ", ".join(names[:HEADER_NAMES_SHOWN])
    more = len(names) - HEADER_NAMES_SHOWN
    return f"{shown} and {more} more" if more > 0 else shown


def _set_charsets(session: SparkSession, how: ReadAs) -> None:
    if how.encoding.lower() not in UTF8:
        session.conf.set("spark.sql.legacy.javaCharsets", "true")  # GBK and others


def _load(
    session: SparkSession,
    paths: Sequence[str],
    how: ReadAs,
    options: Mapping[str, str],
    schema: spark.StructType | None = None,
) -> DataFrame:
    reader_options = {**how.hadoop, **options}
    if how.base is not None:
        reader_options["basePath"] = how.base
    reader = session.read.format(how.format).options(**reader_options)
    if schema is not None:
        reader = reader.schema(schema)
    # Spark takes paths for glob patterns, so they are escaped. Its option against that reads a file
    # twice whose name looks like a pattern.
    return reader.load([_PATTERN.sub(r"\\\g<0>", path) for path in paths])


def _text(session: SparkSession, paths: Sequence[str], how: ReadAs) -> DataFrame:
    whole = how.skip_lines > 0  # lines alone do not say which of them is a file's first
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
    return frame.select(*_parsed(texts, how.schema, how), *_folder_columns(partitions, how.schema))


def _csv(session: SparkSession, paths: Sequence[str], how: ReadAs) -> DataFrame:
    assert how.schema is not None
    names = [field.name for field in how.schema.fields]
    texts = spark.StructType([spark.StructField(name, spark.StringType()) for name in names])
    options = {
        "sep": how.delimiter,
        "header": str(how.skip_lines == 1).lower(),
        "encoding": how.encoding,
        "escape": '"',
        "multiLine": "true",  # a quoted value may hold a line end
        "mode": "FAILFAST",
    }
    frame = _load(session, paths, how, options, texts)
    columns = [frame[f"`{name}`"] for name in names]
    partitions = [name for name in frame.columns if name not in names]
    return frame.select(
        *_parsed(columns, how.schema, how), *_folder_columns(partitions, how.schema)
    )


def _json(session: SparkSession, paths: Sequence[str], how: ReadAs) -> DataFrame:
    options = {"encoding": how.encoding, "mode": "FAILFAST"}
    if how.encoding.lower() not in UTF8:
        options["lineSep"] = "\n"  # Spark can't guess it in other encodings than UTF-8
    if how.times.date:
        options["dateFormat"] = how.times.date
    if how.times.datetime:
        options |= {"timestampNTZFormat": how.times.datetime, "timestampFormat": how.times.datetime}
    return _load(session, paths, how, options, how.schema)


def _columnar(session: SparkSession, paths: Sequence[str], how: ReadAs) -> DataFrame:
    """Read files that know their own types; a schema selects columns, and casts them."""
    frame = _load(session, paths, how, {})
    if how.schema is None:
        return frame
    wanted = [_cast(frame, column, how).alias(column.name) for column in how.schema.fields]
    partitions = _folder_columns(_partition_columns(frame, how), how.schema)
    return frame.select(*wanted, *partitions)


def _cast(frame: DataFrame, column: spark.StructField, how: ReadAs) -> Column:
    value = frame[f"`{column.name}`"]
    source_type = frame.schema[column.name].dataType
    if column.name in how.clock_columns and isinstance(
        source_type, spark.TimestampType | spark.TimestampNTZType
    ):
        return f.date_format(value, "HH:mm:ss")
    return cast_value(value, column.name, source_type, column.dataType)


def _partition_columns(frame: DataFrame, how: ReadAs) -> list[str]:
    """The columns that come from folders; Spark puts them behind all others."""
    if how.base is None:
        return []
    keys = _partition_keys(frame.inputFiles())
    return [name for name in frame.columns if name in keys]


def _partition_keys(paths: Sequence[str]) -> set[str]:
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


def _folder_columns(partitions: Sequence[str], schema: spark.StructType) -> list[str]:
    """Columns from folders that the files themselves do not have."""
    held = {field.name.lower() for field in schema.fields}
    return [f"`{name}`" for name in partitions if name.lower() not in held]


def _pattern(delimiter: str) -> str:
    """The pattern of a text delimiter: a regular expression, as in SeaTunnel.

    One letter, or special characters only, stand for themselves.
    """
    if len(delimiter) == 1 or re.fullmatch(r"(?:[|*+?.^$]){2,}", delimiter):
        return "".join(
            rf"\{letter}" if letter in r"\|*+?.^$()[]{}" else letter for letter in delimiter
        )
    return delimiter


def value_of(column: Column, name: str, data_type: spark.DataType, formats: TimeFormats) -> Column:
    """As `from_text`, for a whole field: an invalid text fails, naming file and column.

    Only to be used where rows are read: after a shuffle Spark no longer knows a row's file.
    """
    parsed = _try_parse(f.when(f.trim(column) != "", column), data_type, formats)
    if parsed is None:
        return from_text(column, data_type, formats)
    return _or_failure(parsed, f.when(f.trim(column) != "", column), name, data_type)


def cast_value(
    column: Column, name: str, source_type: spark.DataType, data_type: spark.DataType
) -> Column:
    """A value of a file that knows its types, cast to another type; fails as `value_of` does."""
    nested = spark.ArrayType, spark.MapType, spark.StructType
    if source_type == data_type or isinstance(source_type, nested) or isinstance(data_type, nested):
        return column.cast(data_type)
    return _or_failure(column.try_cast(data_type), column.cast("string"), name, data_type)


def _or_failure(parsed: Column, text: Column, name: str, data_type: spark.DataType) -> Column:
    """`parsed`; a null that has a text fails the job, naming file, column and value."""
    message = f.concat(
        f.input_file_name(),
        f.lit(f": column '{name}': '"),
        f.substring(text, 1, VALUE_CHARACTERS_SHOWN),
        f.lit(f"' is no {data_type.simpleString()}"),
    )
    return f.coalesce(parsed, f.when(text.isNotNull(), f.raise_error(message).cast(data_type)))


def _try_parse(text: Column, data_type: spark.DataType, formats: TimeFormats) -> Column | None:
    """Null where the text is invalid; None for types that can't be checked in this way."""
    match data_type:
        case spark.ArrayType() | spark.MapType() | spark.StructType() | spark.StringType():
            return None
        case spark.DateType() if formats.date:
            return f.try_to_date(text, formats.date)
        case spark.TimestampType() | spark.TimestampNTZType() if formats.datetime:
            return f.try_to_timestamp(text, f.lit(formats.datetime)).cast(data_type)
        case _:
            return text.try_cast(data_type)


def from_text(
    column: Column, data_type: spark.DataType, formats: TimeFormats, level: int = 0
) -> Column:
    """The value that a text stands for. Spark fails the job when the text is invalid."""
    outer, inner = SEPARATORS[level + 1], SEPARATORS[level + 2]
    filled = f.when(f.trim(column) != "", column)

    def value(text: Column, kind: spark.DataType, deeper: int) -> Column:
        return from_text(text, kind, formats, level + deeper)

    match data_type:
        case spark.ArrayType():
            element = data_type.elementType
            return f.transform(_split(filled, outer), lambda item: value(item, element, 1))
        case spark.MapType():
            key, item = data_type.keyType, data_type.valueType
            pairs = f.transform(_split(filled, outer), lambda pair: _split(pair, inner))
            return f.map_from_entries(
                f.transform(
                    pairs,
                    lambda pair: f.struct(
                        value(f.get(pair, f.lit(0)), key, 2), value(f.get(pair, f.lit(1)), item, 2)
                    ),
                )
            )
        case spark.StructType():
            parts = _split(filled, outer)
            fields = [
                value(f.get(parts, f.lit(number)), field.dataType, 1).alias(field.name)
                for number, field in enumerate(data_type.fields)
            ]
            return f.when(filled.isNotNull(), f.struct(*fields))
        case spark.StringType():
            return f.when(column != "", column)
        case _:
            return _parse_plain(filled, data_type, formats)


def _parse_plain(text: Column, data_type: spark.DataType, formats: TimeFormats) -> Column:
    match data_type:
        case spark.DateType() if formats.date:
            return f.to_date(text, formats.date)
        case spark.TimestampNTZType() if formats.datetime:
            return f.to_timestamp_ntz(text, f.lit(formats.datetime))
        case spark.TimestampType() if formats.datetime:
            return f.to_timestamp(text, formats.datetime)
        case _:
            return text.cast(data_type)


def to_text(column: Column, data_type: spark.DataType, level: int = 0) -> Column:
    """The text of a value, by SeaTunnel's separators; null stays null."""
    outer, inner = SEPARATORS[level + 1], SEPARATORS[level + 2]

    def text(value: Column, kind: spark.DataType, deeper: int) -> Column:
        return f.coalesce(to_text(value, kind, level + deeper), f.lit(""))

    match data_type:
        case spark.ArrayType():
            element = data_type.elementType
            return f.array_join(f.transform(column, lambda item: text(item, element, 1)), outer)
        case spark.MapType():
            key, value = data_type.keyType, data_type.valueType
            entries = f.transform(
                f.map_entries(column),
                lambda entry: f.concat(
                    text(entry["key"], key, 2), f.lit(inner), text(entry["value"], value, 2)
                ),
            )
            return f.array_join(entries, outer)
        case spark.StructType():
            parts = [text(column[field.name], field.dataType, 1) for field in data_type.fields]
            return f.when(column.isNotNull(), f.concat_ws(outer, *parts))
        case _:  # dates and times as Spark writes them: 2026-11-16 01:02:03, and .5 if there is any
            return column.cast("string")


def join(columns: Sequence[Column], delimiter: str) -> Column:
    return f.concat_ws(delimiter, *(f.coalesce(column, f.lit("")) for column in columns))


def too_deep(data_type: spark.DataType, depth: int = 0) -> bool:
    if depth > DEPTH_MAX:
        return True
    match data_type:
        case spark.ArrayType():
            return too_deep(data_type.elementType, depth + 1)
        case spark.MapType():
            return any(
                too_deep(inner, depth + 2) for inner in (data_type.keyType, data_type.valueType)
            )
        case spark.StructType():
            return any(too_deep(field.dataType, depth + 1) for field in data_type.fields)
        case _:
            return False


def _split(column: Column, separator: str) -> Column:
    return f.split(column, separator, -1)
