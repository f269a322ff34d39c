"""The options of the file sinks, as a job file has them and as the sink takes them."""

from __future__ import annotations

import re
from dataclasses import dataclass

from headrace.connectors.files.options import (
    ENCODING,
    FolderOptions,
    codec_option,
    delimiter_option,
    filename_pattern_flaw,
    folder_options,
    format_option,
    not_built,
    tag_flaw,
)
from headrace.plugins.options import Kind, Option, common_options
from headrace.plugins.resolved_options import ResolvedOptions
from headrace.plugins.save_modes import SaveModes, data_save_mode, schema_save_mode

SHEET_ROWS_MAX = 1_048_576  # excel's own limit, with the header
_VARIABLE = re.compile(r"\$\{(\w+)\}")
_NAME_PARTS = ("transactionId", "now", "uuid")  # variables of a file's name
_KEY = r"[kv]\d+"  # variables of a folder's name: keys and values of a partition
PATH_DOC = "the folder to write to, absolute; it is made when it is not there."


@dataclass(frozen=True, slots=True, kw_only=True)
class FileSinkOptions:
    folder: FolderOptions
    format: str
    delimiter: str | None  # None: that of the format
    row_delimiter: str
    header: bool
    quote_mode: str
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
    int96: bool | None  # None: as Spark is set
    sheet_name: str
    sheet_rows_max: int
    root_tag: str
    row_tag: str
    uses_attributes: bool
    save_modes: SaveModes


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


def _sheet_flaw(name: str) -> str | None:
    if not 1 <= len(name) <= 31 or re.search(r"[\[\]:*?/\\]", name):
        return "excel allows 1 to 31 letters, and none of []:*?/\\"
    return None


SINK = (
    format_option(default="csv", not_built=("canal_json", "debezium_json", "maxwell_json")),
    delimiter_option(
        "Between the fields of text and csv, and of excel between the fields of a row inside of a "
        "cell. Missing: `\\u0001` in text, `,` in csv, `;` in excel."
    ),
    Option("row_delimiter", Kind.STRING, "\n", doc="Between the lines of text, csv and json."),
    Option(
        "enable_header_write",
        Kind.BOOL,
        default=False,
        doc="Whether each file of text and csv begins with the names of its columns; excel always "
        "does.",
    ),
    Option(
        "csv_string_quote_mode",
        Kind.STRING,
        "MINIMAL",
        choices=("ALL", "MINIMAL", "NONE"),
        doc="`ALL`: every value of csv is quoted; `MINIMAL`: those that hold a delimiter, a quote "
        "or a line end; `NONE`: none, and such a value stops the job.",
    ),
    codec_option(
        "text, csv and json: none, gzip, lzo; parquet: none, snappy, gzip, lz4, zstd; "
        "orc: none, snappy, zlib, lz4, zstd, lzo; xml: none, gzip; excel and binary: none."
    ),
    ENCODING,
    Option("sink_columns", Kind.LIST, doc="The columns to write, in this order. Missing: all."),
    Option("have_partition", Kind.BOOL, default=False, doc="Whether `partition_by` counts."),
    Option(
        "partition_by", Kind.LIST, doc="Columns: rows with the same values are in the same folder."
    ),
    Option(
        "partition_dir_expression",
        Kind.STRING,
        "${k0}=${v0}",
        flaw=_folders_flaw,
        placeholders=(_KEY,),
        doc="The names of these folders. The default stands for `k=v` of every key.",
    ),
    Option(
        "is_partition_field_write_in_file",
        Kind.BOOL,
        default=False,
        doc="Whether the columns of `partition_by` are in the files, too.",
    ),
    Option(
        "custom_filename", Kind.BOOL, default=False, doc="Whether `file_name_expression` counts."
    ),
    Option(
        "file_name_expression",
        Kind.STRING,
        "${transactionId}",
        flaw=_name_flaw,
        placeholders=_NAME_PARTS,
        doc="The names of files, of `${transactionId}`, `${now}` (UTC), `${uuid}`. Without the "
        "first, a hash of it is added: no file is ever overwritten. A binary file keeps its own.",
    ),
    Option(
        "filename_time_format",
        Kind.STRING,
        "yyyy.MM.dd",
        flaw=filename_pattern_flaw,
        doc="How `${now}` is written.",
    ),
    Option(
        "filename_extension",
        Kind.STRING,
        doc="How names of files end. Missing: as the format has it.",
    ),
    Option("batch_size", Kind.INT, 1_000_000, minimum=1, doc="Rows of a file, at most."),
    Option(
        "single_file_mode",
        Kind.BOOL,
        default=False,
        doc="One file of each epoch and partition; `batch_size` does not count then.",
    ),
    Option(
        "create_empty_file_when_no_data",
        Kind.BOOL,
        default=False,
        doc="Whether an epoch without rows leaves a file without rows.",
    ),
    Option("sheet_name", Kind.STRING, "Sheet0", doc="Of excel: the first sheet.", flaw=_sheet_flaw),
    Option(
        "sheet_max_rows",
        Kind.INT,
        SHEET_ROWS_MAX,
        minimum=2,
        maximum=SHEET_ROWS_MAX,
        doc="Rows of a sheet of excel, at most, with its header; then a further sheet begins.",
    ),
    Option("max_rows_in_memory", Kind.INT, idle="rows of excel go to the file as they come"),
    Option("xml_root_tag", Kind.STRING, "RECORDS", doc="The root element of xml.", flaw=tag_flaw),
    Option("xml_row_tag", Kind.STRING, "RECORD", doc="The element of a row of xml.", flaw=tag_flaw),
    Option(
        "xml_use_attr_format",
        Kind.BOOL,
        default=False,
        doc="Whether values are attributes of the row's element. `false`: elements in it.",
    ),
    Option(
        "parquet_avro_write_timestamp_as_int96",
        Kind.BOOL,
        doc="Whether times of parquet are INT96, as older readers want them, in UTC; `false`: "
        "INT64. Missing: those with a zone are as `spark.sql.parquet.outputTimestampType` says.",
    ),
    Option(
        "is_enable_transaction",
        Kind.BOOL,
        default=True,
        supported=(True,),
        unsupported="is not possible: commits are always exactly once",
        doc="Rows are seen once, or not at all.",
    ),
    schema_save_mode("Of the folder. RECREATE_SCHEMA deletes its files, as DROP_DATA does."),
    data_save_mode(
        "Of the files in it that a reader sees. DROP_DATA deletes them, once, before the first "
        "row; folders stay.",
        custom=False,
    ),
    Option("tmp_path", Kind.STRING, idle="rows are staged below `path`, on its own file system"),
    Option("save_mode", Kind.STRING, idle="SeaTunnel does not read it either; see data_save_mode"),
    Option(
        "schema_evolution_enabled",
        Kind.BOOL,
        default=False,
        supported=(False,),
        doc="Every file has the columns of the rows in it.",
    ),
    *not_built("parquet_avro_write_fixed_as_int96", "merge_update_event"),
    *common_options("sink"),
)


def read_sink_options(options: ResolvedOptions) -> FileSinkOptions:
    custom_name = options.flag("custom_filename")
    int96 = "parquet_avro_write_timestamp_as_int96"
    return FileSinkOptions(
        folder=folder_options(options),
        format=options.text("file_format_type"),
        delimiter=options.optional_text("field_delimiter"),
        row_delimiter=options.text("row_delimiter"),
        header=options.flag("enable_header_write"),
        quote_mode=options.text("csv_string_quote_mode"),
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
        int96=options.flag(int96) if options.value(int96) is not None else None,
        sheet_name=options.text("sheet_name"),
        sheet_rows_max=options.integer("sheet_max_rows"),
        root_tag=options.text("xml_root_tag"),
        row_tag=options.text("xml_row_tag"),
        uses_attributes=options.flag("xml_use_attr_format"),
        save_modes=options.save_modes(),
    )
