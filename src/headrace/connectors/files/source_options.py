"""The options of the file sources, as a job file has them and as the source takes them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime

from pydantic import JsonValue

from headrace.connectors.files.options import (
    ENCODING,
    FolderOptions,
    codec_option,
    delimiter_option,
    folder_options,
    format_option,
    not_built,
    one_letter_flaw,
    regex_flaw,
    tag_flaw,
)
from headrace.plugins.options import Kind, Option, common_options
from headrace.plugins.resolved_options import ResolvedOptions
from headrace.plugins.schema import TableSchema
from headrace.plugins.time_patterns import time_pattern_flaw

ARCHIVES = ("none", "zip", "tar", "tar_gz", "gz")
CHUNK_BYTES = 1024  # SeaTunnel's
CHUNK_BYTES_MAX = 256 * 1024 * 1024
PATH_DOC = (
    "a folder, absolute, which is read with all that is below it; or one file. With `*` or `?` in "
    "it, a glob: `?` and `*` stand for letters of one name, `**` also for folders, `[a-c]` for one "
    "letter, `{x,y}` for one of several; a folder that fits is read as a whole. A `path` that is "
    "there as it stands is no glob."
)
_NO_SCHEMA_NEEDED = frozenset({"text", "binary"})
_TIME = "%Y-%m-%d %H:%M:%S"


@dataclass(frozen=True, slots=True, kw_only=True)
class FileFilterOptions:
    """Which files of the folder are read."""

    name_pattern: str | None
    extension: str | None
    modified_from_ms: int | None  # included
    modified_until_ms: int | None  # not included
    partitions: tuple[str, ...]  # `k=v`, or several with slashes between; empty: all
    recursive: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class FileSourceOptions:
    folder: FolderOptions
    filters: FileFilterOptions
    format: str
    schema: TableSchema | None
    delimiter: str | None  # None: that of the format
    row_delimiter: str | None  # None: any of the usual line ends
    quote: str
    escape: str | None
    uses_header: bool
    null_format: str | None
    columns: tuple[str, ...]  # empty: all
    skip_lines: int
    parses_partitions: bool
    date_format: str | None
    datetime_format: str | None
    time_format: str | None
    encoding: str
    codec: str
    archive: str
    sheet_name: str | None
    row_tag: str | None
    uses_attributes: bool
    chunk_bytes: int | None  # None: a file is one part


def _instant_flaw(text: str) -> str | None:
    try:
        _instant_ms(text)
    except ValueError:
        return "write it as yyyy-MM-dd HH:mm:ss, in UTC"
    return None


def _instant_ms(text: str) -> int:
    return round(datetime.strptime(text, _TIME).replace(tzinfo=UTC).timestamp() * 1000)


def _sink_only(*names: str) -> tuple[Option, ...]:
    why = "it is an option of the sink, which SeaTunnel's own jobs give to sources, too"
    return tuple(Option(name, Kind.JSON, idle=why, placeholders=(r"\w+",)) for name in names)


def _time_option(name: str, doc: str) -> Option:
    return Option(name, Kind.STRING, flaw=time_pattern_flaw, doc=doc)


SOURCE = (
    format_option(default=None, not_built=("markdown", "pdf", "word")),
    Option(
        "schema",
        Kind.SCHEMA,
        vectors=False,
        doc="The columns. Without it text is one column `content`, parquet and orc have their own, "
        "and those of csv, json, xml and excel are found in the first files: the job's log shows "
        "them as a `schema` block, and all of the job goes by them. A streaming job needs it, but "
        "for text and binary.",
    ),
    Option("read_columns", Kind.LIST, doc="The columns to give, in this order. Missing: all."),
    delimiter_option(
        "Between the fields of text and csv, and of excel between the fields of a row inside of a "
        "cell. Missing: `\\u0001` in text, `,` in csv, `;` in excel. Of text, more than one letter "
        "is a regular expression."
    ),
    Option(
        "row_delimiter",
        Kind.STRING,
        doc="Between the lines of text and json; of other formats it does nothing. Missing, or a "
        "line feed, a carriage return or both: any usual line end.",
    ),
    Option(
        "csv_use_header_line",
        Kind.BOOL,
        default=False,
        doc="Whether the columns of csv are read by the names in each file's first line, whatever "
        "their order there; other columns are passed over, and one of `schema` that is missing "
        "stops the job. `false`: by their place.",
    ),
    Option(
        "skip_header_row_number",
        Kind.INT,
        0,
        minimum=0,
        doc="Lines at the top of each file of text and csv, or rows of an excel sheet. With 1 of "
        "csv, a header in another order than `schema` stops the job. A text file is then read as "
        "one value, and must be smaller than 2 GB, unless it lies in an archive.",
    ),
    Option("quote_char", Kind.STRING, '"', doc="Of csv; empty: none.", flaw=one_letter_flaw),
    Option(
        "escape_char",
        Kind.STRING,
        doc="Of csv, before a quote inside of quotes. Missing: the quote is doubled.",
        flaw=one_letter_flaw,
    ),
    Option(
        "null_format",
        Kind.STRING,
        doc="The text that is null, in text and csv, e.g. `\\N`; an empty text is a text then. "
        "Missing: the empty text.",
    ),
    _time_option("date_format", "How dates are written, e.g. dd.MM.yyyy. Missing: as ISO 8601."),
    _time_option("datetime_format", "How times with a date are written. Missing: as ISO 8601."),
    _time_option("time_format", "How times of day are written. Missing: HH:mm:ss."),
    ENCODING,
    codec_option(
        "`lzo`: files of text, csv and json whose names end in .lzo are unpacked. All else is "
        "known by a file's name (.gz, .bz2) or content (parquet, orc), whatever stands here."
    ),
    Option(
        "archive_compress_codec",
        Kind.STRING,
        "none",
        choices=ARCHIVES,
        doc="Each file is such an archive, and the files in it are read, but for parquet and orc. "
        "`gz` is one file, whatever its name. Archives of a worker's machine are read as they go; "
        "those from elsewhere must be smaller than 2 GB.",
    ),
    Option(
        "parse_partition_from_path",
        Kind.BOOL,
        default=True,
        doc="Whether folders like `k=v` are columns of text.",
    ),
    Option(
        "read_partitions",
        Kind.LIST,
        doc="Folders like `k=v`, or `k=v/l=w`: only files in one of these are read. Missing: all.",
    ),
    Option(
        "file_filter_pattern",
        Kind.STRING,
        doc="A regular expression of the names of files to read; one that begins with a slash is "
        "of their whole paths.",
        flaw=regex_flaw,
    ),
    Option(
        "filename_extension", Kind.STRING, doc="The end of the names of files to read, e.g. `csv`."
    ),
    Option(
        "file_filter_modified_start",
        Kind.STRING,
        doc="Only files last written to at this time or later are read: yyyy-MM-dd HH:mm:ss, UTC.",
        flaw=_instant_flaw,
    ),
    Option(
        "file_filter_modified_end",
        Kind.STRING,
        doc="Only files last written to before this time are read.",
        flaw=_instant_flaw,
    ),
    Option(
        "recursive_file_scan", Kind.BOOL, default=True, doc="Whether folders below are read, too."
    ),
    Option("sheet_name", Kind.STRING, doc="Of excel. Missing: the first sheet."),
    Option(
        "excel_engine",
        Kind.STRING,
        choices=("POI", "EasyExcel"),
        idle="there is one reader of excel, for .xls, .xlsx, .xlsb and .ods",
    ),
    Option(
        "xml_row_tag",
        Kind.STRING,
        doc="The element that is a row of xml, which needs it.",
        flaw=tag_flaw,
    ),
    Option(
        "xml_use_attr_format",
        Kind.BOOL,
        default=False,
        doc="Whether the values of xml are attributes of the row's element. `false`: elements in "
        "it; one that has elements itself, or comes several times, is JSON.",
    ),
    Option(
        "binary_chunk_size",
        Kind.INT,
        CHUNK_BYTES,
        minimum=1,
        maximum=CHUNK_BYTES_MAX,
        doc="Bytes of each part of a binary file. A row is `data`, `relativePath`, `partIndex`.",
    ),
    Option(
        "binary_complete_file_mode",
        Kind.BOOL,
        default=False,
        doc="Whether a binary file is one row; it must be smaller than 2 GB.",
    ),
    Option(
        "sync_mode",
        Kind.STRING,
        "full",
        choices=("full", "update"),
        supported=("full",),
        doc="`full`: every file is read.",
    ),
    Option(
        "discovery_mode",
        Kind.STRING,
        "once",
        choices=("once", "continuous"),
        supported=("once",),
        unsupported="is not built; job.mode = STREAMING in env reads files as they arrive",
        doc="`once`: what is there when the job starts, unless job.mode = STREAMING.",
    ),
    Option(
        "post_sync_action",
        Kind.STRING,
        "none",
        choices=("none", "delete", "backup"),
        supported=("none",),
        doc="Files are left as they are.",
    ),
    Option("enable_file_split", Kind.BOOL, idle="Spark splits large files by itself"),
    Option("file_split_size", Kind.INT, idle="Spark splits large files by itself"),
    Option(
        "sort_files_by_modification_time",
        Kind.BOOL,
        default=False,
        supported=(False,),
        unsupported="is not possible: files are read in the order of their names, at once",
        doc="Files of a batch are read in the order of their names.",
    ),
    *not_built(
        "scan_interval",
        "start_mode",
        why="is not built; job.mode = STREAMING in env reads files as they arrive",
    ),
    *not_built("tables_configs", "target_path", "target_hadoop_conf", "update_strategy"),
    *not_built("compare_mode", "update_compare_parallelism", "update_compare_bulk_threshold"),
    *not_built("backup_path", "retention_max_age", "retention_check_interval", "metalake_type"),
    *not_built("markdown_rag_metadata_enabled", "pdf_rag_metadata_enabled"),
    *_sink_only("partition_dir_expression", "is_partition_field_write_in_file"),
    *_sink_only("file_name_expression", "filename_time_format", "is_enable_transaction"),
    *common_options("source"),
)


def streaming_flaw(options: Mapping[str, JsonValue]) -> str | None:
    """What is wrong with the options of a streaming source, or None.

    The folder may be empty when the job starts, with no file to take the columns from.
    """
    form = str(options["file_format_type"])
    if form in _NO_SCHEMA_NEEDED or options.get("schema"):
        return None
    return (
        f"in streaming mode {form} needs the option 'schema', since the folder may be empty when "
        "the job starts; add schema = { fields { … } }, or set job.mode = BATCH in env"
    )


def read_source_options(options: ResolvedOptions) -> FileSourceOptions:
    is_whole = options.flag("binary_complete_file_mode")
    return FileSourceOptions(
        folder=folder_options(options),
        filters=_filters(options),
        format=options.text("file_format_type"),
        schema=options.schema("schema"),
        delimiter=options.optional_text("field_delimiter"),
        row_delimiter=options.optional_text("row_delimiter"),
        quote=options.text("quote_char"),
        escape=options.optional_text("escape_char") or None,
        uses_header=options.flag("csv_use_header_line"),
        null_format=options.optional_text("null_format"),
        columns=options.texts("read_columns"),
        skip_lines=options.integer("skip_header_row_number"),
        parses_partitions=options.flag("parse_partition_from_path"),
        date_format=options.optional_text("date_format"),
        datetime_format=options.optional_text("datetime_format"),
        time_format=options.optional_text("time_format"),
        encoding=options.text("encoding"),
        codec=options.text("compress_codec"),
        archive=options.text("archive_compress_codec"),
        sheet_name=options.optional_text("sheet_name"),
        row_tag=options.optional_text("xml_row_tag"),
        uses_attributes=options.flag("xml_use_attr_format"),
        chunk_bytes=None if is_whole else options.integer("binary_chunk_size"),
    )


def _filters(options: ResolvedOptions) -> FileFilterOptions:
    start = options.optional_text("file_filter_modified_start")
    end = options.optional_text("file_filter_modified_end")
    return FileFilterOptions(
        name_pattern=options.optional_text("file_filter_pattern"),
        extension=options.optional_text("filename_extension"),
        modified_from_ms=_instant_ms(start) if start else None,
        modified_until_ms=_instant_ms(end) if end else None,
        partitions=options.texts("read_partitions"),
        recursive=options.flag("recursive_file_scan"),
    )
