"""Substitution of variables: `${name}`, `${name:default}`, `${?name}`, in and outside of quotes.

A value is looked up among the given variables (-i), then in the environment, and then in the
document itself (`${env.job.name}`). A variable without a value stays in the text and is marked as
unset. Only an option whose declaration lists it among its placeholders, which are replaced while
the job runs, may keep it (`${transactionId}`); in such an option the environment is not asked for
that name. The reserved names are never looked up. `$${` writes `${`. A `${` that begins no
variable is refused, since it would be sent as it stands.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping

from headrace.errors import BadSetting
from headrace.jobfile.hocon import Document, concatenate
from headrace.model.text import nearest, storing_flaw
from headrace.plugins.catalog import catalog
from headrace.plugins.problems import Problems
from headrace.plugins.syntax_tree import (
    NESTING_MAX,
    RESERVED,
    VARIABLE,
    Array,
    Concatenation,
    FilePlace,
    Node,
    Object,
    PluginBlock,
    Problem,
    Reference,
    Scalar,
    UnsetVariable,
)

REFERENCE_DEPTH_MAX = 32  # of references to references
COPIED_NODES_MAX = 100_000  # nodes that references repeat
TEXT_CHARS_MAX = 1_000_000
_ESCAPED_OR_VARIABLE = re.compile(
    rf"(?P<escaped>\$\$\{{)|{VARIABLE.pattern}|(?P<other>\$\{{[^\s\"]{{0,40}})"
)

_IsPlaceholder = Callable[[str], bool]  # whether an option replaces this variable itself


def check_variables(variables: Mapping[str, str]) -> None:
    """Refuse variables (-i) with a reserved name. Raises `BadSetting`."""
    for name in variables:
        if name in RESERVED:
            raise BadSetting(
                f"variable {name!r} is reserved: sinks replace ${{{name}}} for each table; "
                "give the variable another name"
            )


def substitute(
    document: Document,
    *,
    variables: Mapping[str, str],
    environment: Mapping[str, str],
    problems: Problems | None = None,
) -> tuple[Document, frozenset[str]]:
    """The document with its variables replaced, and the root keys that references used.

    Raises `Problem` for the first mistake; with `problems` all of them are added to these, and
    what they are in is missing from the document.
    """
    kept = Problems() if problems is None else problems
    resolver = Resolver(document.root, variables=variables, environment=environment, problems=kept)
    plugins: list[PluginBlock] = []
    for plugin in document.plugins:
        with kept.collect():
            name = resolver.name(plugin.name, plugin.place)
            options = resolver.options(plugin, name)
            plugins.append(PluginBlock(plugin.role, name, plugin.place, options))
    root = resolver.members(document.root)
    if problems is None:
        kept.check()
    return Document(root, plugins), frozenset(resolver.referred)


def _no_placeholder(_name: str) -> bool:
    return False


def _never(_key: str) -> _IsPlaceholder:
    return _no_placeholder


class Resolver:
    """Replaces the variables of one document. `referred`: the root keys that references used."""

    def __init__(
        self,
        root: Object,
        *,
        variables: Mapping[str, str],
        environment: Mapping[str, str],
        problems: Problems,
    ) -> None:
        self._root, self._problems = root, problems
        self._value_maps = (variables, environment)  # the first has precedence
        self._resolved: dict[str, Node | Problem | None] = {}  # by path in the document
        self._resolving: list[str] = []  # the references being followed, to find cycles
        self._is_placeholder: _IsPlaceholder = _no_placeholder
        self._copied = 0
        self._depth = 0  # of the object or list that is being built
        self.referred: set[str] = set()

    def resolve(self, node: Node) -> Node | None:
        """The node with its variables replaced; None for an optional variable without a value."""
        match node:
            case Scalar(value=str() as text) if "${" in text:
                return self.text(text, node.place)
            case Scalar():
                return node
            case Array():
                self._descend(node.place)
                items = [self.resolve(item) for item in node.items]
                self._depth -= 1
                return Array(node.place, tuple(item for item in items if item is not None))
            case Object():
                return self.object(node)
            case Reference():
                return self._reference(node)
            case Concatenation():
                parts = [self.resolve(part) for part in node.parts]
                present = tuple(part for part in parts if part is not None)
                return concatenate(node.place, present) if present else None

    def options(self, plugin: PluginBlock, name: str) -> Object:
        """The options of a plugin. An option keeps its placeholders, unless -i or the document
        gives them a value."""
        descriptor = catalog().find(plugin.role, name)

        def is_placeholder(key: str) -> _IsPlaceholder:
            option = descriptor.options.find(key) if descriptor is not None else None
            return option.replaces if option is not None else _no_placeholder

        return self.members(plugin.options, is_placeholder)

    def members(
        self, node: Object, is_placeholder: Callable[[str], _IsPlaceholder] = _never
    ) -> Object:
        """An outermost block. What is wrong with one of its members does not hide the others."""
        result = Object(node.place)
        for key, place, member in node.walk():
            self._depth, self._is_placeholder = 1, is_placeholder(key)
            with self._problems.collect():
                value = self.resolve(member)
                if value is not None:
                    result.put(self.name(key, place), place, value)
        self._depth, self._is_placeholder = 0, _no_placeholder
        return result

    def object(self, node: Object) -> Object:
        self._descend(node.place)
        result = Object(node.place)
        for key, place, member in node.walk():
            value = self.resolve(member)
            if value is not None:
                result.put(self.name(key, place), place, value)
        self._depth -= 1
        return result

    def name(self, text: str, place: FilePlace) -> str:
        """A key or a plugin's name, replaced. It must keep no variable: no option replaces that."""
        if "${" not in text:
            return text
        replaced = self.text(text, place)
        for unset in replaced.unset:
            raise Problem(place, str(unset), variable="" if unset.reserved else unset.name)
        return replaced.text

    def text(self, text: str, place: FilePlace) -> Scalar:
        """A text with its variables replaced; those without a value stay, marked as unset."""
        unset: list[UnsetVariable] = []

        def value_of(match: re.Match[str]) -> str:
            if match["escaped"]:
                return match["escaped"][1:]
            _check_variable(match, place)
            name, default = match[2].strip(), match[3]
            value = self._look_up(name.removeprefix("?"), place)
            if isinstance(value, Scalar):
                unset.extend(value.unset)
                return value.text
            if default is not None and name not in RESERVED:
                return default
            if name.startswith("?"):
                return ""
            unset.append(self._unset(name, value, place))
            return match[0]

        replaced = _ESCAPED_OR_VARIABLE.sub(value_of, text)
        if len(replaced) > TEXT_CHARS_MAX:
            raise Problem(place, f"references make a text of more than {TEXT_CHARS_MAX} characters")
        return Scalar(place, replaced, replaced, tuple(dict.fromkeys(unset)))

    def _reference(self, node: Reference) -> Node | None:
        match = VARIABLE.fullmatch(node.text)
        name = (match[1] if match else node.text[2:-1]).strip()
        optional = name.startswith("?")
        value = self._look_up(name.removeprefix("?"), node.place)
        if value is not None:
            self._copied += _size(value)
            if self._copied > COPIED_NODES_MAX:
                raise Problem(node.place, f"references repeat more than {COPIED_NODES_MAX} values")
            self._descend(node.place, _levels(value))
            self._depth -= _levels(value)
            return value
        if optional:
            return None if node.before is None else self.resolve(node.before)
        default = match[2] if match else None
        if default is not None and name not in RESERVED:
            return Scalar(node.place, default, default)
        return Scalar(node.place, node.text, node.text, (self._unset(name, None, node.place),))

    def _unset(self, name: str, value: Node | None, place: FilePlace) -> UnsetVariable:
        if value is not None:
            raise Problem(place, f"${{{name}}} is a block or a list, and can't be put into a text")
        if name in RESERVED:
            return UnsetVariable(name, reserved=True)
        # The environment comes last: it has many names that the user does not have in mind.
        known = (*self._value_maps[0], *_paths(self._root, ""))
        return UnsetVariable(name, nearest(name, known) or nearest(name, self._value_maps[1]))

    def _look_up(self, name: str, place: FilePlace) -> Node | None:
        if name in RESERVED or not name:
            return None
        for values in self._value_maps[:1] if self._is_placeholder(name) else self._value_maps:
            if name in values:
                if (flaw := storing_flaw(values[name])) is not None:
                    raise Problem(place, f"the value of variable {name!r} has {flaw}")
                return Scalar(place, values[name], values[name])
        if name not in self._resolved:
            try:
                self._resolved[name] = self._in_document(name, place)
            except Problem as problem:
                # Kept, so that what refers to it does not try again, and tell of it again.
                self._resolved[name] = problem
        resolved = self._resolved[name]
        if isinstance(resolved, Problem):
            raise resolved
        return resolved

    def _in_document(self, name: str, place: FilePlace) -> Node | None:
        node: Node | None = self._root
        for key in name.split("."):
            node = node.members.get(key) if isinstance(node, Object) else None
        if node is None:
            return None
        if name in self._resolving:
            raise Problem(place, f"${{{name}}} refers to itself")
        if len(self._resolving) >= REFERENCE_DEPTH_MAX:
            raise Problem(place, f"more than {REFERENCE_DEPTH_MAX} references to references")
        self.referred.add(name.split(".", maxsplit=1)[0])
        self._resolving.append(name)
        # What stands in the document is no part of the option that refers to it.
        outer, self._is_placeholder = self._is_placeholder, _no_placeholder
        try:
            return self.resolve(node)
        finally:
            self._is_placeholder = outer
            self._resolving.pop()

    def _descend(self, place: FilePlace, levels: int = 1) -> None:
        self._depth += levels
        if self._depth > NESTING_MAX:
            raise Problem(place, f"nested more than {NESTING_MAX} deep, references included")


def _check_variable(match: re.Match[str], place: FilePlace) -> None:
    nameless = match["other"] or (match[2].strip() == "?" and match[3] is None)
    if nameless or "${" in (match[3] or ""):
        raise Problem(
            place,
            f"{match[0]!r} is no variable: write ${{name}} or ${{name:default}}, with no variable "
            "inside of it, or $${ for the text ${ itself",
        )


def _size(node: Node) -> int:
    """How many nodes a tree has."""
    match node:
        case Array():
            return 1 + sum(_size(item) for item in node.items)
        case Object():
            return 1 + sum(_size(member) for member in node.members.values())
        case _:
            return 1


def _levels(node: Node) -> int:
    """How deep a tree is nested."""
    match node:
        case Array():
            return 1 + max((_levels(item) for item in node.items), default=0)
        case Object():
            return 1 + max((_levels(member) for member in node.members.values()), default=0)
        case _:
            return 0


def _paths(block: Object, prefix: str) -> Iterator[str]:
    """Every path that a reference into the document may name."""
    for key, _, node in block.walk():
        yield prefix + key
        if isinstance(node, Object):
            yield from _paths(node, f"{prefix}{key}.")
