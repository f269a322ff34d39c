"""Variables: `${name}`, `${name:default}`, `${?name}`, inside of quotes and outside.

A value is looked for among the given variables (-i), the environment, and then the document
itself (`${env.job.name}`). What is found nowhere stays in the text, marked as unset: only an
option whose declaration lists it among its placeholders, which are replaced while the job runs,
may keep it (`${transactionId}`), and does so whatever the environment has. The reserved ones are
never looked for. `$${` writes `${`; a `${` that begins no variable is refused, since it would be
sent as it stands.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping

from headrace.errors import BadSetting
from headrace.jobfile.document import Document, join
from headrace.jobfile.nodes import (
    NESTING_MAX,
    RESERVED,
    VARIABLE,
    Array,
    Joined,
    Node,
    Object,
    Place,
    Problem,
    Reference,
    Scalar,
    Unset,
    Written,
)
from headrace.jobfile.registry import declaration
from headrace.jobfile.suggest import nearest
from headrace.model.text import storing_flaw

REFERENCE_DEPTH_MAX = 32  # references to references
COPIED_NODES_MAX = 100_000  # lists and objects that references repeat
TEXT_CHARS_MAX = 1_000_000
_ESCAPED_OR_VARIABLE = re.compile(
    rf"(?P<escaped>\$\$\{{)|{VARIABLE.pattern}|(?P<other>\$\{{[^\s\"]{{0,40}})"
)

_Keeps = Callable[[str], bool]  # whether an option replaces a variable itself


def _keeps_nothing(_name: str) -> bool:
    return False


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
        self._keeps: _Keeps = _keeps_nothing
        self._copied = 0
        self._depth = 0  # of the object or list that is being made
        self.referred: set[str] = set()

    def resolve(self, node: Node) -> Node | None:
        """The node with values in place of variables; None when an optional one has none."""
        match node:
            case Scalar(value=str() as text) if "${" in text:
                return self.text(text, node.place)
            case Scalar():
                return node
            case Array():
                self._deeper(node.place)
                items = [self.resolve(item) for item in node.items]
                self._depth -= 1
                return Array(node.place, tuple(item for item in items if item is not None))
            case Object():
                return self.object(node)
            case Reference():
                return self._reference(node)
            case Joined():
                parts = [self.resolve(part) for part in node.parts]
                left = tuple(part for part in parts if part is not None)
                return join(node.place, left) if left else None

    def options(self, plugin: Written, name: str) -> Object:
        """Those of a plugin. A placeholder of an option is its own, unless -i gives it a value."""
        result, decl = Object(plugin.options.place), declaration(plugin.role, name)
        self._deeper(result.place)
        for key, place, member in plugin.options.walk():
            option = decl.options.find(key) if decl is not None else None
            self._keeps = option.replaces if option is not None else _keeps_nothing
            value = self.resolve(member)
            self._keeps = _keeps_nothing
            if value is not None:
                result.put(self.name(key, place), place, value)
        self._depth -= 1
        return result

    def object(self, node: Object) -> Object:
        self._deeper(node.place)
        result = Object(node.place)
        for key, place, member in node.walk():
            value = self.resolve(member)
            if value is not None:
                result.put(self.name(key, place), place, value)
        self._depth -= 1
        return result

    def name(self, text: str, place: Place) -> str:
        """A key, or the name of a plugin: nothing replaces a placeholder there later on."""
        if "${" not in text:
            return text
        replaced = self.text(text, place)
        for unset in replaced.unset:
            raise Problem(place, str(unset))
        return replaced.text

    def text(self, text: str, place: Place) -> Scalar:
        unset: list[Unset] = []

        def value_of(found: re.Match[str]) -> str:
            if found["escaped"]:
                return found["escaped"][1:]
            _check_variable(found, place)
            name, default = found[2].strip(), found[3]
            value = self._look_up(name.removeprefix("?"), place)
            if isinstance(value, Scalar):
                unset.extend(value.unset)
                return value.text
            if default is not None and name not in RESERVED:
                return default
            if name.startswith("?"):
                return ""
            unset.append(self._unset(name, value, place))
            return found[0]

        replaced = _ESCAPED_OR_VARIABLE.sub(value_of, text)
        if len(replaced) > TEXT_CHARS_MAX:
            raise Problem(place, f"references make a text of more than {TEXT_CHARS_MAX} characters")
        return Scalar(place, replaced, replaced, tuple(dict.fromkeys(unset)))

    def _reference(self, node: Reference) -> Node | None:
        found = VARIABLE.fullmatch(node.text)
        name = (found[1] if found else node.text[2:-1]).strip()
        optional = name.startswith("?")
        value = self._look_up(name.removeprefix("?"), node.place)
        if value is not None:
            self._copied += _size(value)
            if self._copied > COPIED_NODES_MAX:
                raise Problem(node.place, f"references repeat more than {COPIED_NODES_MAX} values")
            self._deeper(node.place, _levels(value))
            self._depth -= _levels(value)
            return value
        if optional:
            return None if node.before is None else self.resolve(node.before)
        default = found[2] if found else None
        if default is not None and name not in RESERVED:
            return Scalar(node.place, default, default)
        return Scalar(node.place, node.text, node.text, (self._unset(name, None, node.place),))

    def _unset(self, name: str, value: Node | None, place: Place) -> Unset:
        if value is not None:
            raise Problem(place, f"${{{name}}} is a block or a list, and can't be put into a text")
        if name in RESERVED:
            return Unset(name, reserved=True)
        # The environment comes last: it has names that nobody thinks of.
        known = (*self._given[0], *_paths(self._root, ""))
        return Unset(name, nearest(name, known) or nearest(name, self._given[1]))

    def _look_up(self, name: str, place: Place) -> Node | None:
        if name in RESERVED or not name:
            return None
        for given in self._given[:1] if self._keeps(name) else self._given:
            if name in given:
                if (flaw := storing_flaw(given[name])) is not None:
                    raise Problem(place, f"the value of variable {name!r} has {flaw}")
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
        keeps, self._keeps = self._keeps, _keeps_nothing  # what is found is of no option
        try:
            return self.resolve(node)
        finally:
            self._keeps = keeps
            self._open.pop()

    def _deeper(self, place: Place, levels: int = 1) -> None:
        self._depth += levels
        if self._depth > NESTING_MAX:
            raise Problem(place, f"nested more than {NESTING_MAX} deep, references included")


def _check_variable(found: re.Match[str], place: Place) -> None:
    nameless = found["other"] or (found[2].strip() == "?" and found[3] is None)
    if nameless or "${" in (found[3] or ""):
        raise Problem(
            place,
            f"{found[0]!r} is no variable: write ${{name}} or ${{name:default}}, with no variable "
            "inside of it, or $${ for the text ${ itself",
        )


def _size(node: Node) -> int:
    match node:
        case Array():
            return 1 + sum(_size(item) for item in node.items)
        case Object():
            return 1 + sum(_size(member) for member in node.members.values())
        case _:
            return 1


def _levels(node: Node) -> int:
    match node:
        case Array():
            return 1 + max((_levels(item) for item in node.items), default=0)
        case Object():
            return 1 + max((_levels(member) for member in node.members.values()), default=0)
        case _:
            return 0


def _paths(block: Object, prefix: str) -> Iterator[str]:
    """What a reference into the document may name."""
    for key, _, node in block.walk():
        yield prefix + key
        if isinstance(node, Object):
            yield from _paths(node, f"{prefix}{key}.")


def substitute(
    document: Document, *, variables: Mapping[str, str], environment: Mapping[str, str]
) -> tuple[Document, frozenset[str]]:
    """The document with its variables replaced, and the root keys that references used."""
    resolver = Resolver(document.root, variables=variables, environment=environment)
    plugins: list[Written] = []
    for plugin in document.plugins:
        name = resolver.name(plugin.name, plugin.place)
        options = resolver.options(plugin, name)
        plugins.append(Written(plugin.role, name, plugin.place, options))
    return Document(resolver.object(document.root), plugins), frozenset(resolver.referred)
