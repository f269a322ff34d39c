"""Descriptors of the sources and sinks LocalFile and HdfsFile.

They share one set of options; HdfsFile has some more.
"""

from __future__ import annotations

import codecs
import re
from collections.abc import Mapping
from dataclasses import dataclass
from urllib.parse import urlsplit

from pydantic import JsonValue

from headrace.plugins.descriptor import Capabilities, Descriptor, Guarantee, TargetKey
from headrace.plugins.options import Kind, Option, OptionSet, common_options
from headrace.plugins.resolved_options import ResolvedOptions
from headrace.plugins.save_modes import (
    SAVE_MODES_WITHOUT_CUSTOM,
    SaveModes,
    data_save_mode,
    schema_save_mode,
)
from headrace.plugins.schema import TableSchema
from headrace.plugins.time_patterns import time_pattern_flaw

_FORMATS = ("text", "csv", "json", "parquet", "orc")
_OWN_COLUMNS = frozenset({"parquet", "orc"})  # their files declare their columns
_NO_FORMATS = ("excel", "xml", "binary", "markdown")
_CODECS = ("none", "gzip", "snappy", "lz4", "zstd", "zlib")
_NO_CODECS = ("lzo", "brotli")
_ARCHIVES = ("none", "zip", "tar", "tar_gz", "gz")
_VARIABLE = re.compile(r"\$\{(\w+)\}")
_NAME_PARTS = ("transactionId", "now", "uuid")  # variables of a file's name
_KEY = r"[kv]\d+"  # variables of a folder's name: keys and values of a partition
_SOURCE_CLASS = "headrace.connectors.files.source:FileSource"
_SINK_CLASS = "headrace.connectors.files.sink:FileSink"


@dataclass(frozen=True, slots=True)
class FolderOptions:
    """Where the files are."""

    path: str
    default_fs: str | None  # of HdfsFile: the file system of a path that names none
    site_path: str | None  # a file like hdfs-site.xml


@dataclass(frozen=True, slots=True, kw_only=True)
class FileSourceOptions:
    folder: FolderOptions
    format: str
    schema: TableSchema | None
    delimiter: str | None  # None: that of the format
    columns: tuple[str, ...]  # empty: all
    skip_lines: int
    name_pattern: str | None
    parses_partitions: bool
    date_format: str | None
    datetime_format: str | None
    time_format: str | None
    encoding: str


@dataclass(frozen=True, slots=True, kw_only=True)
class FileSinkOptions:
    folder: FolderOptions
    format: str
    delimiter: str | None  # None: that of the format
    row_delimiter: str
    header: bool
    codec: str
    encoding: str
    columns: tuple[str, ...]  # empty: all
    has_partitions: bool
    partition_by: tuple[str, ...]
    partition_expression: str
    keeps_partition_columns: bool
    name_expression: str | None  # None: the transaction's id
    name_time_format: str
    extension: str | None  # None: that of the format
    rows_per_file: int
    single_file: bool
    keeps_empty: bool
    save_modes: SaveModes


def filename_pattern_flaw(pattern: str) -> str | None:
    if "/" in pattern or "\\" in pattern:
        return "a file's name has no slash"
    return time_pattern_flaw(pattern)


def path_flaw(path: str) -> str | None:
    if not urlsplit(path).scheme and not path.startswith("/"):
        return "it must be absolute, since the worker has a folder of its own"
    return None


def _local_flaw(path: str) -> str | None:
    if urlsplit(path).scheme not in {"", "file"}:
        return "it is not local; use HdfsFile"
    return path_flaw(path)


def _name_flaw(expression: str) -> str | None:
    if "/" in expression or "\\" in expression:
        return "a file's name has no slash; folders are made by partition_by"
    unknown = set(_VARIABLE.findall(expression)) - set(_NAME_PARTS)
    if unknown:
        return f"unknown ${{{min(unknown)}}}; known are ${{transactionId}}, ${{now}}, ${{uuid}}"
    return None if expression else "it is empty"


def _folders_flaw(expression: str) -> str | None:
    unknown = [name for name in _VARIABLE.findall(expression) if not re.fullmatch(_KEY, name)]
    if unknown:
        return f"unknown ${{{unknown[0]}}}; known are ${{k0}}, ${{v0}}, ${{k1}}, …"
    return None if _VARIABLE.search(expression) else "it names no partition, e.g. by ${v0}"


def _regex_flaw(pattern: str) -> str | None:
    try:
        re.compile(pattern)
    except re.error as error:
        return f"it is no regular expression: {error}"
    return None


def _encoding_flaw(name: str) -> str | None:
    try:
        codecs.lookup(name)
    except LookupError:
        return "there is no such encoding"
    if "\n".encode(name) != b"\n":
        return "lines end in other bytes there; known are UTF-8 and those like ASCII, GBK, …"
    return None


def _format(*, default: str | None) -> Option:
    return Option(
        "file_format_type",
        Kind.STRING,
        default,
        required=default is None,
        choices=(*_FORMATS, *_NO_FORMATS),
        supported=_FORMATS,
        doc="the format of the files.",
    )


def _not_built(*names: str) -> tuple[Option, ...]:
    return tuple(Option(name, Kind.JSON, supported=()) for name in names)


_DELIMITER = Option(
    "field_delimiter",
    Kind.STRING,
    aliases=("delimiter",),
    doc="Of text and csv. Missing: `\\u0001` in text, `,` in csv. "
    "A source of text takes more than one letter as a regular expression.",
)
_CODEC = Option(
    "compress_codec",
    Kind.STRING,
    "none",
    choices=(*_CODECS, *_NO_CODECS),
    supported=_CODECS,
    unsupported="is not built: Spark has no such codec",
    doc="text, csv and json: none, gzip; parquet: none, snappy, gzip, lz4, zstd; "
    "orc: none, snappy, zlib, lz4, zstd. A source goes by the file's name and content.",
)
_ENCODING = Option(
    "encoding", Kind.STRING, "UTF-8", doc="Of text, csv and json.", flaw=_encoding_flaw
)

_SOURCE = (
    _format(default=None),
    Option(
        "schema",
        Kind.SCHEMA,
        vectors=False,
        doc="The columns; csv and json need it, in streaming mode parquet and orc, too.",
    ),
    _DELIMITER,
    Option("read_columns", Kind.LIST, doc="Missing: all."),
    Option(
        "skip_header_row_number",
        Kind.INT,
        0,
        minimum=0,
        doc="Lines at the top of each file; csv: 0 or 1, and a header in another order than "
        "`schema` stops the job. A text file is then read as one value, and must be smaller than "
        "2 GB.",
    ),
    Option("file_filter_pattern", Kind.STRING, doc="Of whole file names.", flaw=_regex_flaw),
    Option(
        "parse_partition_from_path",
        Kind.BOOL,
        default=True,
        doc="Folders like `k=v` are columns of text.",
    ),
    Option("date_format", Kind.STRING, flaw=time_pattern_flaw, doc="Missing: as ISO 8601."),
    Option("datetime_format", Kind.STRING, flaw=time_pattern_flaw, doc="Missing: as ISO 8601."),
    Option("time_format", Kind.STRING, flaw=time_pattern_flaw, doc="Missing: HH:mm:ss."),
    _CODEC,
    _ENCODING,
    Option("row_delimiter", Kind.STRING, idle="a source's lines end as they do in any text"),
    Option("archive_compress_codec", Kind.STRING, "none", choices=_ARCHIVES, supported=("none",)),
    *_not_built("tables_configs", "read_partitions", "null_format", "csv_use_header_line"),
    *_not_built("sync_mode", "enable_file_split", "quote_char", "escape_char"),
    *(
        Option(
            name,
            Kind.JSON,
            supported=(),
            unsupported="is not built; job.mode = STREAMING in env reads files as they arrive",
        )
        for name in ("discovery_mode", "scan_interval")
    ),
    *_not_built("sheet_name", "xml_row_tag", "xml_use_attr_format"),
    *common_options("source"),
)

_SINK = (
    _format(default="csv"),
    _DELIMITER,
    Option("row_delimiter", Kind.STRING, "\n", doc="Of text, csv and json."),
    Option("enable_header_write", Kind.BOOL, default=False, doc="Of text and csv."),
    _CODEC,
    _ENCODING,
    Option("sink_columns", Kind.LIST, doc="The columns to write. Missing: all."),
    Option("have_partition", Kind.BOOL, default=False, doc="Whether `partition_by` counts."),
    Option("partition_by", Kind.LIST),
    Option(
        "partition_dir_expression",
        Kind.STRING,
        "${k0}=${v0}",
        flaw=_folders_flaw,
        placeholders=(_KEY,),
        doc="The default stands for `k=v` of every key.",
    ),
    Option("is_partition_field_write_in_file", Kind.BOOL, default=False),
    Option(
        "custom_filename", Kind.BOOL, default=False, doc="Whether `file_name_expression` counts."
    ),
    Option(
        "file_name_expression",
        Kind.STRING,
        "${transactionId}",
        flaw=_name_flaw,
        placeholders=_NAME_PARTS,
        doc="Of `${transactionId}`, `${now}` (UTC), `${uuid}`. Without the first, a hash of it is "
        "added: no file is ever overwritten.",
    ),
    Option("filename_time_format", Kind.STRING, "yyyy.MM.dd", flaw=filename_pattern_flaw),
    Option("filename_extension", Kind.STRING, doc="Missing: that of the format."),
    Option("batch_size", Kind.INT, 1_000_000, minimum=1, doc="Rows of a file, at most."),
    Option(
        "single_file_mode", Kind.BOOL, default=False, doc="One file of each epoch and partition."
    ),
    Option("create_empty_file_when_no_data", Kind.BOOL, default=False),
    Option(
        "is_enable_transaction",
        Kind.BOOL,
        default=True,
        supported=(True,),
        unsupported="is not possible: commits are always exactly once",
    ),
    schema_save_mode("Of the folder. RECREATE_SCHEMA deletes its files, as DROP_DATA does."),
    data_save_mode(
        "Of the files in it that a reader sees. DROP_DATA deletes them, once, before the first "
        "row; folders stay.",
        custom=False,
    ),
    Option("tmp_path", Kind.STRING, idle="rows are staged below `path`, on its own file system"),
    Option("save_mode", Kind.STRING, idle="SeaTunnel does not read it either; see data_save_mode"),
    Option("parquet_avro_write_timestamp_as_int96", Kind.BOOL, default=False, supported=(False,)),
    *_not_built("sheet_name", "max_rows_in_memory", "xml_root_tag", "xml_row_tag"),
    *_not_built("csv_string_quote_mode", "schema_evolution_enabled"),
    *common_options("sink"),
)

_HADOOP = (
    Option(
        "fs.defaultFS",
        Kind.STRING,
        required=True,
        doc="the file system, e.g. `hdfs://namenode:8020`; a sink needs hdfs or file.",
    ),
    Option("hdfs_site_path", Kind.STRING, doc="A file like hdfs-site.xml, on the worker."),
    *(
        Option(
            name,
            Kind.STRING,
            supported=(),
            unsupported="is not built yet; start the worker as that user, with its ticket",
        )
        for name in ("remote_user", "kerberos_principal", "kerberos_keytab_path", "krb5_path")
    ),
)
_LOCAL_PATH = Option(
    "path", Kind.STRING, required=True, doc="a folder, absolute; or one file.", flaw=_local_flaw
)
_PATH = Option(
    "path", Kind.STRING, required=True, doc="a folder, absolute; or one file.", flaw=path_flaw
)


def streaming_flaw(options: Mapping[str, JsonValue]) -> str | None:
    """What is wrong with the options of a streaming source, or None.

    The folder may be empty when the job starts, with no file to take the columns from.
    """
    form = str(options["file_format_type"])
    if form not in _OWN_COLUMNS or options.get("schema"):
        return None
    return (
        f"in streaming mode {form} needs the option 'schema', since the folder may be empty when "
        "the job starts; add schema = { fields { … } }, or set job.mode = BATCH in env"
    )


def _folder_options(options: ResolvedOptions) -> FolderOptions:
    return FolderOptions(
        path=options.text("path"),
        default_fs=options.optional_text("fs.defaultFS"),
        site_path=options.optional_text("hdfs_site_path"),
    )


def _source_options(options: ResolvedOptions) -> FileSourceOptions:
    return FileSourceOptions(
        folder=_folder_options(options),
        format=options.text("file_format_type"),
        schema=options.schema("schema"),
        delimiter=options.optional_text("field_delimiter"),
        columns=options.texts("read_columns"),
        skip_lines=options.integer("skip_header_row_number"),
        name_pattern=options.optional_text("file_filter_pattern"),
        parses_partitions=options.flag("parse_partition_from_path"),
        date_format=options.optional_text("date_format"),
        datetime_format=options.optional_text("datetime_format"),
        time_format=options.optional_text("time_format"),
        encoding=options.text("encoding"),
    )


def _sink_options(options: ResolvedOptions) -> FileSinkOptions:
    custom_name = options.flag("custom_filename")
    return FileSinkOptions(
        folder=_folder_options(options),
        format=options.text("file_format_type"),
        delimiter=options.optional_text("field_delimiter"),
        row_delimiter=options.text("row_delimiter"),
        header=options.flag("enable_header_write"),
        codec=options.text("compress_codec"),
        encoding=options.text("encoding"),
        columns=options.texts("sink_columns"),
        has_partitions=options.flag("have_partition"),
        partition_by=options.texts("partition_by"),
        partition_expression=options.text("partition_dir_expression"),
        keeps_partition_columns=options.flag("is_partition_field_write_in_file"),
        name_expression=options.text("file_name_expression") if custom_name else None,
        name_time_format=options.text("filename_time_format"),
        extension=options.optional_text("filename_extension"),
        rows_per_file=options.integer("batch_size"),
        single_file=options.flag("single_file_mode"),
        keeps_empty=options.flag("create_empty_file_when_no_data"),
        save_modes=options.save_modes(),
    )


def _target_key(options: FileSinkOptions) -> TargetKey:
    path = urlsplit(options.folder.path)
    system = path if path.scheme else urlsplit(options.folder.default_fs or "file:")
    return ("files", system.scheme, system.netloc, *(part for part in path.path.split("/") if part))


def _source(name: str, *options: Option) -> Descriptor[FileSourceOptions]:
    return Descriptor(
        name=name,
        role="source",
        make=_SOURCE_CLASS,
        doc="Reads files. In streaming mode it reads what is there and then what arrives, each "
        "file once, five seconds after it was last written to "
        "(how-to/read-files-as-they-arrive.md).",
        options=OptionSet((*options, *_SOURCE)),
        read_options=_source_options,
        streaming_flaw=streaming_flaw,
        capabilities=Capabilities(
            guarantee=Guarantee.EXACTLY_ONCE,
            how="a slice lists its files with sizes and times of modification; one that has "
            "changed since is refused",
        ),
    )


def _sink(name: str, doc: str, *options: Option) -> Descriptor[FileSinkOptions]:
    return Descriptor(
        name=name,
        role="sink",
        make=_SINK_CLASS,
        doc=doc,
        options=OptionSet((*options, *_SINK)),
        read_options=_sink_options,
        target_key=_target_key,
        capabilities=Capabilities(
            guarantee=Guarantee.EXACTLY_ONCE,
            how="files are written below a hidden folder of the target; creating a manifest that "
            "must not exist yet is the commit, and anyone can finish its renames",
            save_modes=SAVE_MODES_WITHOUT_CUSTOM,
        ),
    )


LOCAL_FILE_SOURCE = _source("LocalFile", _LOCAL_PATH)
HDFS_FILE_SOURCE = _source("HdfsFile", _PATH, *_HADOOP)
LOCAL_FILE_SINK = _sink(
    "LocalFile", "Writes files to a folder of the worker's machine, exactly once.", _LOCAL_PATH
)
HDFS_FILE_SINK = _sink("HdfsFile", "Writes files to HDFS, exactly once.", _PATH, *_HADOOP)
DESCRIPTORS = (LOCAL_FILE_SOURCE, HDFS_FILE_SOURCE, LOCAL_FILE_SINK, HDFS_FILE_SINK)
