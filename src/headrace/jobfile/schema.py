"""SeaTunnel's schema block: what a table's columns, keys and types are.

The raw block travels in a plugin's options, as JSON; connectors call `parse_schema` on it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from pydantic import JsonValue

from headrace.errors import Refused
from headrace.jobfile.nodes import (
    Array,
    Node,
    Object,
    Plain,
    Problem,
    Scalar,
    describe,
    from_json,
    to_json,
)
from headrace.jobfile.suggest import hint
from headrace.jobfile.types import ColumnType, read_type

T = TypeVar("T")

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
COUNT_DIGITS_MAX = 10  # of a column's length or scale
CONSTRAINT_TYPES = ("INDEX_KEY", "UNIQUE_KEY", "FOREIGN_KEY", "VECTOR_INDEX_KEY")


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
    columns: tuple[tuple[str, str | None], ...]  # name, ASC or DESC


@dataclass(frozen=True, slots=True)
class TableSchema:
    table: str | None
    columns: tuple[ColumnSpec, ...]
    primary_key: PrimaryKey | None = None
    constraint_keys: tuple[ConstraintKey, ...] = ()
    comment: str | None = None


def parse_schema(value: JsonValue) -> TableSchema:
    """A schema block that came as JSON. Raises `Refused`."""
    try:
        return read_schema(from_json(value))
    except Problem as problem:
        raise Refused(f"schema: {problem.text}") from None


def read_schema(node: Node) -> TableSchema:
    """A schema block of a job file. Raises `Problem` with its place."""
    block = _object(node, "schema", _SCHEMA_KEYS)
    columns = _columns(block)
    names = frozenset(column.name for column in columns)
    return TableSchema(
        table=_get(block, "table", _text),
        columns=columns,
        primary_key=_get(block, "primaryKey", lambda inner: _primary_key(inner, names)),
        constraint_keys=_get(block, "constraintKeys", lambda inner: _constraints(inner, names))
        or (),
        comment=_get(block, "comment", _text),
    )


def _columns(block: Object) -> tuple[ColumnSpec, ...]:
    fields, columns = block.members.get("fields"), block.members.get("columns")
    if (fields is None) == (columns is None):
        raise Problem(block.place, "a schema needs 'fields' or 'columns', and not both")
    if fields is not None:
        block = _object(fields, "fields", None)
        found = [ColumnSpec(name, read_type(node)) for name, _, node in block.walk()]
    else:
        found = [_column(item) for item in _list(columns, "columns")]
    if not found:
        raise Problem(block.place, "a schema must have at least one column")
    seen: set[str] = set()
    for column in found:
        if column.name in seen:
            raise Problem(block.place, f"column {column.name!r} is declared twice")
        seen.add(column.name)
    return tuple(found)


def _column(node: Node) -> ColumnSpec:
    block = _object(node, "a column", _COLUMN_KEYS)
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


def _primary_key(node: Node, names: frozenset[str]) -> PrimaryKey:
    block = _object(node, "primaryKey", _PRIMARY_KEYS)
    columns = block.members.get("columnNames") or block.members.get("columns")
    if columns is None:
        raise Problem(block.place, "primaryKey must have 'columnNames'")
    listed = tuple(_known(item, names) for item in _list(columns, "columnNames"))
    return PrimaryKey(_get(block, "name", _text), listed)


def _constraints(node: Node, names: frozenset[str]) -> tuple[ConstraintKey, ...]:
    return tuple(_constraint(item, names) for item in _list(node, "constraintKeys"))


def _constraint(node: Node, names: frozenset[str]) -> ConstraintKey:
    block = _object(node, "a constraint key", _CONSTRAINT_KEYS)
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
        column = _object(item, "a constraint column", _KEY_COLUMN_KEYS)
        if "columnName" not in column.members:
            raise Problem(column.place, "a constraint column must have 'columnName'")
        name = _known(column.members["columnName"], names)
        columns.append((name, _get(column, "sortType", _text)))
    return ConstraintKey(_text(block.members["constraintName"]), kind, tuple(columns))


def _known(node: Node, names: frozenset[str]) -> str:
    name = _text(node)
    if name not in names:
        raise Problem(node.place, f"unknown column {name!r}; {hint(name, names, noun='columns')}")
    return name


def _get(block: Object, key: str, read: Callable[[Node], T]) -> T | None:
    node = block.members.get(key)
    if node is None or (isinstance(node, Scalar) and node.value is None):
        return None
    return read(node)


def _object(node: Node, what: str, keys: tuple[str, ...] | None) -> Object:
    if not isinstance(node, Object):
        raise Problem(node.place, f"{what} must be an object, and is {describe(node)}")
    for key, place, _ in node.walk():
        if keys is not None and key not in keys:
            raise Problem(place, f"unknown key {key!r} of {what}; {hint(key, keys, noun='keys')}")
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
