"""Converts the values of options: kinds, ranges, choices, what is built.

`convert` takes what was written to what the option means, or raises `Problem` with its place.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from typing import cast

from pydantic import JsonValue

from headrace.model.text import hint
from headrace.plugins.options import GivenOption, Kind, Option
from headrace.plugins.schema import holds_vector, read_schema
from headrace.plugins.syntax_tree import (
    Array,
    Node,
    Object,
    Problem,
    Scalar,
    describe,
    from_json,
    ignore_note,
    to_json,
)

INT_MIN, INT_MAX = -(2**63), 2**63 - 1
_INT = re.compile(r"[+-]?\d{1,19}", re.ASCII)
_FLOAT = re.compile(r"[+-]?(\d+(\.\d*)?|\.\d+)([eE][+-]?\d{1,3})?", re.ASCII)


def convert(given: GivenOption, *, title: str) -> JsonValue:
    """The checked value of an option. Raises `Problem`."""
    option = given.option
    if option is None:
        return to_json(given.node)
    value = _CONVERT[option.kind](option, given.node, f"option {given.path!r} of {title}")
    if option.supported is not None and value not in option.supported:
        named = _with_value(option, given, title)
        raise Problem(given.place, f"{named} {option.unsupported}", lacks=named)
    return value


def _with_value(option: Option, given: GivenOption, title: str) -> str:
    named = f"option {given.path!r} of {title}"
    return f"{named} with the value {describe(given.node)}" if option.supported else named


def _scalar(node: Node, kind: Kind, title: str) -> Scalar:
    if isinstance(node, Scalar) and node.value is not None:
        return node
    raise _wrong(node, kind, title)


def _wrong(node: Node, kind: Kind, title: str) -> Problem:
    return Problem(node.place, f"{title} must be {kind.value}, and is {describe(node)}")


def _int(option: Option, node: Node, title: str) -> int:
    scalar = _scalar(node, Kind.INT, title)
    if isinstance(scalar.value, bool | float) or not _INT.fullmatch(scalar.text):
        raise _wrong(node, Kind.INT, title)
    value = int(scalar.text)
    if not INT_MIN <= value <= INT_MAX:
        raise _wrong(node, Kind.INT, title)
    _check_range(option, value, node, title)
    return value


def _float(option: Option, node: Node, title: str) -> float:
    scalar = _scalar(node, Kind.FLOAT, title)
    if isinstance(scalar.value, bool) or not _FLOAT.fullmatch(scalar.text):
        raise _wrong(node, Kind.FLOAT, title)
    value = float(scalar.text)
    if value in {float("inf"), float("-inf")}:
        raise _wrong(node, Kind.FLOAT, title)
    _check_range(option, value, node, title)
    return value


def _check_range(option: Option, value: float, node: Node, title: str) -> None:
    if option.minimum is not None and value < option.minimum:
        problem = f"at least {_digits(option.minimum)}, and is {_digits(value)}"
    elif option.maximum is not None and value > option.maximum:
        problem = f"at most {_digits(option.maximum)}, and is {_digits(value)}"
    else:
        return
    raise Problem(node.place, f"{title} must be {problem}")


def _digits(value: float) -> str:
    return str(value) if isinstance(value, int) else f"{value:g}"


def _bool(option: Option, node: Node, title: str) -> bool:
    text = _scalar(node, option.kind, title).text.lower()
    if text not in {"true", "false"}:
        raise _wrong(node, Kind.BOOL, title)
    return text == "true"


def _string(option: Option, node: Node, title: str) -> str:
    text = _scalar(node, Kind.STRING, title).text
    shown = "what it is" if option.secret else repr(text)
    if option.flaw is not None and (flaw := option.flaw(text)):
        raise Problem(node.place, f"{title} can't be {shown}: {flaw}")
    if not option.choices:
        return text
    for choice in option.choices:
        if choice.lower() == text.lower():
            return choice
    known = hint(text, option.choices, noun="values")
    raise Problem(node.place, f"{title} can't be {shown}; {known}")


def _list(option: Option, node: Node, title: str) -> list[JsonValue]:
    """Accepts a list, and a text with a JSON list, with `[a, b]`, or with values between commas.

    A text is what a variable gives: `-i names=[a,b]`.
    """
    if isinstance(node, Scalar):
        node = _split(_scalar(node, Kind.LIST, title))
    if not isinstance(node, Array):
        raise _wrong(node, Kind.LIST, title)
    convert_item = _CONVERT[option.items]
    return [convert_item(option, item, f"each value of {title}") for item in node.items]


def _split(node: Scalar) -> Array:
    text = node.text.strip()
    if text.startswith("["):
        try:
            array = from_json(json.loads(text))
        except (ValueError, RecursionError) as error:
            if not text.endswith("]"):
                raise Problem(node.place, f"{text!r} is no JSON list: {error}") from None
            return _bare_list(node, text[1:-1])
        assert isinstance(array, Array)
        return Array(node.place, tuple(_placed_at(item, node) for item in array.items))
    return _bare_list(node, text)


def _bare_list(node: Scalar, text: str) -> Array:
    """The values between commas, each with or without quotes around it."""
    if not text.strip():
        return Array(node.place, ())
    parts = (_without_quotes(part.strip()) for part in text.split(","))
    return Array(node.place, tuple(Scalar(node.place, part, part) for part in parts))


def _without_quotes(text: str) -> str:
    quoted = len(text) > 1 and text[0] == text[-1] and text[0] in "\"'"
    return text[1:-1] if quoted else text


def _placed_at(item: Node, node: Scalar) -> Node:
    """The item with the place of the text that it was parsed from."""
    return Scalar(node.place, item.value, item.text) if isinstance(item, Scalar) else item


def _map(_: Option, node: Node, title: str) -> dict[str, JsonValue]:
    if not isinstance(node, Object):
        raise _wrong(node, Kind.MAP, title)
    return dict(_flat(node, "", title))


def _flat(block: Object, prefix: str, title: str) -> Iterator[tuple[str, JsonValue]]:
    for key, _, node in block.walk():
        match node:
            case Object():
                yield from _flat(node, f"{prefix}{key}.", title)
            case Scalar(value=None):
                continue
            case Scalar():
                yield prefix + key, node.text
            case _:
                named = f"{prefix + key!r} in {title}"
                raise Problem(node.place, f"{named} must be a text, and is {describe(node)}")


def _json(option: Option, node: Node, _title: str) -> JsonValue:
    if option.reader is not None:
        option.reader(node, ignore_note)
    return to_json(node)


def _schema(option: Option, node: Node, title: str) -> JsonValue:
    schema = read_schema(node)
    for column in schema.columns:
        if not option.vectors and holds_vector(column.type):
            text = f"column {column.name!r} in {title} is a vector, which is not built yet"
            raise Problem(node.place, text, lacks=f"vectors in {title}")
    return to_json(node)


_CONVERT = cast(
    "Mapping[Kind, Callable[[Option, Node, str], JsonValue]]",
    {
        Kind.INT: _int,
        Kind.FLOAT: _float,
        Kind.BOOL: _bool,
        Kind.STRING: _string,
        Kind.LIST: _list,
        Kind.MAP: _map,
        Kind.JSON: _json,
        Kind.SCHEMA: _schema,
    },
)
