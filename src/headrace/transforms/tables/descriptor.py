"""Descriptors of the transforms that go by the names of tables.

A flow holds one table, and its name is the one that the job file wires it by: `plugin_output` of
whatever makes it, which may have parts, `database.schema.table`. Rows carry no name of their own
yet, so what only gives them another one has no effect, and says so.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import cast

from pydantic import JsonValue

from headrace.plugins.descriptor import Descriptor
from headrace.plugins.options import (
    Kind,
    Option,
    OptionSet,
    common_options,
    one_table_options,
)
from headrace.plugins.resolved_options import ResolvedOptions
from headrace.transforms.rename_rules import (
    RenameRules,
    no_rule_flaw,
    rename_options,
    rename_rules,
)

_COMMON = (*one_table_options(), *common_options("transform"))
_MODULE = "headrace.transforms.tables.transform"
_NO_NAMES = "rows carry no name of their table; the sink's own options name its table"
BUILT_METADATA = ("Database", "Table")
# SeaTunnel's other keys, each with the reason why it is refused.
_CDC = "comes from a change data capture source, and none is built yet"
_FILE = "comes from a file source, and is not built yet"
_OTHER_METADATA = {
    "RowKind": "is not built here; use the transform RowKindExtractor",
    **dict.fromkeys(
        ("EventTime", "Delay", "SourceTimestamp", "BinlogFile", "BinlogPos", "BinlogRow", "Gtid"),
        _CDC,
    ),
    **dict.fromkeys(
        ("FilePath", "FileCreateTime", "FileUpdateTime", "FileSize", "FileType"), _FILE
    ),
    "Partition": "comes from a source with partitions, and is not built yet",
}


@dataclass(frozen=True, slots=True)
class MetadataOptions:
    fields: Mapping[str, str]  # new fields by one of BUILT_METADATA


@dataclass(frozen=True, slots=True)
class TableFilterOptions:
    """Each pattern must match the whole part of a name; None: any part will do."""

    database: re.Pattern[str] | None
    schema: re.Pattern[str] | None
    table: re.Pattern[str] | None
    keeps_matches: bool


@dataclass(frozen=True, slots=True)
class TableMergeOptions:
    """The name of the merged table. It has no effect yet."""

    database: str | None
    schema: str | None
    table: str


@dataclass(frozen=True, slots=True)
class TableRenameOptions:
    """How a table is named anew. That has no effect yet."""

    rules: RenameRules


def _metadata_flaw(options: Mapping[str, JsonValue]) -> str | None:
    fields = cast("Mapping[str, str]", options["metadata_fields"])
    for key in fields:
        if (why := _OTHER_METADATA.get(key)) is not None:
            return f"metadata_fields: {key} {why}"
        if key not in BUILT_METADATA:
            known = ", ".join((*BUILT_METADATA, *_OTHER_METADATA))
            return f"metadata_fields: there is no {key!r}; SeaTunnel has {known}, in this case"
    if len({*fields.values()}) < len(fields):
        return "metadata_fields gives two fields the same name"
    return None if fields else "metadata_fields is empty; write {Table = name_of_the_field}"


def _filter_flaw(options: Mapping[str, JsonValue]) -> str | None:
    if any(name in options for name in ("database_pattern", "schema_pattern", "table_pattern")):
        return None
    return "nothing says which tables; give table_pattern, schema_pattern or database_pattern"


def _pattern_flaw(text: str) -> str | None:
    try:
        re.compile(text)
    except re.error as error:
        return f"it is no regular expression: {error}"
    return None


def _filter_options(options: ResolvedOptions) -> TableFilterOptions:
    def pattern(name: str) -> re.Pattern[str] | None:
        text = options.optional_text(name)
        return None if text is None else re.compile(text)

    return TableFilterOptions(
        database=pattern("database_pattern"),
        schema=pattern("schema_pattern"),
        table=pattern("table_pattern"),
        keeps_matches=options.text("pattern_mode") == "INCLUDE",
    )


def _pattern(part: str) -> Option:
    doc = f"A regular expression (Python's) that the whole name of the {part} matches."
    return Option(f"{part}_pattern", Kind.STRING, flaw=_pattern_flaw, doc=doc)


METADATA = Descriptor(
    name="Metadata",
    role="transform",
    make=f"{_MODULE}:MetadataTransform",
    doc="Adds fields that say where rows come from.",
    read_options=lambda options: MetadataOptions(options.properties("metadata_fields")),
    flaw=_metadata_flaw,
    options=OptionSet(
        (
            Option(
                "metadata_fields",
                Kind.MAP,
                required=True,
                doc="`{Table = new field, Database = new field}`: the last part of the name of "
                "the table that it reads, and the first one, null when there is but one part. "
                "SeaTunnel's other keys are not built.",
            ),
            *_COMMON,
        )
    ),
)

TABLE_FILTER = Descriptor(
    name="TableFilter",
    role="transform",
    make=f"{_MODULE}:TableFilterTransform",
    doc="Keeps the rows of some of the tables that it reads, by their names; their fields must be "
    "the same.",
    read_options=_filter_options,
    flaw=_filter_flaw,
    options=OptionSet(
        (
            _pattern("database"),
            _pattern("schema"),
            _pattern("table"),
            Option(
                "pattern_mode",
                Kind.STRING,
                "INCLUDE",
                choices=("INCLUDE", "EXCLUDE"),
                doc="Whether tables that match all patterns are kept, or left out.",
            ),
            *_COMMON,
        )
    ),
)

TABLE_MERGE = Descriptor(
    name="TableMerge",
    role="transform",
    make=f"{_MODULE}:TableMergeTransform",
    doc="Makes one table of those that it reads; their fields must be the same.",
    read_options=lambda options: TableMergeOptions(
        options.optional_text("database"), options.optional_text("schema"), options.text("table")
    ),
    options=OptionSet(
        (
            Option("database", Kind.STRING, idle=_NO_NAMES),
            Option("schema", Kind.STRING, idle=_NO_NAMES),
            Option("table", Kind.STRING, required=True, idle=_NO_NAMES),
            *_COMMON,
        )
    ),
)

TABLE_RENAME = Descriptor(
    name="TableRename",
    role="transform",
    make=f"{_MODULE}:TableRenameTransform",
    doc="Passes rows on as they are: names of tables don't reach a sink yet.",
    read_options=lambda options: TableRenameOptions(rename_rules(options)),
    flaw=no_rule_flaw,
    options=OptionSet((*rename_options("the table", idle=_NO_NAMES), *_COMMON)),
)

DESCRIPTORS = (METADATA, TABLE_FILTER, TABLE_MERGE, TABLE_RENAME)
