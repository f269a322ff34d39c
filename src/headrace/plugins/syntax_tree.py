"""The syntax tree of a job file, in which each key and value knows its line and column.

The checks of options, schemas and rules work on these nodes, whether the values came from a file
or over the wire (`from_json`, without places), so that there is only one set of checks. A check
raises `Problem`, which has a place and no file name: the caller who knows the file adds it.
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
# Variables that SeaTunnel's sinks replace for each table, so that no user may define them.
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
NESTING_MAX = 64  # levels of blocks and lists, written with braces, brackets or dots

Plain = str | int | float | bool | None


class FilePlace(NamedTuple):
    line: int
    column: int


NOWHERE = FilePlace(0, 0)  # the place of a value that came over the wire


class Problem(Exception):
    """A mistake in a job, and its place. Entry points turn it into a `Refused`.

    `lacks`: what is not built here, when the job is right as such, e.g. `transform Copy`.
    `variable`: the name of a variable that only needs a value.
    """

    def __init__(self, place: FilePlace, text: str, *, lacks: str = "", variable: str = "") -> None:
        self.place, self.text, self.lacks, self.variable = place, text, lacks, variable
        super().__init__(text)


# Takes a warning: something is accepted, but does not have the effect that it seems to have.
Note = Callable[[FilePlace, str], None]


def ignore_note(_place: FilePlace, _text: str) -> None:
    """The `Note` of a caller who shows no warnings."""


@dataclass(frozen=True, slots=True)
class UnsetVariable:
    """A variable without a value. It may stay only in an option that replaces it at run time."""

    name: str
    near: str | None = None  # the known name that was probably meant
    reserved: bool = False  # one of `RESERVED`

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
    place: FilePlace
    value: Plain
    text: str  # as written, so that 1.10 stays "1.10" where a string is wanted
    unset: tuple[UnsetVariable, ...] = ()  # variables that `text` still contains


@dataclass(frozen=True, slots=True)
class Reference:
    """`${path}` outside of quotes. Substitution replaces it, so no later step meets one."""

    place: FilePlace
    text: str
    before: Node | None = None  # the key's earlier value, which stays if `${?path}` has none


@dataclass(frozen=True, slots=True)
class Concatenation:
    """HOCON's value concatenation of lists or objects, with a variable among them.

    It can be carried out, and is, once the variable is replaced: no later step meets one.
    """

    place: FilePlace
    parts: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class Array:
    place: FilePlace
    items: tuple[Node, ...]


@dataclass(slots=True)
class Object:
    place: FilePlace
    members: dict[str, Node] = field(default_factory=dict[str, "Node"])
    keys: dict[str, FilePlace] = field(default_factory=dict[str, FilePlace])

    def put(self, key: str, place: FilePlace, node: Node) -> None:
        self.members[key] = node
        self.keys[key] = place

    def walk(self) -> Iterator[tuple[str, FilePlace, Node]]:
        for key, node in self.members.items():
            yield key, self.keys[key], node


Node = Scalar | Reference | Concatenation | Array | Object


@dataclass(frozen=True, slots=True)
class PluginBlock:
    """A plugin as it is written in the file, before its options are checked."""

    role: Role
    name: str
    place: FilePlace
    options: Object


def describe(node: Node) -> str:
    """The value as an error message names it."""
    match node:
        case Scalar(value=str()):
            return repr(node.text)
        case Scalar():
            return node.text
        case Array():
            return "a list"
        case Object():
            return "an object"
        case Reference() | Concatenation():
            return "an expression"


def scalars(node: Node) -> Iterator[Scalar]:
    """Every scalar in a tree."""
    match node:
        case Scalar():
            yield node
        case Array():
            for item in node.items:
                yield from scalars(item)
        case Object():
            for member in node.members.values():
                yield from scalars(member)
        case Reference() | Concatenation():
            raise Problem(node.place, "this value was used before its variables were replaced")


def to_json(node: Node) -> JsonValue:
    match node:
        case Scalar():
            return node.value
        case Array():
            return [to_json(item) for item in node.items]
        case Object():
            return {key: to_json(member) for key, member in node.members.items()}
        case Reference() | Concatenation():
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


def scalar(place: FilePlace, value: Plain) -> Scalar:
    match value:
        case None:
            return Scalar(place, value, "null")
        case bool():
            return Scalar(place, value, "true" if value else "false")
        case _:
            return Scalar(place, value, str(value))
