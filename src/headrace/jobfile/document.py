"""A job file as a document: repeated keys merged, plugins kept as ordered lists.

SeaTunnel's rule differs from plain HOCON in one place: what stands under `source`, `transform`
and `sink` at the root is a list. Two FakeSource blocks there are two plugins, and not one that
was merged. The other form, a list of objects that name themselves by `plugin_name`, is that of
JSON job files.
"""

from __future__ import annotations

import itertools
import json
import re
from dataclasses import dataclass, field, replace
from decimal import Decimal
from typing import NamedTuple

from lark import Token

from headrace.jobfile.grammar import RawField, RawObject, RawPiece, RawValue, parse, place_of
from headrace.jobfile.nodes import (
    NESTING_MAX,
    ROLES,
    Array,
    Joined,
    Node,
    Object,
    Place,
    Plain,
    Problem,
    Reference,
    Role,
    Scalar,
    Written,
)
from headrace.model.text import storing_flaw

_ROLE_OF: dict[str, Role] = {role: role for role in ROLES}

NUMBER_CHARS_MAX = 300  # longer ones stay text
_NUMBER = re.compile(r"-?(?:0|[1-9]\d*)(\.\d+)?([eE][+-]?\d{1,3})?", re.ASCII)
_WORDS = {"true": True, "false": False, "null": None}
# "$"${x} is no $${x}: such a dollar becomes the default of a variable that has no name.
_DOLLARS = re.compile(r"\$+$")
_ESCAPE = re.compile(r'\\(?!["\\/bfnrt]|u[0-9a-fA-F]{4})(.)', re.DOTALL)


class Key(NamedTuple):
    name: str
    place: Place


@dataclass(slots=True)
class Document:
    root: Object  # without the plugins
    plugins: list[Written] = field(default_factory=list[Written])  # in the order of the file


def read_document(text: str) -> Document:
    """Raises `Problem` at the first thing that can't be understood."""
    if (nul := text.find("\0")) >= 0:
        line = text.count("\n", 0, nul) + 1
        raise Problem(Place(line, nul - text.rfind("\n", 0, nul)), "a NUL character stands here")
    raw = parse(text)
    build = _Builder(text)
    document = Document(Object(raw.place))
    for member in raw.fields:
        path = build.key(member.key)
        role = _ROLE_OF.get(path[0].name)
        if role is None:
            build.put(document.root, path, member)
        else:
            document.plugins += build.plugins(role, path, member)
    return document


class _Builder:
    def __init__(self, text: str) -> None:
        self.text = text
        self._depth = 0  # of the object that is being filled: braces and dots count alike

    def plugins(self, role: Role, path: list[Key], member: RawField) -> list[Written]:
        if len(path) > 1:
            return [self._plugin(role, path[1:], member)]
        match member.value.pieces:
            case [RawObject() as block]:
                return [self._plugin(role, self.key(f.key), f) for f in block.fields]
            case _:
                return self._listed(role, self.value(member.value))

    def _plugin(self, role: Role, path: list[Key], member: RawField) -> Written:
        name, place = path[0]
        holder = Object(place)
        self.put(holder, path, member)
        options = holder.members[name]
        if not isinstance(options, Object):
            raise Problem(place, f"{role} {name} must be a block: {name} {{ … }}")
        return Written(role, name, place, options)

    def _listed(self, role: Role, node: Node) -> list[Written]:
        if not isinstance(node, Array):
            raise Problem(node.place, f"{role} must be a block of plugins, or a list of them")
        found: list[Written] = []
        for item in node.items:
            name = item.members.get("plugin_name") if isinstance(item, Object) else None
            if not isinstance(item, Object) or not isinstance(name, Scalar):
                raise Problem(item.place, f"a {role} in a list must be an object with plugin_name")
            del item.members["plugin_name"]
            found.append(Written(role, name.text, name.place, item))
        return found

    def object(self, raw: RawObject) -> Object:
        node = Object(raw.place)
        for member in raw.fields:
            self.put(node, self.key(member.key), member)
        return node

    def put(self, into: Object, path: list[Key], member: RawField) -> None:
        for name, place in path[:-1]:
            inner = into.members.get(name)
            if not isinstance(inner, Object):
                inner = Object(place)
                into.put(name, place, inner)
            into = inner
        name, place = path[-1]
        before = into.members.get(name)
        self._depth += len(path)
        if self._depth > NESTING_MAX:
            raise Problem(
                place, f"nested more than {NESTING_MAX} deep; each dot of a key is a level, too"
            )
        value = self.value(member.value)
        self._depth -= len(path)
        into.put(name, place, _appended(before, value) if member.append else _over(before, value))

    def key(self, tokens: tuple[Token, ...]) -> list[Key]:
        """A path: dots part it, except inside of quotes."""
        place = place_of(tokens[0])
        parts = [""]
        end = tokens[0].start_pos or 0
        for token in tokens:
            parts[-1] += self.text[end : token.start_pos] if parts[-1] else ""
            end = token.end_pos or 0
            if token.type == "QUOTED":
                parts[-1] += _unquoted(token)
                continue
            first, *rest = str(token).split(".")
            parts[-1] += first
            parts += rest
        if len(parts) > NESTING_MAX:
            raise Problem(
                place, f"a key has {len(parts)} parts between its dots; at most {NESTING_MAX} fit"
            )
        if len(parts) > 1 and not all(parts):
            raise Problem(place, "a key has an empty part; put it in quotes if its dot is no path")
        return [Key(part, place) for part in parts]

    def value(self, raw: RawValue) -> Node:
        if len(raw.pieces) == 1:
            return self._piece(raw.pieces[0])
        tokens = [piece for piece in raw.pieces if isinstance(piece, Token)]
        if len(tokens) == len(raw.pieces):
            return self._joined_text(tokens)
        nodes = tuple(self._piece(piece) for piece in raw.pieces)
        return join(nodes[0].place, nodes)

    def _piece(self, piece: RawPiece) -> Node:
        if isinstance(piece, RawObject):
            return self.object(piece)
        if not isinstance(piece, Token):
            return Array(piece.place, tuple(self.value(item) for item in piece.items))
        if piece.type == "REFERENCE":
            return Reference(place_of(piece), str(piece))
        text = _text(piece)
        value = _plain(text) if piece.type == "UNQUOTED" else text
        return Scalar(place_of(piece), value, text)

    def _joined_text(self, tokens: list[Token]) -> Scalar:
        text = _text(tokens[0])
        for before, token in itertools.pairwise(tokens):
            text += self.text[before.end_pos : token.start_pos]
            if token.type == "REFERENCE":
                text = _DOLLARS.sub(r"${?:\g<0>}", text)
            text += _text(token)
        return Scalar(place_of(tokens[0]), text, text)


def _text(token: Token) -> str:
    match token.type:
        case "QUOTED":
            return _unquoted(token)
        case "TRIPLE":
            return str(token)[3:-3]
        case _:
            return str(token)


def _unquoted(token: Token) -> str:
    bad = _ESCAPE.search(token.replace("\\\\", "\\/"))
    if bad is not None:
        raise Problem(
            place_of(token),
            f"'\\{bad[1]}' is no escape of a quoted string; write '\\\\{bad[1]}', "
            'or put the string in triple quotes: """…"""',
        )
    text: str = json.loads(token, strict=False)
    if (flaw := storing_flaw(text)) is not None:
        raise Problem(place_of(token), f"this string has {flaw}")
    return text


def _plain(text: str) -> Plain:
    """What an unquoted word means. A number that a float would change stays text."""
    if text in _WORDS:
        return _WORDS[text]
    number = _NUMBER.fullmatch(text)
    if number is None or len(text) > NUMBER_CHARS_MAX:
        return text
    if number[1] is None and number[2] is None:
        return int(text)
    value = float(text)
    return value if Decimal(text) == Decimal(repr(value)) else text


def _over(before: Node | None, value: Node) -> Node:
    if isinstance(value, Object) and isinstance(before, Object):
        return merge(before, value)
    if isinstance(value, Object) and isinstance(before, Reference | Joined):
        return join(value.place, (before, value))
    if isinstance(value, Reference) and value.text.startswith("${?"):
        return replace(value, before=before)
    return value


def _appended(before: Node | None, value: Node) -> Node:
    added = Array(value.place, (value,))
    return added if before is None else join(value.place, (before, added))


def merge(old: Object, new: Object) -> Object:
    merged = Object(old.place, dict(old.members), dict(old.keys))
    for key, place, node in new.walk():
        merged.put(key, place, _over(merged.members.get(key), node))
    return merged


def join(place: Place, nodes: tuple[Node, ...]) -> Node:
    """Lists or objects side by side become one; with a variable among them, later."""
    if any(isinstance(node, Reference | Joined) for node in nodes):
        return Joined(place, nodes)
    if all(isinstance(node, Array) for node in nodes):
        return Array(place, tuple(i for n in nodes if isinstance(n, Array) for i in n.items))
    result = nodes[0]
    for node in nodes[1:]:
        if not isinstance(result, Object) or not isinstance(node, Object):
            raise Problem(node.place, "a list, an object and a text can't be put side by side")
        result = merge(result, node)
    return result
