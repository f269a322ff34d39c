"""The YAML reader: from the text of a job file to the same document of nodes as HOCON gives.

`source`, `transform` and `sink` hold a list of objects with `plugin_name`, as in JSON, or a mapping
from the names of plugins to their options. Keys are taken as they stand: `row.num: 5` sets that
option. Texts without quotes mean what they mean in HOCON, which is close to YAML 1.2: `true`,
`null` and numbers are values, and `on`, `no` and `yes` are texts. `${name}` without quotes may
stand for a list or a block of the file, as in HOCON.

The tree is made from the parser's events, and from nothing that could construct an object. A tag
is refused, but for `!!str`. An alias repeats what its anchor names, and what all of them repeat is
limited, as is the depth; `<<` takes over the members of a mapping. A key that stands twice in a
mapping is refused, since one of the two would be lost.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, cast

import yaml

from headrace.jobfile.hocon import Document, plain_value, plugins_of_list
from headrace.model.text import storing_flaw
from headrace.plugins.problems import Problems
from headrace.plugins.syntax_tree import (
    NESTING_MAX,
    ROLES,
    VARIABLE,
    Array,
    FilePlace,
    Node,
    Object,
    PluginBlock,
    Problem,
    Reference,
    Role,
    Scalar,
)

if TYPE_CHECKING:
    from yaml.error import Mark

NODES_MAX = 100_000  # of the tree, those that aliases repeat included
MERGE = "<<"
_ROLE_OF: dict[str, Role] = {role: role for role in ROLES}
_TEXT_TAG = "tag:yaml.org,2002:str"
_LITERALS = {"~": None, "": None, "Null": None, "NULL": None} | {
    word: value
    for text, value in (("true", True), ("false", False))
    for word in (text.capitalize(), text.upper())
}


def read_yaml(text: str, problems: Problems) -> Document:
    """The document that a text describes. What is wrong with it is added to `problems`, and the
    document is not to be used if anything is."""
    document = Document(Object(FilePlace(1, 1)))
    try:
        root = _TreeBuilder(text, problems).tree()
    except Problem as problem:
        problems.add(problem)
        return document
    document.root = Object(root.place)
    for key, place, node in root.walk():
        role = _ROLE_OF.get(key)
        if role is None:
            document.root.put(key, place, node)
            continue
        with problems.collect():
            document.plugins += _plugins(role, node)
    return document


def _plugins(role: Role, node: Node) -> list[PluginBlock]:
    if isinstance(node, Scalar) and node.value is None:  # `transform:` with nothing behind it
        return []
    if not isinstance(node, Object):
        return plugins_of_list(role, node)
    plugins: list[PluginBlock] = []
    for name, place, written in node.walk():
        nothing = isinstance(written, Scalar) and written.value is None
        options = Object(written.place) if nothing else written
        if not isinstance(options, Object):
            raise Problem(place, f"{role} {name} must be a mapping of its options")
        plugins.append(PluginBlock(role, name, place, options))
    return plugins


class _TreeBuilder:
    """Makes the tree of one text from the events of the parser."""

    def __init__(self, text: str, problems: Problems) -> None:
        self._text, self._problems = text, problems
        self._anchors: dict[str, Node] = {}
        self._sizes: dict[str, int] = {}  # by anchor: the nodes below it, aliases carried out
        self._nodes = 0

    def tree(self) -> Object:
        events = _events(self._text)
        for event in events:
            if isinstance(event, yaml.DocumentStartEvent):
                break
        else:
            raise Problem(FilePlace(1, 1), "the file is empty; write a job into it")
        root = self._node(next(events), events, depth=1)
        for event in events:
            if isinstance(event, yaml.DocumentStartEvent):
                text = "a second document begins here; a job file holds one job"
                raise Problem(_place(event.start_mark), text)
        if isinstance(root, Object):
            return root
        raise Problem(
            root.place, "a job file is a mapping: `env:`, `source:`, `transform:` and `sink:`"
        )

    def _node(self, event: yaml.Event, events: Iterator[yaml.Event], *, depth: int) -> Node:
        place = _place(event.start_mark)
        if isinstance(event, yaml.AliasEvent):
            return self._alias(event, place)
        if depth > NESTING_MAX:
            raise Problem(place, f"nested more than {NESTING_MAX} deep")
        before = self._nodes
        self._count(1, place)
        match event:
            case yaml.ScalarEvent():
                node = _scalar(event, place)
                self._check_tag(None if event.tag == _TEXT_TAG else event.tag, place)
            case yaml.SequenceStartEvent():
                self._check_tag(event.tag, place)
                node = Array(place, tuple(self._items(events, depth=depth)))
            case _:
                assert isinstance(event, yaml.MappingStartEvent)
                self._check_tag(event.tag, place)
                node = self._mapping(place, events, depth=depth)
        if event.anchor is not None:
            self._anchors[event.anchor] = node
            self._sizes[event.anchor] = self._nodes - before
        return node

    def _items(self, events: Iterator[yaml.Event], *, depth: int) -> Iterator[Node]:
        for event in events:
            if isinstance(event, yaml.SequenceEndEvent):
                return
            yield self._node(event, events, depth=depth + 1)

    def _mapping(self, place: FilePlace, events: Iterator[yaml.Event], *, depth: int) -> Object:
        node, merged = Object(place), list[Object]()
        for event in events:
            if isinstance(event, yaml.MappingEndEvent):
                break
            key_place = _place(event.start_mark)
            key = self._node(event, events, depth=depth + 1)
            value = self._node(next(events), events, depth=depth + 1)
            if not isinstance(key, Scalar | Reference):
                raise Problem(key_place, "a key must be a text")
            if key.text == MERGE and isinstance(event, yaml.ScalarEvent) and event.style is None:
                merged += _merged(value, key_place)
            elif key.text in node.members:
                said = f"the key {key.text!r} stands in line {node.keys[key.text].line} already"
                self._problems.add(Problem(key_place, f"{said}; remove one of the two"))
            else:
                node.put(key.text, key_place, value)
        for other in merged:
            _take_over(other, node)
        return node

    def _alias(self, event: yaml.AliasEvent, place: FilePlace) -> Node:
        anchor = event.anchor
        if anchor not in self._anchors:
            # Its name is not shown: it may be a secret without quotes.
            text = "this alias, *NAME, names nothing that stands before it, completely; write &NAME"
            raise Problem(place, f"{text} at the value that is to be repeated, or quote the text")
        self._count(self._sizes[anchor], place)
        node = self._anchors[anchor]
        # The copies must not share what later steps change in place.
        if isinstance(node, Object):
            return Object(node.place, dict(node.members), dict(node.keys))
        return node

    def _check_tag(self, tag: str | None, place: FilePlace) -> None:
        if tag is not None and tag != "!":
            # Nor is a tag shown, for the same reason.
            text = "a text that begins with '!' is a tag, which is not supported; quote it"
            self._problems.add(Problem(place, text))

    def _count(self, nodes: int, place: FilePlace) -> None:
        self._nodes += nodes
        if self._nodes > NODES_MAX:
            raise Problem(place, f"the file has more than {NODES_MAX} values, aliases included")


def _take_over(merged: Object, node: Object) -> None:
    """What stands in the mapping itself wins, and then what was merged first."""
    for name, place, member in merged.walk():
        if name not in node.members:
            node.put(name, place, member)


def _merged(node: Node, place: FilePlace) -> list[Object]:
    parts = node.items if isinstance(node, Array) else (node,)
    found = [part for part in parts if isinstance(part, Object)]
    if len(found) < len(parts):
        raise Problem(place, f"{MERGE} takes a mapping, or a list of mappings")
    return found


def _scalar(event: yaml.ScalarEvent, place: FilePlace) -> Node:
    text: str = event.value
    if (flaw := storing_flaw(text)) is not None:
        raise Problem(place, f"this text has {flaw}")
    if event.style is not None or event.tag == _TEXT_TAG:
        return Scalar(place, text, text)
    if VARIABLE.fullmatch(text):
        return Reference(place, text)
    value = _LITERALS[text] if text in _LITERALS else plain_value(text)
    return Scalar(place, value, text or "null")


def _events(text: str) -> Iterator[yaml.Event]:
    """The events of the parser. Its errors become problems, with their place."""
    try:
        parse = cast("Callable[..., Iterator[yaml.Event]]", getattr(yaml, "parse"))  # noqa: B009
        yield from parse(text, Loader=yaml.SafeLoader)
    except yaml.reader.ReaderError as error:
        at = error.position if isinstance(error.position, int) else 0
        before = text[:at]
        place = FilePlace(before.count("\n") + 1, at - before.rfind("\n"))
        raise Problem(place, "a character stands here that YAML does not allow") from None
    except yaml.MarkedYAMLError as error:
        raise _syntax_problem(error) from None
    except (ValueError, OverflowError):  # of an escape such as "\\U00110000"
        raise Problem(FilePlace(1, 1), "an escape in a text names no character") from None


def _syntax_problem(error: yaml.MarkedYAMLError) -> Problem:
    mark = error.problem_mark or error.context_mark
    text = str(error.problem or "this can't be read")
    if (begin := error.context_mark) is not None and error.context:
        text += f", {error.context} that begins in line {begin.line + 1}, column {begin.column + 1}"
    return Problem(FilePlace(1, 1) if mark is None else _place(mark), f"this is no YAML: {text}")


def _place(mark: Mark) -> FilePlace:
    return FilePlace(mark.line + 1, mark.column + 1)
