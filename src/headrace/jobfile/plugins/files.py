"""Declarations of the sources and sinks LocalFile and HdfsFile.

They share one set of options; HdfsFile has some more.

The patterns of dates and times are Java's, e.g. `yyyy.MM.dd`, restricted to the plain letters.
They are read here and not in the JVM, so that a wrong one is refused when the job file is read.
"""

from __future__ import annotations

import codecs
import re
from collections.abc import Mapping
from datetime import datetime
from urllib.parse import urlsplit

from pydantic import JsonValue

from headrace.jobfile.option_values import data_save_mode, schema_save_mode
from headrace.jobfile.options import Kind, Option, OptionSet, PluginDecl, common_options
from headrace.jobfile.syntax_tree import Role

_LETTERS = {
    "yyyy": "%Y",
    "uuuu": "%Y",
    "yy": "%y",
    "MM": "%m",
    "dd": "%d",
    "HH": "%H",
    "mm": "%M",
    "ss": "%S",
    "SSS": "%f",  # six digits; `_render_piece` cuts them
}
_PIECE = re.compile(
    r"'(?P<quoted>[^']*)'|(?P<letters>(?P<letter>[A-Za-z])(?P=letter)*)|(?P<other>.)"
)

_FORMATS = ("text", "csv", "json", "parquet", "orc")
_OWN_COLUMNS = frozenset({"parquet", "orc"})  # their files declare their columns
_NO_FORMATS = ("excel", "xml", "binary", "markdown")
_CODECS = ("none", "gzip", "snappy", "lz4", "zstd", "zlib")
_NO_CODECS = ("lzo", "brotli")
_ARCHIVES = ("none", "zip", "tar", "tar_gz", "gz")
_VARIABLE = re.compile(r"\$\{(\w+)\}")
_NAME_PARTS = ("transactionId", "now", "uuid")  # variables of a file's name
_KEY = r"[kv]\d+"  # variables of a folder's name: keys and values of a partition


def time_pattern_flaw(pattern: str) -> str | None:
    """What is wrong with a pattern of dates and times, or None."""
    for piece in _PIECE.finditer(pattern):
        letters = piece["letters"]
        if letters and letters not in _LETTERS:
            return f"{letters!r} is no part of a time; known are {', '.join(_LETTERS)}"
        if piece["other"] == "'":
            return "a quote is left open"
    return None


def filename_pattern_flaw(pattern: str) -> str | None:
    if "/" in pattern or "\\" in pattern:
        return "a file's name has no slash"
    return time_pattern_flaw(pattern)


def render_time(pattern: str, moment: datetime) -> str:
    """The moment as a pattern without flaw writes it."""
    return "".join(_render_piece(piece, moment) for piece in _PIECE.finditer(pattern))


def _render_piece(piece: re.Match[str], moment: datetime) -> str:
    if piece["quoted"] is not None:
        return piece["quoted"] or "'"
    if piece["letters"]:
        text = moment.strftime(_LETTERS[piece["letters"]])
        return text[:3] if piece["letters"] == "SSS" else text
    return piece["other"]


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


def _file_plugin(name: str, role: Role, doc: str, options: tuple[Option, ...]) -> PluginDecl:
    flaw = streaming_flaw if role == "source" else None
    return PluginDecl(
        name=name, role=role, doc=doc, options=OptionSet(options), streaming_flaw=flaw
    )


_READS = (
    "Reads files. In streaming mode it reads what is there and then what arrives, each file once, "
    "five seconds after it was last written to (how-to/read-files-as-they-arrive.md)."
)
LOCAL_FILE_SOURCE = _file_plugin("LocalFile", "source", _READS, (_LOCAL_PATH, *_SOURCE))
HDFS_FILE_SOURCE = _file_plugin("HdfsFile", "source", _READS, (_PATH, *_HADOOP, *_SOURCE))
LOCAL_FILE_SINK = _file_plugin(
    "LocalFile",
    "sink",
    "Writes files to a folder of the worker's machine, exactly once.",
    (_LOCAL_PATH, *_SINK),
)
HDFS_FILE_SINK = _file_plugin(
    "HdfsFile", "sink", "Writes files to HDFS, exactly once.", (_PATH, *_HADOOP, *_SINK)
)
