"""Reads options that hold a list of blocks, e.g. `columns = [{src_field = a, path = "$.b"}]`.

Each block has keys of its own. An unknown or missing key, or a value of another kind, is a
`Problem` with its place.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from decimal import Decimal, InvalidOperation
from typing import TypeVar

from pydantic import JsonValue

from headrace.errors import Refused
from headrace.model.text import hint
from headrace.plugins.syntax_tree import (
    Array,
    Node,
    Object,
    Problem,
    Scalar,
    describe,
    from_json,
)

T = TypeVar("T")


def read_again(value: JsonValue, read: Callable[[Node], T], *, option: str) -> T:
    """What a reader makes of an option that came as JSON. Raises `Refused`."""
    try:
        return read(from_json(value))
    except Problem as problem:
        raise Refused(f"option {option!r}: {problem.text}") from None


def blocks(
    node: Node, *, what: str, keys: Sequence[str], required: Sequence[str]
) -> tuple[Object, ...]:
    """The blocks of a list, each with known keys. `what` names one of them."""
    if not isinstance(node, Array):
        raise Problem(node.place, f"a list of {{…}} was expected here, and not {describe(node)}")
    return tuple(block(item, what=what, keys=keys, required=required) for item in node.items)


def block(node: Node, *, what: str, keys: Sequence[str], required: Sequence[str]) -> Object:
    if not isinstance(node, Object):
        raise Problem(node.place, f"{what} must be an object, and is {describe(node)}")
    for key, place, _ in node.walk():
        if key not in keys:
            raise Problem(place, f"unknown key {key!r} of {what}; {hint(key, keys, noun='keys')}")
    for key in required:
        if key not in node.members:
            raise Problem(node.place, f"{what} must have {key!r}")
    return node


def text(of: Object, key: str) -> str | None:
    """The text at a key; None when it is missing or null."""
    node = _scalar(of, key)
    return None if node is None else node.text


def texts(of: Object, key: str) -> tuple[str, ...]:
    """The texts at a key, which may hold one or a list of them; empty when it is missing."""
    node = of.members.get(key)
    if isinstance(node, Array):
        return tuple(_single(item).text for item in node.items)
    one = text(of, key)
    return () if one is None else (one,)


def choice(of: Object, key: str, known: Sequence[str]) -> str | None:
    """One of some words, whatever its case; None when it is missing."""
    node = _scalar(of, key)
    if node is None:
        return None
    for word in known:
        if word.lower() == node.text.lower():
            return word
    near = hint(node.text.upper(), known, noun="values")
    raise Problem(node.place, f"{key} can't be {node.text!r}; {near}")


def flag(of: Object, key: str, *, default: bool) -> bool:
    node = _scalar(of, key)
    if node is None:
        return default
    if (word := node.text.lower()) not in {"true", "false"}:
        raise Problem(node.place, f"{key} must be true or false, and is {describe(node)}")
    return word == "true"


def number(of: Object, key: str) -> Decimal | None:
    """A finite number as it was written; None when it is missing."""
    node = _scalar(of, key)
    if node is None:
        return None
    wrong = Problem(node.place, f"{key} must be a number, and is {describe(node)}")
    if isinstance(node.value, bool):
        raise wrong
    try:
        value = Decimal(node.text)
    except InvalidOperation:
        raise wrong from None
    if not value.is_finite():
        raise wrong
    return value


def count(of: Object, key: str) -> int | None:
    """A whole number from 0 on; None when it is missing."""
    value = number(of, key)
    if value is None:
        return None
    if value < 0 or value != value.to_integral_value():
        node = of.members[key]
        raise Problem(node.place, f"{key} must be a whole number, and is {describe(node)}")
    return int(value)


def _scalar(of: Object, key: str) -> Scalar | None:
    node = of.members.get(key)
    if node is None or (isinstance(node, Scalar) and node.value is None):
        return None
    return _single(node)


def _single(node: Node) -> Scalar:
    if isinstance(node, Scalar) and node.value is not None:
        return node
    raise Problem(node.place, f"a single value was expected here, and not {describe(node)}")
