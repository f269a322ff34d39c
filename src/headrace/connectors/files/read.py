"""Read a list of files with Spark as the columns of a schema.

Spark's own readers are used wherever they can be; the rest is read by Python in executors
(executor_read.py). Columns of csv are read by their place or, with a header line, by their names:
files are grouped by their headers, and each group is read by Spark with the columns it has.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql import types as spark

from headrace.connectors.files.executor_read import folder_columns, literal, record_frame
from headrace.connectors.files.headers import (
    UTF8,
    HeaderFormat,
    mismatched_headers,
    read_headers,
)
from headrace.connectors.files.records import RecordForm, folder_pairs, header_places
from headrace.connectors.files.text_values import TextForm, cast_value, value_of
from headrace.errors import Refused

CONTENT = "content"  # the only column of text files that are read without a schema
HEADERS_MAX = 100  # different ones in a slice: each is a reader of its own in Spark's plan
_LINE = "__headrace_line"
HEADER_NAMES_SHOWN = 30  # in each list of names in an error message
_TYPES_FROM_PATHS = "spark.sql.sources.partitionColumnTypeInference.enabled"
_PYTHON_FORMATS = frozenset({"excel", "xml", "binary"})
LZOP = "io.airlift.compress.lzo.LzopCodec"  # of a jar that Spark brings along
_CODECS_SETTING = "io.compression.codecs"


@dataclass(frozen=True, slots=True)
class ReadAs:
    """How files become rows: format, columns, and what Spark needs to read them."""

    format: str
    schema: spark.StructType | None  # None: the files' own
    base: str | None  # `k=v` folders below it become columns; None: they do not
    title: str = "source"  # shown to people
    archive: str = "none"
    delimiter: str = ","
    quote: str = '"'
    escape: str | None = None  # None: a quote is doubled
    line_end: str | None = None  # None: any of the usual ones
    skip_lines: int = 0
    by_header: bool = False  # columns of csv are read by their names
    encoding: str = "UTF-8"
    lzo: bool = False  # files that end in .lzo are unpacked
    sheet: str | None = None
    row_tag: str = ""
    attributes: bool = False
    chunk_bytes: int | None = None
    text: TextForm = field(default_factory=TextForm)
    # Columns that hold a time of day, each with its format.
    clock_columns: Mapping[str, str] = field(default_factory=dict[str, str])
    columns: Sequence[str] = ()  # empty: all
    hadoop: Mapping[str, str] = field(default_factory=dict[str, str], repr=False)

    @property
    def by_python(self) -> bool:
        """Whether Spark has no reader for these files."""
        if self.archive != "none" or self.format in _PYTHON_FORMATS:
            return True
        if self.by_header and (self.quote != '"' or self.escape is not None):
            return True  # headers of such files are not read elsewhere
        return self.format == "csv" and self.skip_lines > (0 if self.by_header else 1)

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(column.name for column in self.schema.fields) if self.schema else ()


def read(session: SparkSession, paths: Sequence[str], how: ReadAs) -> DataFrame:
    session.conf.set(_TYPES_FROM_PATHS, "false")
    _set_charsets(session, how)
    if how.lzo:
        how = replace(how, hadoop={**how.hadoop, _CODECS_SETTING: LZOP})
    frame = _records(session, paths, how) if how.by_python else _by_spark(session, paths, how)
    return frame.select(*(f"`{name}`" for name in how.columns)) if how.columns else frame


def _by_spark(session: SparkSession, paths: Sequence[str], how: ReadAs) -> DataFrame:
    match how.format:
        case "text":
            return _text(session, paths, how)
        case "csv" if how.by_header:
            return _csv_by_header(session, paths, how)
        case "csv":
            return _csv(session, paths, how, _file_names(paths, how))
        case "json":
            return _json(session, paths, how)
        case _:
            return _columnar(session, paths, how)


def check_headers(session: SparkSession, paths: Sequence[str], how: ReadAs) -> None:
    """Raise `Refused` when a header has its columns in another order than the schema.

    Columns are read by position, so such a file would silently be read wrongly.
    """
    by_place = how.format == "csv" and how.skip_lines == 1 and not how.by_header
    if not by_place or how.by_python or how.schema is None:
        return
    _set_charsets(session, how)
    names = _file_names(paths, how)
    mismatched = mismatched_headers(session, paths, _header_format(names, how))
    if not mismatched:
        return
    first = mismatched[0]
    more = f" (and {len(mismatched) - 1} more files are like it)" if len(mismatched) > 1 else ""
    raise Refused(
        f"{first.file}: line {first.line} has {_shown_names(first.names)}; "
        f"schema has {_shown_names(names)}{more}; the columns of csv are read by their place, so "
        "give 'schema' the names and the order of the file, or set csv_use_header_line = true "
        "instead of 'skip_header_row_number'"
    )


def _file_names(paths: Sequence[str], how: ReadAs) -> list[str]:
    """The names of the schema that the files hold; the others come from folders."""
    keys = {key.lower() for key in _partition_keys(paths)} if how.base is not None else set[str]()
    return [name for name in how.names if name.lower() not in keys]


def _header_format(names: Sequence[str], how: ReadAs) -> HeaderFormat:
    return HeaderFormat(names, how.delimiter, how.encoding, how.hadoop)


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
    return reader.load([literal(path) for path in paths])


def _text(session: SparkSession, paths: Sequence[str], how: ReadAs) -> DataFrame:
    whole = how.skip_lines > 0  # lines alone do not say which of them is a file's first
    options = {"wholetext": "true"} if whole else {}
    if how.line_end is not None and not whole:
        options["lineSep"] = how.line_end
    frame = _load(session, paths, how, options)
    line = f.col("value")
    if how.encoding.lower() not in UTF8:
        line = f.decode(line.cast("binary"), how.encoding)
    partitions = [name for name in frame.columns if name != "value"]
    if whole:
        end = "\r\n|\r|\n" if how.line_end is None else re.escape(how.line_end)
        text = f.regexp_replace(line, rf"(?:{end})\z", "")
        lines = f.slice(f.split(text, end, -1), 1, 1 << 30)
        kept = f.slice(lines, how.skip_lines + 1, 1 << 30)
        frame = frame.select(f.explode(kept).alias(_LINE), *partitions)
    else:
        frame = frame.select(line.alias(_LINE), *partitions)
    texts = _fields_of(f.col(_LINE), how)
    if how.schema is None:
        return frame.withColumnRenamed(_LINE, CONTENT)
    columns = _parsed(texts, how.schema, how, f.input_file_name())
    return frame.select(*columns, *_folder_columns(partitions, how.names))


def _fields_of(line: Column, how: ReadAs) -> list[Column]:
    fields = f.split(line, _pattern(how.delimiter), -1)
    return [f.get(fields, f.lit(number)) for number in range(len(how.names))]


def _csv(
    session: SparkSession, paths: Sequence[str], how: ReadAs, names: Sequence[str]
) -> DataFrame:
    """The columns of the schema, of files that have the columns `names` in this order.

    A name that the schema has not is passed over; it need not be unique.
    """
    assert how.schema is not None
    held = {name: f"_c{at}" for at, name in enumerate(names)}
    texts = spark.StructType(
        [spark.StructField(f"_c{at}", spark.StringType()) for at in range(len(names))]
    )
    options = {
        "sep": how.delimiter,
        "header": str(how.by_header or how.skip_lines == 1).lower(),
        "encoding": how.encoding,
        "quote": how.quote or "\0",
        "escape": how.escape or how.quote or "\0",
        "multiLine": "true",  # a quoted value may hold a line end
        "mode": "FAILFAST",
    }
    if how.text.null is not None:
        options["nullValue"] = _NO_TEXT  # the text of null is looked for below
        options["emptyValue"] = ""
    frame = _load(session, paths, how, options, texts)
    partitions = [name for name in frame.columns if name not in texts.names]
    # A name of the schema that no file has is the key of a folder.
    held |= {key: key for name in how.names for key in partitions if key.lower() == name.lower()}
    by_name = {name.lower(): column for name, column in held.items()}
    columns = [frame[f"`{by_name[name.lower()]}`"] for name in how.names]
    parsed = _parsed(columns, how.schema, how, f.input_file_name())
    return frame.select(*parsed, *_folder_columns(partitions, how.names))


_NO_TEXT = "\ufffe\uffff"  # occurs in no text


def _csv_by_header(session: SparkSession, paths: Sequence[str], how: ReadAs) -> DataFrame:
    """Files by their headers; each group is read with the columns that it has."""
    assert how.schema is not None
    names = _file_names(paths, how)
    groups: dict[tuple[str, ...], list[str]] = {}
    headers = read_headers(session, paths, _header_format(names, how))
    for path in paths:
        groups.setdefault(_header_of(path, headers), []).append(path)
    if len(groups) > HEADERS_MAX:
        raise Refused(
            f"these files have {len(groups)} different headers, and at most {HEADERS_MAX} are read "
            "at once; read fewer of them by a source, with 'file_filter_pattern'"
        )
    frames = [
        _csv(session, group, how, _renamed(group[0], header, how))
        for header, group in groups.items()
    ]
    frame = frames[0]
    for other in frames[1:]:
        frame = frame.unionByName(other)
    return frame


def _header_of(path: str, headers: Mapping[str, tuple[str, ...]]) -> tuple[str, ...]:
    header = headers.get(path)
    if header is None:
        raise Refused(
            f"{path}: its first line holds no header with a name of 'schema'; mend 'schema', or "
            "set csv_use_header_line = false"
        )
    return header


def _renamed(path: str, header: Sequence[str], how: ReadAs) -> Sequence[str]:
    """The header with the schema's spelling of its names."""
    names = _file_names([path], how)
    places = header_places(header, names)
    if isinstance(places, str):
        raise Refused(f"{path}: {places}; mend 'schema', or read this file by another source")
    spelled = dict(zip(places, names, strict=True))
    return [spelled.get(at, "") for at in range(len(header))]


def _json(session: SparkSession, paths: Sequence[str], how: ReadAs) -> DataFrame:
    options = {"encoding": how.encoding, **_json_options(how)}
    if how.encoding.lower() not in UTF8:
        options["lineSep"] = "\n"  # Spark can't guess it in other encodings than UTF-8
    if how.line_end is not None:
        options["lineSep"] = how.line_end
    return _load(session, paths, how, options, how.schema)


def _json_options(how: ReadAs) -> dict[str, str]:
    options = {"mode": "FAILFAST"}
    if how.text.date:
        options["dateFormat"] = how.text.date
    if how.text.datetime:
        options |= {"timestampNTZFormat": how.text.datetime, "timestampFormat": how.text.datetime}
    return options


def _columnar(session: SparkSession, paths: Sequence[str], how: ReadAs) -> DataFrame:
    """Read files that know their own types; a schema selects columns, and casts them."""
    frame = _load(session, paths, how, {})
    if how.schema is None:
        return frame
    wanted = [_cast(frame, column, how).alias(column.name) for column in how.schema.fields]
    partitions = _folder_columns(_partition_columns(frame, how), how.names)
    return frame.select(*wanted, *partitions)


def _cast(frame: DataFrame, column: spark.StructField, how: ReadAs) -> Column:
    value = frame[f"`{column.name}`"]
    source_type = frame.schema[column.name].dataType
    if column.name in how.clock_columns and isinstance(
        source_type, spark.TimestampType | spark.TimestampNTZType
    ):
        return f.date_format(value, "HH:mm:ss")
    return cast_value(value, column.name, source_type, column.dataType)


def _records(session: SparkSession, paths: Sequence[str], how: ReadAs) -> DataFrame:
    """Files that Python reads in executors."""
    keys = [key.lower() for key, _ in folder_pairs(paths[0], how.base)]
    held = tuple(name for name in how.names if name.lower() not in keys)
    frame = sampled_records(session, paths, how, names=held)
    if how.format == "binary":
        return frame
    place = f.concat("file", f.lit(": line "), "line")
    first = f.get("cells", f.lit(0))
    folders = folder_columns(paths, how.base, how.names)
    if how.schema is None:  # only text does without
        return frame.select(first.alias(CONTENT), *folders)
    texts = _fields_of(first, how) if how.format == "text" else None
    by_name = {
        name: texts[number] if texts else f.get("cells", f.lit(number))
        for number, name in enumerate(held)
    }
    # A name of the schema that is the key of a folder has its value there.
    by_name |= {
        name: f.get("folders", f.lit(keys.index(name.lower())))
        for name in how.names
        if name not in held
    }
    schema = how.schema
    if how.format == "json":
        inside = spark.StructType([schema[name] for name in held])
        row = f.from_json(first, inside, _json_options(how))
        frame = frame.withColumn(_LINE, row)
        schema = spark.StructType([one for one in schema.fields if one.name not in held])
    parsed = _parsed([by_name[name] for name in schema.names], schema, how, place)
    by_name = dict(zip(schema.names, parsed, strict=True))
    columns = [by_name[n] if n in by_name else f.col(_LINE)[n].alias(n) for n in how.names]
    return frame.select(*columns, *folders)


def sampled_records(
    session: SparkSession,
    paths: Sequence[str],
    how: ReadAs,
    *,
    names: tuple[str, ...],
    records_max: int | None = None,
) -> DataFrame:
    """The records as texts, with the cells of these names; without names, all that are there.

    With `records_max`, only so many of each file.
    """
    form = RecordForm(
        format=how.format,
        archive=how.archive,
        base=how.base,
        encoding=how.encoding,
        skip=how.skip_lines,
        names=names,
        by_header=how.by_header and bool(names),
        delimiter=how.delimiter,
        quote=how.quote,
        escape=how.escape,
        line_end=how.line_end,
        sheet=how.sheet,
        row_tag=how.row_tag,
        attributes=how.attributes,
        chunk_bytes=how.chunk_bytes,
        records_max=records_max,
    )
    return record_frame(session, paths, form, how.hadoop, needed_by=how.title)


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


def _parsed(
    texts: Sequence[Column], schema: spark.StructType, how: ReadAs, place: Column
) -> list[Column]:
    parsed: list[Column] = []
    for text, column in zip(texts, schema.fields, strict=True):
        value = value_of(text, column.name, column.dataType, how.text, place)
        pattern = how.clock_columns.get(column.name)
        if pattern:
            value = f.date_format(f.to_timestamp(value, pattern), "HH:mm:ss")
        parsed.append(value.alias(column.name))
    return parsed


def _folder_columns(partitions: Sequence[str], names: Sequence[str]) -> list[str]:
    """Columns from folders that the files themselves do not have."""
    held = {name.lower() for name in names}
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
