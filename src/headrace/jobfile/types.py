"""SeaTunnel's column types, as written in a schema block, parsed into small trees.

`parse_type("map<string, array<int>>")`; a row is an object or its text. Connectors map the tree
to the types of their own world.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import NoReturn

from headrace.jobfile.nodes import Node, Object, Place, Problem, Scalar, describe
from headrace.jobfile.suggest import hint

TYPE_NESTING_MAX = 32  # of array<…>, map<…> and {…} in one text
DECIMAL_PRECISION_MAX = 38  # digits; Spark's and Iceberg's limit

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


@dataclass(frozen=True, slots=True)
class PlainType:
    name: str  # "string" … "timestamp_tz"


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
    name: str


ColumnType = PlainType | DecimalType | ArrayType | MapType | RowType | VectorType


def read_type(node: Node) -> ColumnType:
    """The type that a value of a schema block names. Raises `Problem`."""
    if isinstance(node, Object):
        return _row(node)
    if isinstance(node, Scalar) and (node.value is None or isinstance(node.value, str)):
        if max(node.text.count("<"), node.text.count("{")) > TYPE_NESTING_MAX:
            raise Problem(node.place, f"a type may be nested {TYPE_NESTING_MAX} deep at most")
        return _parse(node.text.strip(), node.place)
    raise Problem(node.place, f"a type must be a name or an object, and is {describe(node)}")


def _row(node: Object) -> RowType:
    if not node.members:
        raise Problem(node.place, "a row type must have at least one field")
    return RowType(tuple((name, read_type(member)) for name, _, member in node.walk()))


def _parse(text: str, place: Place) -> ColumnType:
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


def _unknown(text: str, place: Place) -> NoReturn:
    known = hint(text, _NAMES, noun="types")
    raise Problem(place, f"unknown type {text!r}; {known}")


def _decimal(precision: int, scale: int, text: str, place: Place) -> DecimalType:
    if not 1 <= precision <= DECIMAL_PRECISION_MAX or scale > precision:
        raise Problem(
            place,
            f"{text!r} is no decimal: its precision must be 1 to {DECIMAL_PRECISION_MAX}, "
            "its scale 0 to its precision",
        )
    return DecimalType(precision, scale)


def _nested(kind: str, inside: str, text: str, place: Place) -> ColumnType:
    parts = _split(inside)
    if kind == "array" and len(parts) == 1:
        return ArrayType(_parse(parts[0], place))
    if kind == "map" and len(parts) == 2:
        return MapType(_parse(parts[0], place), _parse(parts[1], place))
    wanted = "array<T>" if kind == "array" else "map<K, V>"
    raise Problem(place, f"{text!r} is no type; write {wanted}")


def _split(text: str) -> list[str]:
    """At the commas that are inside of no bracket."""
    parts, depth = [""], 0
    for character in text:
        depth += (character in "<({") - (character in ">)}")
        if character == "," and depth == 0:
            parts.append("")
        else:
            parts[-1] += character
    return [part.strip() for part in parts]


def _row_text(text: str, place: Place) -> RowType:
    """`{a = int, b = "map<string, string>"}` written as a string."""
    fields: list[tuple[str, ColumnType]] = []
    for part in _split(text.removeprefix("{").removesuffix("}")):
        found = _FIELD.fullmatch(part)
        if found is None or not text.endswith("}"):
            raise Problem(place, f"{text!r} is no row type; write {{name = type, …}}")
        fields.append((found[1].strip('"'), _parse(found[2].strip().strip('"'), place)))
    return RowType(tuple(fields))


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
