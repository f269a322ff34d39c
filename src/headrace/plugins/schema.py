"""SeaTunnel's schema block: a table's columns with their types, and its keys.

The raw block travels in a plugin's options, as JSON, and connectors call `parse_schema` on it.
A column's type is parsed into a small tree (`ColumnType`), e.g. from "map<string, array<int>>";
a row type is written as an object or as the text of one. Connectors map the tree to the types of
their own world.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import NoReturn, TypeVar

from pydantic import JsonValue

from headrace.errors import Refused
from headrace.model.text import hint, nearest
from headrace.plugins.row_kinds import RESERVED_PREFIX, is_reserved
from headrace.plugins.syntax_tree import (
    Array,
    FilePlace,
    Node,
    Note,
    Object,
    Plain,
    Problem,
    Scalar,
    describe,
    from_json,
    ignore_note,
    to_json,
)

TYPE_NESTING_MAX = 32  # levels of array<…>, map<…> and {…} in one text
DECIMAL_PRECISION_MAX = 38  # digits; Spark's and Iceberg's limit
COUNT_DIGITS_MAX = 10  # digits of a column's length or scale
CONSTRAINT_TYPES = ("INDEX_KEY", "UNIQUE_KEY", "FOREIGN_KEY", "VECTOR_INDEX_KEY")
_SCHEMA_KEYS = (
    "table",
    "schema_first",
    "comment",
    "fields",
    "columns",
    "primaryKey",
    "constraintKeys",
)
_COLUMN_KEYS = (
    "name",
    "type",
    "nullable",
    "columnLength",
    "columnScale",
    "defaultValue",
    "comment",
)
_PRIMARY_KEYS = ("name", "columnNames", "columns")
_CONSTRAINT_KEYS = ("constraintName", "constraintType", "constraintColumns")
_KEY_COLUMN_KEYS = ("columnName", "sortType")

_PLAIN = (
    "string",
    "boolean",
    "tinyint",
    "smallint",
    "int",
    "bigint",
    "float",
    "double",
    "null",
    "bytes",
    "date",
    "time",
    "timestamp",
    "timestamp_tz",
)
_VECTORS = (
    "float_vector",
    "float16_vector",
    "bfloat16_vector",
    "binary_vector",
    "sparse_float_vector",
)
_ALIASES = {"integer": "int", "long": "bigint", "bool": "boolean", "short": "smallint"}
_NAMES = (*_PLAIN, "decimal(p, s)", "array<T>", "map<K, V>", *_VECTORS)
_DECIMAL = re.compile(r"decimal\s*\(\s*(\d{1,4})\s*(?:,\s*(\d{1,4})\s*)?\)", re.IGNORECASE)
_FIELD = re.compile(r'\s*("[^"]+"|[^"=:\s{}]+)\s*[=:]\s*(\S.*)', re.DOTALL)
_NESTED = re.compile(r"(array|map)\s*<(.*)>", re.IGNORECASE | re.DOTALL)

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class PlainType:
    name: str  # one of _PLAIN: "string" … "timestamp_tz"


@dataclass(frozen=True, slots=True)
class DecimalType:
    precision: int
    scale: int


@dataclass(frozen=True, slots=True)
class ArrayType:
    element: ColumnType


@dataclass(frozen=True, slots=True)
class MapType:
    key: ColumnType
    value: ColumnType


@dataclass(frozen=True, slots=True)
class RowType:
    fields: tuple[tuple[str, ColumnType], ...]


@dataclass(frozen=True, slots=True)
class VectorType:
    name: str  # one of _VECTORS


ColumnType = PlainType | DecimalType | ArrayType | MapType | RowType | VectorType


@dataclass(frozen=True, slots=True)
class ColumnSpec:
    name: str
    type: ColumnType
    nullable: bool = True
    length: int | None = None
    scale: int | None = None
    default: JsonValue = None
    comment: str | None = None


@dataclass(frozen=True, slots=True)
class PrimaryKey:
    name: str | None
    columns: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ConstraintKey:
    name: str
    type: str
    columns: tuple[tuple[str, str | None], ...]  # name, and ASC or DESC


@dataclass(frozen=True, slots=True)
class TableSchema:
    table: str | None
    columns: tuple[ColumnSpec, ...]
    primary_key: PrimaryKey | None = None
    constraint_keys: tuple[ConstraintKey, ...] = ()
    comment: str | None = None


def parse_schema(value: JsonValue) -> TableSchema:
    """The schema in a block that came as JSON. Raises `Refused`."""
    try:
        return read_schema(from_json(value))
    except Problem as problem:
        raise Refused(f"schema: {problem.text}") from None


def read_schema(node: Node, note: Note = ignore_note) -> TableSchema:
    """The schema in a block of a job file. Raises `Problem` with its place.

    SeaTunnel ignores unknown keys, and its own jobs have some: they are accepted with a warning.
    """
    block = _object(node, "schema", _SCHEMA_KEYS, note, needed=("fields", "columns"))
    columns = _columns(block, note)
    names = frozenset(column.name for column in columns)
    return TableSchema(
        table=_get(block, "table", _text),
        columns=columns,
        primary_key=_get(block, "primaryKey", lambda inner: _primary_key(inner, names, note)),
        constraint_keys=_get(
            block, "constraintKeys", lambda inner: _constraints(inner, names, note)
        )
        or (),
        comment=_get(block, "comment", _text),
    )


def read_type(node: Node) -> ColumnType:
    """The type that a value of a schema block names. Raises `Problem`."""
    if isinstance(node, Object):
        return _row(node)
    if isinstance(node, Scalar) and (node.value is None or isinstance(node.value, str)):
        if max(node.text.count("<"), node.text.count("{")) > TYPE_NESTING_MAX:
            raise Problem(node.place, f"a type may be nested {TYPE_NESTING_MAX} deep at most")
        return _parse(node.text.strip(), node.place)
    raise Problem(node.place, f"a type must be a name or an object, and is {describe(node)}")


def holds_vector(of: ColumnType) -> bool:
    match of:
        case VectorType():
            return True
        case ArrayType():
            return holds_vector(of.element)
        case MapType():
            return holds_vector(of.key) or holds_vector(of.value)
        case RowType():
            return any(holds_vector(inner) for _, inner in of.fields)
        case PlainType() | DecimalType():
            return False


def _columns(block: Object, note: Note) -> tuple[ColumnSpec, ...]:
    fields, listed = block.members.get("fields"), block.members.get("columns")
    if (fields is None) == (listed is None):
        raise Problem(block.place, "a schema needs 'fields' or 'columns', and not both")
    if fields is not None:
        block = _object(fields, "fields", None, note)
        columns = [ColumnSpec(name, read_type(node)) for name, _, node in block.walk()]
    else:
        columns = [_column(item, note) for item in _list(listed, "columns")]
    if not columns:
        raise Problem(block.place, "a schema must have at least one column")
    seen: set[str] = set()
    for column in columns:
        if column.name in seen:
            raise Problem(block.place, f"column {column.name!r} is declared twice")
        if is_reserved(column.name):
            text = f"column {column.name!r} has a name that is reserved, by its beginning"
            raise Problem(block.place, f"{text} {RESERVED_PREFIX!r}; give it another one")
        seen.add(column.name)
    return tuple(columns)


def _column(node: Node, note: Note) -> ColumnSpec:
    block = _object(node, "a column", _COLUMN_KEYS, note)
    for key in ("name", "type"):
        if key not in block.members:
            raise Problem(block.place, f"a column must have {key!r}")
    return ColumnSpec(
        name=_text(block.members["name"]),
        type=read_type(block.members["type"]),
        nullable=_get(block, "nullable", _bool) is not False,
        length=_get(block, "columnLength", _count) or None,  # SeaTunnel writes 0 for none
        scale=_get(block, "columnScale", _count),
        default=_get(block, "defaultValue", to_json),
        comment=_get(block, "comment", _text),
    )


def _primary_key(node: Node, names: frozenset[str], note: Note) -> PrimaryKey:
    block = _object(node, "primaryKey", _PRIMARY_KEYS, note)
    columns = block.members.get("columnNames") or block.members.get("columns")
    if columns is None:
        raise Problem(block.place, "primaryKey must have 'columnNames'")
    listed = tuple(_known_column(item, names) for item in _list(columns, "columnNames"))
    return PrimaryKey(_get(block, "name", _text), listed)


def _constraints(node: Node, names: frozenset[str], note: Note) -> tuple[ConstraintKey, ...]:
    return tuple(_constraint(item, names, note) for item in _list(node, "constraintKeys"))


def _constraint(node: Node, names: frozenset[str], note: Note) -> ConstraintKey:
    block = _object(node, "a constraint key", _CONSTRAINT_KEYS, note)
    for key in _CONSTRAINT_KEYS:
        if key not in block.members:
            raise Problem(block.place, f"a constraint key must have {key!r}")
    kind = _text(block.members["constraintType"]).upper()
    if kind not in CONSTRAINT_TYPES:
        raise Problem(
            block.members["constraintType"].place,
            f"unknown constraintType {kind!r}; {hint(kind, CONSTRAINT_TYPES, noun='types')}",
        )
    columns: list[tuple[str, str | None]] = []
    for item in _list(block.members["constraintColumns"], "constraintColumns"):
        column = _object(item, "a constraint column", _KEY_COLUMN_KEYS, note)
        if "columnName" not in column.members:
            raise Problem(column.place, "a constraint column must have 'columnName'")
        name = _known_column(column.members["columnName"], names)
        columns.append((name, _get(column, "sortType", _text)))
    return ConstraintKey(_text(block.members["constraintName"]), kind, tuple(columns))


def _known_column(node: Node, names: frozenset[str]) -> str:
    name = _text(node)
    if name not in names:
        raise Problem(node.place, f"unknown column {name!r}; {hint(name, names, noun='columns')}")
    return name


def _get(block: Object, key: str, read: Callable[[Node], T]) -> T | None:
    node = block.members.get(key)
    if node is None or (isinstance(node, Scalar) and node.value is None):
        return None
    return read(node)


def _object(
    node: Node,
    what: str,
    keys: tuple[str, ...] | None,
    note: Note,
    *,
    needed: tuple[str, ...] = (),
) -> Object:
    """The node as an object with these keys. An unknown key is noted, unless it is nearly one of
    those that are needed, of which none is there."""
    if not isinstance(node, Object):
        raise Problem(node.place, f"{what} must be an object, and is {describe(node)}")
    for key, place, _ in node.walk():
        if keys is not None and key not in keys:
            known = hint(key, keys, noun="keys")
            if nearest(key, keys) in needed and not any(each in node.members for each in needed):
                raise Problem(place, f"unknown key {key!r} of {what}; {known}")
            note(place, f"key {key!r} of {what} is unknown and has no effect; {known}")
    return node


def _list(node: Node | None, what: str) -> tuple[Node, ...]:
    if isinstance(node, Array):
        return node.items
    assert node is not None
    raise Problem(node.place, f"{what} must be a list, and is {describe(node)}")


def _plain(node: Node) -> Plain:
    if isinstance(node, Scalar):
        return node.value
    raise Problem(node.place, f"a single value was expected here, and not {describe(node)}")


def _text(node: Node) -> str:
    _plain(node)
    assert isinstance(node, Scalar)
    return node.text


def _bool(node: Node) -> bool:
    value = str(_plain(node)).lower()
    if value not in {"true", "false"}:
        raise Problem(node.place, f"true or false was expected here, and not {describe(node)}")
    return value == "true"


def _count(node: Node) -> int:
    value = str(_plain(node))
    if not value.isascii() or not value.isdigit() or len(value) > COUNT_DIGITS_MAX:
        raise Problem(node.place, f"a whole number was expected here, and not {describe(node)}")
    return int(value)


def _row(node: Object) -> RowType:
    if not node.members:
        raise Problem(node.place, "a row type must have at least one field")
    return RowType(tuple((name, read_type(member)) for name, _, member in node.walk()))


def _parse(text: str, place: FilePlace) -> ColumnType:
    lowered = text.lower()
    lowered = _ALIASES.get(lowered, lowered)
    if lowered in _PLAIN:
        return PlainType(lowered)
    if lowered in _VECTORS:
        return VectorType(lowered)
    if text.startswith("{"):
        return _row_text(text, place)
    if decimal := _DECIMAL.fullmatch(text):
        return _decimal(int(decimal[1]), int(decimal[2] or 0), text, place)
    if nested := _NESTED.fullmatch(text):
        return _nested(nested[1].lower(), nested[2], text, place)
    return _unknown(text, place)


def _unknown(text: str, place: FilePlace) -> NoReturn:
    known = hint(text, _NAMES, noun="types")
    raise Problem(place, f"unknown type {text!r}; {known}")


def _decimal(precision: int, scale: int, text: str, place: FilePlace) -> DecimalType:
    if not 1 <= precision <= DECIMAL_PRECISION_MAX or scale > precision:
        raise Problem(
            place,
            f"{text!r} is no decimal: its precision must be 1 to {DECIMAL_PRECISION_MAX}, "
            "its scale 0 to its precision",
        )
    return DecimalType(precision, scale)


def _nested(kind: str, inside: str, text: str, place: FilePlace) -> ColumnType:
    parts = _split(inside)
    if kind == "array" and len(parts) == 1:
        return ArrayType(_parse(parts[0], place))
    if kind == "map" and len(parts) == 2:
        return MapType(_parse(parts[0], place), _parse(parts[1], place))
    wanted = "array<T>" if kind == "array" else "map<K, V>"
    raise Problem(place, f"{text!r} is no type; write {wanted}")


def _split(text: str) -> list[str]:
    """Split at the commas that stand outside of any bracket."""
    parts, depth = [""], 0
    for character in text:
        depth += (character in "<({") - (character in ">)}")
        if character == "," and depth == 0:
            parts.append("")
        else:
            parts[-1] += character
    return [part.strip() for part in parts]


def _row_text(text: str, place: FilePlace) -> RowType:
    """A row type that is written as a string: `{a = int, b = "map<string, string>"}`."""
    fields: list[tuple[str, ColumnType]] = []
    for part in _split(text.removeprefix("{").removesuffix("}")):
        field = _FIELD.fullmatch(part)
        if field is None or not text.endswith("}"):
            raise Problem(place, f"{text!r} is no row type; write {{name = type, …}}")
        fields.append((field[1].strip('"'), _parse(field[2].strip().strip('"'), place)))
    return RowType(tuple(fields))
