"""The descriptor of FakeSource, which makes up rows from a schema, for tests and first steps."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import cast

from pydantic import JsonValue

from headrace.errors import Refused
from headrace.model.text import hint
from headrace.plugins.descriptor import Capabilities, Descriptor, Guarantee
from headrace.plugins.option_values import convert
from headrace.plugins.options import (
    PARALLELISM_MAX,
    Kind,
    Option,
    OptionSet,
    common_options,
    given_options,
    judge_unknown,
    note_idle,
)
from headrace.plugins.problems import Problems
from headrace.plugins.resolved_options import ResolvedOptions
from headrace.plugins.row_kinds import ALL_KINDS, INSERT_ONLY, RowFlow, RowKind, joined
from headrace.plugins.schema import ColumnType, TableSchema
from headrace.plugins.syntax_tree import (
    Array,
    Node,
    Note,
    Object,
    Problem,
    describe,
    from_json,
    ignore_note,
)

ROWS_MAX = (2**63 - 1) // PARALLELISM_MAX  # of one reader: a row number must fit into 64 bits
SPLITS_MAX = 10_000  # of one reader
READ_INTERVAL_MAX_MS = 24 * 3600 * 1000

_MODES = ("RANGE", "TEMPLATE")
# By type: the kind of its values, and their upper limit, which is exclusive.
_NUMBERS: tuple[tuple[str, Kind, float], ...] = (
    ("tinyint", Kind.INT, 2**7 - 1),
    ("smallint", Kind.INT, 2**15 - 1),
    ("int", Kind.INT, 2**31 - 1),
    ("bigint", Kind.INT, 2**63 - 1),
    ("float", Kind.FLOAT, 3.4028234663852886e38),
    ("double", Kind.FLOAT, 1.7976931348623157e308),
)
# By part of a date or time: the least and the greatest value of its templates.
_PARTS: tuple[tuple[str, int, int], ...] = (
    ("date.year", 1, 9999),
    ("date.month", 1, 12),
    ("date.day", 1, 31),
    ("time.hour", 0, 23),
    ("time.minute", 0, 59),
    ("time.second", 0, 59),
)


def _number_options(name: str, kind: Kind, top: float) -> tuple[Option, ...]:
    return (
        Option(f"{name}.fake.mode", Kind.STRING, "RANGE", choices=_MODES),
        Option(f"{name}.template", Kind.LIST, items=kind, doc="Values to choose from."),
        Option(f"{name}.min", kind, minimum=0, maximum=top),
        Option(f"{name}.max", kind, minimum=0, maximum=top, doc="Exclusive."),
    )


def _size(name: str, default: int) -> Option:
    return Option(name, Kind.INT, default, minimum=0)


@dataclass(frozen=True, slots=True)
class NumberRange:
    """The limits of the numbers of one type; None where none is given."""

    low: float | None
    high: float | None  # exclusive


@dataclass(frozen=True, slots=True, kw_only=True)
class FakeSourceOptions:
    schema: TableSchema
    rows: tuple[JsonValue, ...] | None  # the fields of each given row; None: rows are made up
    kinds: tuple[RowKind, ...] | None  # of each given row; None: all rows are inserted
    rows_per_reader: int
    splits: int
    pause_ms: int  # after each split
    map_size: int
    array_size: int
    bytes_length: int
    string_length: int
    ranges: Mapping[str, NumberRange]  # by type
    templates: Mapping[str, tuple[JsonValue, ...]]  # by type, or by part of a date or time
    auto_increment: bool
    auto_increment_start: int


@dataclass(frozen=True, slots=True)
class FakeTablesOptions:
    tables: Mapping[str, FakeSourceOptions]  # at least two, by table path


def _source_options(options: ResolvedOptions) -> FakeSourceOptions | FakeTablesOptions:
    configs = options.value("tables_configs")
    if configs is None:
        return _table_options(options)
    tables = {path: _table_options(table) for path, table in _tables(configs).items()}
    return FakeTablesOptions(tables) if len(tables) > 1 else next(iter(tables.values()))


def _table_options(options: ResolvedOptions) -> FakeSourceOptions:
    schema = options.schema("schema")
    if schema is None:
        raise Refused("FakeSource needs the option 'schema'")
    given = _given_rows(options.value("rows"))
    kinds = None if given is None else tuple(row.kind for row in given)
    if kinds is not None and RowFlow(frozenset(kinds)).is_plain:
        kinds = None
    templated = ("string", *(name for name, _, _ in (*_NUMBERS, *_PARTS)))
    return FakeSourceOptions(
        schema=schema,
        rows=None if given is None else tuple(row.fields for row in given),
        kinds=kinds,
        rows_per_reader=options.integer("row.num"),
        splits=options.integer("split.num"),
        pause_ms=options.integer("split.read-interval"),
        map_size=options.integer("map.size"),
        array_size=options.integer("array.size"),
        bytes_length=options.integer("bytes.length"),
        string_length=options.integer("string.length"),
        ranges={
            name: NumberRange(
                options.optional_number(f"{name}.min"), options.optional_number(f"{name}.max")
            )
            for name, _, _ in _NUMBERS
        },
        templates={name: tuple(options.items(f"{name}.template")) for name in templated},
        auto_increment=options.flag("auto.increment.enabled"),
        auto_increment_start=options.integer("auto.increment.start"),
    )


@dataclass(frozen=True, slots=True)
class GivenRow:
    kind: RowKind
    fields: JsonValue


def _given_rows(rows: JsonValue) -> tuple[GivenRow, ...] | None:
    """The rows of the option `rows`; None without it. Raises `Refused`."""
    if rows is None:
        return None
    if not isinstance(rows, list):
        raise Refused("option 'rows' of FakeSource must be a list of {kind, fields}")
    return tuple(_given_row(number, row) for number, row in enumerate(rows, start=1))


def _given_row(number: int, row: JsonValue) -> GivenRow:
    entry = cast("Mapping[str, JsonValue]", row if isinstance(row, dict) else {})
    if "fields" not in entry:
        raise Refused(f"row {number} of FakeSource has no 'fields'; write {{kind, fields}}")
    named = str(entry.get("kind") or RowKind.INSERT.name)
    if named.upper() not in RowKind.__members__:
        known = hint(named, [*RowKind.__members__], noun="kinds")
        raise Refused(f"row {number} of FakeSource is of an unknown kind {named!r}; {known}")
    return GivenRow(RowKind[named.upper()], entry["fields"])


def _source_flaw(options: Mapping[str, JsonValue]) -> str | None:
    try:
        _given_rows(options.get("rows"))
    except Refused as refused:
        return str(refused)
    if "tables_configs" in options:
        for name in options:
            if _TABLE.find(name) is not None:
                return f"option {name!r} has no effect beside tables_configs; give it to each table"
    return None


def _flow(options: Mapping[str, JsonValue]) -> RowFlow:
    configs = options.get("tables_configs")
    if configs is None:
        return _table_flow(options.get("rows"))
    tables = _tables(configs).values()
    kinds = joined(_table_flow(table.value("rows")) for table in tables).kinds
    return RowFlow(kinds, several_tables=len(tables) > 1)


def _table_flow(rows: JsonValue) -> RowFlow:
    given = _given_rows(rows) or ()
    return RowFlow(frozenset(row.kind for row in given) or INSERT_ONLY)


def _tables(configs: JsonValue) -> Mapping[str, ResolvedOptions]:
    """The tables of the option `tables_configs`, by path. Raises `Refused`."""
    try:
        return read_tables(from_json(configs))
    except Problem as problem:
        raise Refused(f"tables_configs: {problem.text}") from None


def read_tables(node: Node, note: Note = ignore_note) -> Mapping[str, ResolvedOptions]:
    """The tables in a list of blocks, by path. Raises `Problem` with its place."""
    if not isinstance(node, Array):
        raise Problem(node.place, f"tables_configs must be a list, and is {describe(node)}")
    if not node.items:
        raise Problem(node.place, "tables_configs names no table")
    tables: dict[str, ResolvedOptions] = {}
    # By column, in lower case, since Spark takes such names for one: the first that has it.
    types: dict[str, tuple[str | None, str, ColumnType]] = {}
    for item in node.items:
        table = _read_table(item, note)
        schema = table.schema("schema")
        if schema is None or not schema.table:
            raise Problem(item.place, "each table needs a schema that says its name, 'table'")
        if schema.table in tables:
            raise Problem(item.place, f"there are two tables {schema.table!r}")
        tables[schema.table] = table
        _check_columns(item, schema, types)
    return tables


_BLOCKS = "write a FakeSource block for each"


def _check_columns(
    item: Node, schema: TableSchema, types: dict[str, tuple[str | None, str, ColumnType]]
) -> None:
    """Raise `Problem` unless columns of a name are alike in all tables; adds those of this one."""
    for column in schema.columns:
        here = (schema.table, column.name, column.type)
        first, name, kind = types.setdefault(column.name.lower(), here)
        said = f"column {column.name!r} of table {schema.table!r} is"
        if name != column.name:
            raise Problem(
                item.place, f"{said} {name!r} in {first!r}; write both alike, or {_BLOCKS}"
            )
        if kind != column.type:
            raise Problem(item.place, f"{said} of another type than that of {first!r}; {_BLOCKS}")


def _read_table(node: Node, note: Note) -> ResolvedOptions:
    title = "a table of FakeSource"
    if not isinstance(node, Object):
        raise Problem(node.place, f"{title} must be an object, and is {describe(node)}")
    problems = Problems()
    written = given_options(_TABLE, node, title=title, problems=problems)
    judge_unknown(written, missing=(), title=title, problems=problems)
    problems.check()
    for warning in problems.warnings:
        note(warning.place, warning.text)
    given = written.usable
    note_idle(_TABLE, given, title=title, note=note)
    values = {each.path if each.option is None else each.option.name: each for each in given}
    set_here = {name: convert(each, title=title) for name, each in values.items()}
    try:
        _given_rows(set_here.get("rows"))
    except Refused as refused:
        raise Problem(node.place, str(refused)) from None
    defaults = {option.name: option.default for option in _TABLE.declared}
    return ResolvedOptions({**defaults, **set_here})


# The options of one table: of a FakeSource, or of an entry of its `tables_configs`.
_TABLE = OptionSet(
    (
        Option("schema", Kind.SCHEMA, vectors=False, doc="The columns to make up."),
        Option(
            "rows",
            Kind.JSON,
            doc="Rows to give as they are: `[{kind, fields}]`, where a kind is INSERT, "
            "UPDATE_BEFORE, UPDATE_AFTER or DELETE.",
        ),
        Option("row.num", Kind.INT, 5, minimum=0, maximum=ROWS_MAX, doc="Rows of each reader."),
        Option(
            "split.num",
            Kind.INT,
            1,
            minimum=1,
            maximum=SPLITS_MAX,
            doc="Splits of each reader: each gives its part of `row.num`, or all `rows`.",
        ),
        Option(
            "split.read-interval",
            Kind.INT,
            1,
            minimum=0,
            maximum=READ_INTERVAL_MAX_MS,
            doc="In ms, of each split: all readers read one split in each interval. 1 or less "
            "means no pause. With `checkpoint.interval`, an epoch reads as many splits as "
            "fit into it, and at least one of each reader.",
        ),
        Option("split.row", Kind.INT, doc="As in SeaTunnel.", idle="nothing reads it"),
        _size("map.size", 5),
        _size("array.size", 5),
        _size("bytes.length", 5),
        _size("string.length", 5),
        Option("string.fake.mode", Kind.STRING, "RANGE", choices=_MODES),
        Option("string.template", Kind.LIST, doc="Values to choose from."),
        *(option for number in _NUMBERS for option in _number_options(*number)),
        *(
            Option(f"{part}.template", Kind.LIST, items=Kind.INT, minimum=low, maximum=high)
            for part, low, high in _PARTS
        ),
        _size("vector.dimension", 4),
        _size("binary.vector.dimension", 8),
        Option("vector.float.min", Kind.FLOAT),
        Option("vector.float.max", Kind.FLOAT),
        Option("auto.increment.enabled", Kind.BOOL, default=False),
        Option("auto.increment.start", Kind.INT, 1),
    )
)

FAKE_SOURCE = Descriptor(
    name="FakeSource",
    role="source",
    make="headrace.connectors.fake.tables:make_fake_source",
    doc="Makes up rows from a schema. In STREAMING mode it gives them once, and the job runs on "
    "without more.",
    read_options=_source_options,
    one_of=(("schema", "tables_configs"),),
    flaw=_source_flaw,
    flow=_flow,
    capabilities=Capabilities(
        guarantee=Guarantee.EXACTLY_ONCE,
        how="each value is a hash of the incarnation, the source's name, the row's number and the "
        "column",
        row_kinds=ALL_KINDS,
        multi_table=True,
    ),
    options=OptionSet(
        (
            *_TABLE.declared,
            Option(
                "tables_configs",
                Kind.JSON,
                reader=read_tables,
                doc="Several tables: a list of blocks with the options above, each with a `schema` "
                "that says its `table`. A row has the columns of all of them, null where its own "
                "table has none.",
            ),
            *common_options("source"),
        )
    ),
)
DESCRIPTORS = (FAKE_SOURCE,)
