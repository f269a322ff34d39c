"""The descriptors of ToySqlite. Coordinators read them, too, so nothing here imports Spark."""

from __future__ import annotations

import re
from dataclasses import dataclass

from headrace.errors import Refused
from headrace.plugins.descriptor import Capabilities, Descriptor, Guarantee, TargetKey
from headrace.plugins.options import Kind, Option, OptionSet, common_options
from headrace.plugins.resolved_options import ResolvedOptions
from headrace.plugins.schema import TableSchema

_NAME = re.compile(r"[A-Za-z_]\w*", re.ASCII)


@dataclass(frozen=True, slots=True)
class ToyTable:
    """A table of a SQLite file."""

    path: str
    name: str


@dataclass(frozen=True, slots=True)
class ToySourceOptions:
    table: ToyTable
    schema: TableSchema


@dataclass(frozen=True, slots=True)
class ToySinkOptions:
    table: ToyTable


def _path_flaw(path: str) -> str | None:
    return None if path.startswith("/") else "it must be absolute"


def _name_flaw(name: str) -> str | None:
    return None if _NAME.fullmatch(name) else "a table's name has letters, digits and _ only"


_TABLE = (
    Option("path", Kind.STRING, required=True, flaw=_path_flaw, doc="the file of the database."),
    Option("table", Kind.STRING, required=True, flaw=_name_flaw, doc="the name of the table."),
)


def _table(options: ResolvedOptions) -> ToyTable:
    return ToyTable(options.text("path"), options.text("table"))


def _source_options(options: ResolvedOptions) -> ToySourceOptions:
    schema = options.schema("schema")
    if schema is None:
        raise Refused("ToySqlite needs the option 'schema'")
    return ToySourceOptions(_table(options), schema)


def _sink_options(options: ResolvedOptions) -> ToySinkOptions:
    return ToySinkOptions(_table(options))


def _target_key(options: ToySinkOptions) -> TargetKey:
    return ("sqlite", options.table.path, options.table.name)


SOURCE = Descriptor(
    name="ToySqlite",
    role="source",
    make="headrace_connector_toy.source:ToySqliteSource",
    doc="Reads a table of a SQLite file; in streaming mode, what is added to it.",
    options=OptionSet(
        (
            *_TABLE,
            Option("schema", Kind.SCHEMA, required=True, vectors=False, doc="the columns to read."),
            *common_options("source"),
        )
    ),
    read_options=_source_options,
    capabilities=Capabilities(
        guarantee=Guarantee.EXACTLY_ONCE,
        how="a slice is a range of rowids and a digest; one whose rows were changed is refused",
    ),
)

SINK = Descriptor(
    name="ToySqlite",
    role="sink",
    make="headrace_connector_toy.sink:ToySqliteSink",
    doc="Appends to a table of a SQLite file, exactly once.",
    options=OptionSet((*_TABLE, *common_options("sink"))),
    read_options=_sink_options,
    target_key=_target_key,
    capabilities=Capabilities(
        guarantee=Guarantee.EXACTLY_ONCE,
        how="one transaction inserts the token, whose primary key refuses a second one, and moves "
        "the staged rows",
    ),
)

DESCRIPTORS = (SOURCE, SINK)
