"""Descriptors of the Iceberg source and sink.

Without a catalog of its own, a table is in the embedded warehouse.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum

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
from headrace.plugins.syntax_tree import RESERVED

_FORBIDDEN = frozenset("/\\'\"`")


class Strategy(StrEnum):
    """Where a streaming job begins."""

    LATEST = "FROM_LATEST_SNAPSHOT"
    EARLIEST = "FROM_EARLIEST_SNAPSHOT"
    SNAPSHOT = "FROM_SNAPSHOT_ID"
    TIMESTAMP = "FROM_SNAPSHOT_TIMESTAMP"
    TABLE = "TABLE_SCAN_THEN_INCREMENTAL"


_STARTS: Mapping[str, str] = {  # by strategy, the option that it needs
    Strategy.SNAPSHOT: "start_snapshot_id",
    Strategy.TIMESTAMP: "start_snapshot_timestamp",
}
_NO_STATEMENTS = (
    "is not possible: a statement of your own can't be made to happen exactly once in Iceberg; "
    "use data_save_mode = DROP_DATA, or the Jdbc sink"
)
_BATCH_ONLY = ("end_snapshot_id", "use_snapshot_id", "use_snapshot_timestamp")


@dataclass(frozen=True, slots=True)
class IcebergTableOptions:
    """Which table of which catalog."""

    catalog_name: str | None
    namespace: str
    table: str
    # Without catalog_config it is the embedded catalog. Both may hold passwords.
    catalog_config: Mapping[str, str] = field(repr=False)
    hadoop_config: Mapping[str, str] = field(repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class IcebergSourceOptions:
    table: IcebergTableOptions
    schema: TableSchema | None  # the columns to read; None: all
    case_sensitive: bool
    where: str | None
    snapshot: int | None
    at_ms: int | None
    start_snapshot: int | None
    end_snapshot: int | None
    start_ms: int | None
    strategy: Strategy

    def flaw(self, *, streaming: bool) -> str | None:
        """What is wrong with these options in the job's mode, or None."""
        given: Mapping[str, JsonValue] = {
            "use_snapshot_id": self.snapshot,
            "use_snapshot_timestamp": self.at_ms,
            "start_snapshot_id": self.start_snapshot,
            "end_snapshot_id": self.end_snapshot,
            "start_snapshot_timestamp": self.start_ms,
            "stream_scan_strategy": self.strategy.value,
        }
        return source_flaw(given) or _mode_flaw(given, streaming=streaming)


@dataclass(frozen=True, slots=True, kw_only=True)
class IcebergSinkOptions:
    table: IcebergTableOptions
    case_sensitive: bool
    write_properties: Mapping[str, str]
    table_properties: Mapping[str, str]
    primary_keys: tuple[str, ...]
    partition_keys: tuple[str, ...]
    save_modes: SaveModes


def name_flaw(name: str) -> str | None:
    """What is wrong with a name that becomes a folder and a part of an identifier, or None."""
    if not all(name.split(".")):
        return "it has an empty part; write NAME, or NAME.NAME"
    wrong = next((c for c in name if c in _FORBIDDEN or not c.isprintable()), None)
    return None if wrong is None else f"{wrong!r} can't be part of a name"


def source_flaw(options: Mapping[str, JsonValue]) -> str | None:
    """What is wrong with the options that say what is read, in batch and in streaming mode."""
    single = [name for name in _BATCH_ONLY[1:] if options.get(name) is not None]
    ranged = [name for name in ("start_snapshot_id", "end_snapshot_id") if options.get(name)]
    if len(single) > 1 or (single and ranged):
        return f"{(single + ranged)[0]!r} and {(single + ranged)[1]!r} exclude each other; give one"
    strategy = str(options.get("stream_scan_strategy"))
    needed = _STARTS.get(strategy)
    if needed is not None and options.get(needed) is None:
        return f"stream_scan_strategy = {strategy} needs the option {needed!r}"
    return None


def _mode_flaw(options: Mapping[str, JsonValue], *, streaming: bool) -> str | None:
    """What is wrong with options that have no meaning in the job's mode, or None."""
    if not streaming:
        if options.get("start_snapshot_timestamp") is not None:
            return "'start_snapshot_timestamp' is for job.mode = STREAMING; leave it out"
        return None
    needed = _STARTS.get(str(options.get("stream_scan_strategy")))
    for name in (*_STARTS.values(), *_BATCH_ONLY):
        if name != needed and options.get(name) is not None:
            fits = [strategy for strategy, start in _STARTS.items() if start == name]
            way = f"set stream_scan_strategy = {fits[0]}, or leave it out" if fits else ""
            return f"{name!r} is not for a streaming job that begins so; {way or 'leave it out'}"
    return None


def _table(doc: str, placeholders: tuple[str, ...] = ()) -> tuple[Option, ...]:
    return (
        Option("catalog_name", Kind.STRING, doc="Missing: the embedded catalog.", flaw=name_flaw),
        Option("namespace", Kind.STRING, "default", flaw=name_flaw, placeholders=placeholders),
        Option(
            "table",
            Kind.STRING,
            required=True,
            doc=doc,
            flaw=name_flaw,
            placeholders=placeholders,
        ),
        Option("iceberg.catalog.config", Kind.MAP, doc="type, warehouse, uri, …"),
        Option("hadoop.config", Kind.MAP),
        Option("iceberg.hadoop-conf-path", Kind.STRING, supported=()),
    )


def _table_options(options: ResolvedOptions) -> IcebergTableOptions:
    return IcebergTableOptions(
        catalog_name=options.optional_text("catalog_name"),
        namespace=options.text("namespace"),
        table=options.text("table"),
        catalog_config=options.properties("iceberg.catalog.config"),
        hadoop_config=options.properties("hadoop.config"),
    )


def _source_options(options: ResolvedOptions) -> IcebergSourceOptions:
    return IcebergSourceOptions(
        table=_table_options(options),
        schema=options.schema("schema"),
        case_sensitive=options.flag("case_sensitive"),
        where=options.optional_text("where_clause"),
        snapshot=options.optional_integer("use_snapshot_id"),
        at_ms=options.optional_integer("use_snapshot_timestamp"),
        start_snapshot=options.optional_integer("start_snapshot_id"),
        end_snapshot=options.optional_integer("end_snapshot_id"),
        start_ms=options.optional_integer("start_snapshot_timestamp"),
        strategy=Strategy(options.text("stream_scan_strategy")),
    )


def _sink_options(options: ResolvedOptions) -> IcebergSinkOptions:
    return IcebergSinkOptions(
        table=_table_options(options),
        case_sensitive=options.flag("case_sensitive"),
        write_properties=options.properties("iceberg.table.write-props"),
        table_properties=options.properties("iceberg.table.auto-create-props"),
        primary_keys=_split_keys(options.texts("iceberg.table.primary-keys")),
        partition_keys=_split_keys(options.texts("iceberg.table.partition-keys")),
        save_modes=options.save_modes(),
    )


def _split_keys(items: tuple[str, ...]) -> tuple[str, ...]:
    """The keys in a list; commas in brackets don't separate, as in `bucket(id, 16)`."""
    parts, depth = [""], 0
    for character in ",".join(items):
        depth += (character == "(") - (character == ")")
        if character == "," and depth == 0:
            parts.append("")
        else:
            parts[-1] += character
    return tuple(part.strip() for part in parts if part.strip())


def _target_key(options: IcebergSinkOptions) -> TargetKey:
    table = options.table
    config = json.dumps(dict(table.catalog_config), sort_keys=True)
    return ("table", table.catalog_name or "", config, table.namespace, table.table)


ICEBERG_SOURCE = Descriptor(
    name="Iceberg",
    role="source",
    make="headrace.connectors.iceberg.source:IcebergSource",
    doc="Reads a snapshot of an Iceberg table; in streaming mode, what is appended to it.",
    read_options=_source_options,
    flaw=source_flaw,
    capabilities=Capabilities(
        guarantee=Guarantee.EXACTLY_ONCE,
        how="a slice names snapshots, which never change, and the schema of its columns; one that "
        "was expired is refused",
    ),
    options=OptionSet(
        (
            *_table("the name of the table to read."),
            Option(
                "table_list",
                Kind.JSON,
                supported=(),
                unsupported="is not built yet; write an Iceberg block for each table",
            ),
            Option(
                "schema",
                Kind.SCHEMA,
                vectors=False,
                doc="The columns to read, in their order. Missing: all.",
            ),
            Option("case_sensitive", Kind.BOOL, default=False, doc="Of the names in `schema`."),
            Option("where_clause", Kind.STRING, doc="Which rows, e.g. `id > 100`."),
            Option(
                "query",
                Kind.STRING,
                supported=(),
                unsupported="is not built; use 'where_clause' and 'schema', or a Sql transform",
            ),
            Option("use_snapshot_id", Kind.INT, doc="Batch. Missing: the current snapshot."),
            Option("use_snapshot_timestamp", Kind.INT, doc="Batch: current at that time, in ms."),
            Option(
                "start_snapshot_id",
                Kind.INT,
                doc="Batch: what was appended behind it. Streaming: where FROM_SNAPSHOT_ID "
                "begins, itself included.",
            ),
            Option(
                "end_snapshot_id", Kind.INT, doc="Batch: what was appended up to it, inclusive."
            ),
            Option(
                "start_snapshot_timestamp",
                Kind.INT,
                doc="Streaming: where FROM_SNAPSHOT_TIMESTAMP begins, in ms.",
            ),
            Option(
                "stream_scan_strategy",
                Kind.STRING,
                Strategy.LATEST.value,
                choices=tuple(strategy.value for strategy in Strategy),
                doc="Streaming: where to begin; the named snapshot is read, too.",
            ),
            Option(
                "increment.scan-interval",
                Kind.INT,
                2000,
                minimum=1,
                idle="the table is looked at whenever an epoch is due; see checkpoint.interval",
            ),
            *common_options("source"),
        )
    ),
)

ICEBERG_SINK = Descriptor(
    name="Iceberg",
    role="sink",
    make="headrace.connectors.iceberg.sink:IcebergSink",
    doc="Appends to an Iceberg table, exactly once.",
    read_options=_sink_options,
    target_key=_target_key,
    capabilities=Capabilities(
        guarantee=Guarantee.EXACTLY_ONCE,
        how="files are written without a commit; one Iceberg transaction appends them, and its "
        "validator refuses a token that was spent",
        save_modes=SAVE_MODES_WITHOUT_CUSTOM,
    ),
    options=OptionSet(
        (
            *_table("the name of the table to write to.", tuple(RESERVED)),
            Option("case_sensitive", Kind.BOOL, default=False),
            Option("iceberg.table.write-props", Kind.MAP, doc="Options of the writer."),
            Option("iceberg.table.auto-create-props", Kind.MAP, doc="Table properties."),
            Option(
                "iceberg.table.schema-evolution-enabled",
                Kind.BOOL,
                default=False,
                supported=(False,),
            ),
            Option("iceberg.table.primary-keys", Kind.LIST, doc="Identifier columns."),
            Option("iceberg.table.partition-keys", Kind.LIST),
            Option(
                "iceberg.table.upsert-mode-enabled",
                Kind.BOOL,
                default=False,
                supported=(False,),
                unsupported="is not built yet: rows are appended, and upserts come later; "
                "leave it out",
            ),
            Option("iceberg.table.commit-branch", Kind.STRING, supported=()),
            schema_save_mode(
                "RECREATE_SCHEMA gives the table the columns of the rows to come, and drops what "
                "is in it, once, before the first row."
            ),
            replace(
                data_save_mode("DROP_DATA deletes all rows, once, before the first.", custom=False),
                unsupported=_NO_STATEMENTS,
            ),
            Option("custom_sql", Kind.STRING, supported=(), unsupported=_NO_STATEMENTS),
            *common_options("sink"),
        )
    ),
)
DESCRIPTORS = (ICEBERG_SOURCE, ICEBERG_SINK)
