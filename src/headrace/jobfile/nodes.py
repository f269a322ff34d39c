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
# What SeaTunnel's sinks replace for each table.
RESERVED = frozenset(
    {
        "database_name",
        "schema_name",
        "table_name",
        "schema_full_name",
        "table_full_name",
        "primary_key",
        "unique_key",
        "field_names",
    }
)
NESTING_MAX = 64  # blocks and lists inside each other, however they are written

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
class Unset:
    """A variable for which nobody gave a value. Only an option that replaces it may keep it."""

    name: str
    near: str | None = None  # the name that was probably meant
    reserved: bool = False  # SeaTunnel's sinks replace it, so that nobody else may give it

    def __str__(self) -> str:
        if self.reserved:
            return (
                f"${{{self.name}}} stands for a part of each table's name in SeaTunnel's sinks, "
                "which is not built yet; write the name itself"
            )
        meant = f" (did you mean {self.near!r}?)" if self.near else ""
        return (
            f"variable {self.name!r} has no value{meant}; give it with -i {self.name}=… or in the "
            f"environment, or write $${{{self.name}}} for the text ${{{self.name}}} itself"
        )


@dataclass(frozen=True, slots=True)
class Scalar:
    place: Place
    value: Plain
    text: str  # as written, so that 1.10 stays "1.10" where a string is wanted
    unset: tuple[Unset, ...] = ()  # variables that still stand in the text


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


def scalars(node: Node) -> Iterator[Scalar]:
    """Every single value in a tree."""
    match node:
        case Scalar():
            yield node
        case Array():
            for item in node.items:
                yield from scalars(item)
        case Object():
            for member in node.members.values():
                yield from scalars(member)
        case Reference() | Joined():
            raise Problem(node.place, "this value was used before its variables were replaced")


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
