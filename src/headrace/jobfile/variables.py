"""Variables: `${name}`, `${name:default}`, `${?name}`, inside of quotes and outside.

A value is looked for among the given variables (-i), the environment, and then the document
itself (`${env.job.name}`). What is found nowhere stays as it stands, since sinks have run-time
placeholders of their own (`${transactionId}`); the reserved ones are never looked for.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from headrace.errors import BadSetting
from headrace.jobfile.document import Document, join
from headrace.jobfile.nodes import (
    VARIABLE,
    Array,
    Joined,
    Node,
    Object,
    Place,
    Problem,
    Reference,
    Scalar,
    Written,
)

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
REFERENCE_DEPTH_MAX = 32  # references to references
COPIED_NODES_MAX = 100_000  # lists and objects that references repeat
TEXT_CHARS_MAX = 1_000_000


def check_variables(variables: Mapping[str, str]) -> None:
    for name in variables:
        if name in RESERVED:
            raise BadSetting(
                f"variable {name!r} is reserved: sinks replace ${{{name}}} for each table; "
                "give the variable another name"
            )


class Resolver:
    """Replaces the variables of one document. `referred` tells which root keys were used."""

    def __init__(
        self, root: Object, *, variables: Mapping[str, str], environment: Mapping[str, str]
    ) -> None:
        self._root = root
        self._given = (variables, environment)
        self._found: dict[str, Node | None] = {}
        self._open: list[str] = []
        self._copied = 0
        self.referred: set[str] = set()

    def resolve(self, node: Node) -> Node | None:
        """The node with values in place of variables; None when an optional one has none."""
        match node:
            case Scalar(value=str() as text) if "${" in text:
                replaced = self._text(text, node.place)
                return Scalar(node.place, replaced, replaced)
            case Scalar():
                return node
            case Array():
                items = [self.resolve(item) for item in node.items]
                return Array(node.place, tuple(item for item in items if item is not None))
            case Object():
                return self.object(node)
            case Reference():
                return self._reference(node)
            case Joined():
                parts = [self.resolve(part) for part in node.parts]
                left = tuple(part for part in parts if part is not None)
                return join(node.place, left) if left else None

    def object(self, node: Object) -> Object:
        result = Object(node.place)
        for key, place, member in node.walk():
            value = self.resolve(member)
            if value is not None:
                result.put(key, place, value)
        return result

    def _reference(self, node: Reference) -> Node | None:
        found = VARIABLE.fullmatch(node.text)
        name = (found[1] if found else node.text[2:-1]).strip()
        optional = name.startswith("?")
        value = self._look_up(name.removeprefix("?"), node.place)
        if value is not None:
            self._copied += _size(value)
            if self._copied > COPIED_NODES_MAX:
                raise Problem(node.place, f"references repeat more than {COPIED_NODES_MAX} values")
            return value
        if optional:
            return None if node.before is None else self.resolve(node.before)
        default = found[2] if found else None
        text = node.text if default is None or name in RESERVED else default
        return Scalar(node.place, text, text)

    def _text(self, text: str, place: Place) -> str:
        def value_of(found: re.Match[str]) -> str:
            name = found[1].strip()
            value = self._look_up(name.removeprefix("?"), place)
            if isinstance(value, Scalar):
                return value.text
            if name.startswith("?"):
                return ""
            return found[0] if found[2] is None or name in RESERVED else found[2]

        replaced = VARIABLE.sub(value_of, text)
        if len(replaced) > TEXT_CHARS_MAX:
            raise Problem(place, f"references make a text of more than {TEXT_CHARS_MAX} characters")
        return replaced

    def _look_up(self, name: str, place: Place) -> Node | None:
        if name in RESERVED:
            return None
        for given in self._given:
            if name in given:
                return Scalar(place, given[name], given[name])
        if name not in self._found:
            self._found[name] = self._in_document(name, place)
        return self._found[name]

    def _in_document(self, name: str, place: Place) -> Node | None:
        node: Node | None = self._root
        for key in name.split("."):
            node = node.members.get(key) if isinstance(node, Object) else None
        if node is None:
            return None
        if name in self._open:
            raise Problem(place, f"${{{name}}} refers to itself")
        if len(self._open) >= REFERENCE_DEPTH_MAX:
            raise Problem(place, f"more than {REFERENCE_DEPTH_MAX} references to references")
        self.referred.add(name.split(".", maxsplit=1)[0])
        self._open.append(name)
        try:
            return self.resolve(node)
        finally:
            self._open.pop()


def _size(node: Node) -> int:
    match node:
        case Array():
            return 1 + sum(_size(item) for item in node.items)
        case Object():
            return 1 + sum(_size(member) for member in node.members.values())
        case _:
            return 1


def substitute(
    document: Document, *, variables: Mapping[str, str], environment: Mapping[str, str]
) -> tuple[Document, frozenset[str]]:
    """The document with its variables replaced, and the root keys that references used."""
    resolver = Resolver(document.root, variables=variables, environment=environment)
    plugins = [
        Written(plugin.role, plugin.name, plugin.place, resolver.object(plugin.options))
        for plugin in document.plugins
    ]
    return Document(resolver.object(document.root), plugins), frozenset(resolver.referred)
