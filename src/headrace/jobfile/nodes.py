"""The values of a job file as a tree in which each value and key knows its place.

Checks work on these nodes, whether they came from a file or over the wire (`from_json`), so
that there is one set of checks. They raise `Problem`; who knows the file's name adds it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Literal, NamedTuple, get_args

from pydantic import JsonValue

Role = Literal["source", "transform", "sink"]
ROLES: tuple[Role, ...] = get_args(Role)
VARIABLE = re.compile(r"\$\{([^:{}]+)(?::([^}]*))?\}")

Plain = str | int | float | bool | None


class Place(NamedTuple):
    line: int
    column: int


NOWHERE = Place(0, 0)  # of values that came over the wire


class Problem(Exception):
    """Something in a job is wrong at a place. Entry points turn it into a `Refused`."""

    def __init__(self, place: Place, text: str) -> None:
        self.place, self.text = place, text
        super().__init__(text)


Note = Callable[[Place, str], None]  # tells of what is accepted, and not what it seems


def untold(_place: Place, _text: str) -> None:
    """The note of whoever has nobody to tell."""


@dataclass(frozen=True, slots=True)
class Scalar:
    place: Place
    value: Plain
    text: str  # as written, so that 1.10 stays "1.10" where a string is wanted


@dataclass(frozen=True, slots=True)
class Reference:
    """`${path}` outside of quotes; only between reading and substitution."""

    place: Place
    text: str
    before: Node | None = None  # what the key held before, for an optional one without a value


@dataclass(frozen=True, slots=True)
class Joined:
    """Lists or objects side by side, a variable among them; only until substitution."""

    place: Place
    parts: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class Array:
    place: Place
    items: tuple[Node, ...]


@dataclass(slots=True)
class Object:
    place: Place
    members: dict[str, Node] = field(default_factory=dict[str, "Node"])
    keys: dict[str, Place] = field(default_factory=dict[str, Place])

    def put(self, key: str, place: Place, node: Node) -> None:
        self.members[key] = node
        self.keys[key] = place

    def walk(self) -> Iterator[tuple[str, Place, Node]]:
        for key, node in self.members.items():
            yield key, self.keys[key], node


Node = Scalar | Reference | Joined | Array | Object


@dataclass(frozen=True, slots=True)
class Written:
    """A plugin as it stands in the file."""

    role: Role
    name: str
    place: Place
    options: Object


def describe(node: Node) -> str:
    """What a value is, for an error message."""
    match node:
        case Scalar(value=str()):
            return repr(node.text)
        case Scalar():
            return node.text
        case Array():
            return "a list"
        case Object():
            return "an object"
        case Reference() | Joined():
            return "an expression"


def no_value(text: str) -> str:
    """What to add to an error when a variable was left in the value."""
    left = VARIABLE.search(text)
    return f"; variable {left[1]!r} has no value, give it with -i {left[1]}=…" if left else ""


def to_json(node: Node) -> JsonValue:
    match node:
        case Scalar():
            return node.value
        case Array():
            return [to_json(item) for item in node.items]
        case Object():
            return {key: to_json(member) for key, member in node.members.items()}
        case Reference() | Joined():
            raise Problem(node.place, "this value was used before its variables were replaced")


def from_json(value: JsonValue) -> Node:
    if isinstance(value, dict):
        node = Object(NOWHERE)
        for key, member in value.items():
            node.put(key, NOWHERE, from_json(member))
        return node
    if isinstance(value, list):
        return Array(NOWHERE, tuple(from_json(item) for item in value))
    return scalar(NOWHERE, value)


def scalar(place: Place, value: Plain) -> Scalar:
    match value:
        case None:
            return Scalar(place, value, "null")
        case bool():
            return Scalar(place, value, "true" if value else "false")
        case _:
            return Scalar(place, value, str(value))
