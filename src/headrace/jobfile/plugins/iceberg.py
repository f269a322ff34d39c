"""Iceberg, as a sink. Without a catalog of its own it writes to the embedded warehouse."""

from __future__ import annotations

from headrace.jobfile.options import Kind, Option, Options, PluginDecl, common_options

_SCHEMA_MODES = (
    "RECREATE_SCHEMA",
    "CREATE_SCHEMA_WHEN_NOT_EXIST",
    "ERROR_WHEN_SCHEMA_NOT_EXIST",
    "IGNORE",
)
_FORBIDDEN = frozenset("/\\'\"`")
_DATA_MODES = ("DROP_DATA", "APPEND_DATA", "CUSTOM_PROCESSING", "ERROR_WHEN_DATA_EXISTS")


def name_flaw(name: str) -> str | None:
    """What is wrong with a name that becomes a folder, and part of an identifier."""
    if not all(name.split(".")):
        return "it has an empty part; write NAME, or NAME.NAME"
    wrong = next((c for c in name if c in _FORBIDDEN or not c.isprintable()), None)
    return None if wrong is None else f"{wrong!r} can't be part of a name"


ICEBERG_SINK = PluginDecl(
    name="Iceberg",
    role="sink",
    doc="Appends to an Iceberg table, exactly once.",
    options=Options(
        (
            Option(
                "catalog_name", Kind.STRING, doc="Missing: the embedded catalog.", flaw=name_flaw
            ),
            Option("namespace", Kind.STRING, "default", flaw=name_flaw),
            Option(
                "table",
                Kind.STRING,
                required=True,
                doc="the name of the table to write to.",
                flaw=name_flaw,
            ),
            Option("iceberg.catalog.config", Kind.MAP, doc="type, warehouse, uri, …"),
            Option("hadoop.config", Kind.MAP),
            Option("iceberg.hadoop-conf-path", Kind.STRING),
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
            ),
            Option("iceberg.table.commit-branch", Kind.STRING),
            Option(
                "schema_save_mode",
                Kind.STRING,
                "CREATE_SCHEMA_WHEN_NOT_EXIST",
                choices=_SCHEMA_MODES,
                supported=_SCHEMA_MODES[1:],
            ),
            Option(
                "data_save_mode",
                Kind.STRING,
                "APPEND_DATA",
                choices=_DATA_MODES,
                supported=("APPEND_DATA",),
            ),
            Option("custom_sql", Kind.STRING, supported=()),
            *common_options("sink"),
        )
    ),
)
