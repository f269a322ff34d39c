"""Declarations of the Iceberg source and sink.

Without a catalog of its own, a table is in the embedded warehouse.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from pydantic import JsonValue

from headrace.jobfile.option_values import data_save_mode, schema_save_mode
from headrace.jobfile.options import Kind, Option, OptionSet, PluginDecl, common_options
from headrace.jobfile.syntax_tree import RESERVED

_FORBIDDEN = frozenset("/\\'\"`")
_STRATEGIES = (
    "FROM_LATEST_SNAPSHOT",
    "FROM_EARLIEST_SNAPSHOT",
    "FROM_SNAPSHOT_ID",
    "FROM_SNAPSHOT_TIMESTAMP",
    "TABLE_SCAN_THEN_INCREMENTAL",
)
_STARTS = {  # by strategy, the option that it needs
    "FROM_SNAPSHOT_ID": "start_snapshot_id",
    "FROM_SNAPSHOT_TIMESTAMP": "start_snapshot_timestamp",
}
_NO_STATEMENTS = (
    "is not possible: a statement of your own can't be made to happen exactly once in Iceberg; "
    "use data_save_mode = DROP_DATA, or the Jdbc sink"
)
_BATCH_ONLY = ("end_snapshot_id", "use_snapshot_id", "use_snapshot_timestamp")


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


def mode_flaw(options: Mapping[str, JsonValue], *, streaming: bool) -> str | None:
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


ICEBERG_SOURCE = PluginDecl(
    name="Iceberg",
    role="source",
    doc="Reads a snapshot of an Iceberg table; in streaming mode, what is appended to it.",
    flaw=source_flaw,
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
                "FROM_LATEST_SNAPSHOT",
                choices=_STRATEGIES,
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

ICEBERG_SINK = PluginDecl(
    name="Iceberg",
    role="sink",
    doc="Appends to an Iceberg table, exactly once.",
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
