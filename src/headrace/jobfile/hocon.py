"""The HOCON reader: from the text of a job file to a document of nodes with places.

`parse` reads the syntax with a small LALR grammar (lark). Newlines separate fields, so they are
tokens; other white space is ignored, and the gaps inside `a b c` are recovered from the positions
of the tokens. What an unquoted string may contain is typesafe config's rule, extended by two
things that people write: a `+` that begins no `+=`, and `local[2]`.

`read_document` gives it its meaning: repeated keys are merged, and plugins are kept as ordered
lists. There SeaTunnel's rule differs from plain HOCON: what stands under `source`, `transform`
and `sink` at the root is a list, so that two FakeSource blocks are two plugins and are not merged
into one. JSON job files have the other form, a list of objects that name themselves by
`plugin_name`.
"""

from __future__ import annotations

import functools
import itertools
import json
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from decimal import Decimal
from typing import NamedTuple, cast

from lark import Lark, Token, Transformer, UnexpectedCharacters, UnexpectedToken

from headrace.jobfile.hocon_errors import SyntaxRecovery, place_at, place_of
from headrace.model.text import storing_flaw
from headrace.plugins.problems import Problems
from headrace.plugins.syntax_tree import (
    NESTING_MAX,
    ROLES,
    Array,
    Concatenation,
    FilePlace,
    Node,
    Object,
    Plain,
    PluginBlock,
    Problem,
    Reference,
    Role,
    Scalar,
)

NUMBER_CHARS_MAX = 300  # a longer number stays text
GRAMMAR = r"""
start: _NL? _fields? | _NL? object _NL?
object: LBRACE _NL? _fields? "}"
_fields: _members _sep?
_members: field | _members _sep field
_sep: _NL | _NL? "," _NL?

field: key _NL? (SET | APPEND) _NL? value   -> assigned
     | key _NL? object_value                -> opened
key: (UNQUOTED | QUOTED)+
value: piece+
object_value: object piece*
?piece: UNQUOTED | INCLUDE | QUOTED | TRIPLE | REFERENCE | ESCAPED | object | array
array: LBRACKET _NL? (_items _sep?)? "]"
_items: value | _items _sep value

LBRACE: "{"
LBRACKET: "["
SET: "=" | ":"
APPEND: "+="
INCLUDE.4: /include(?=[^\S\n]*\"|[^\S\n]+(?:url|file|classpath|required)\()/
TRIPLE.3: /\"\"\"(?:[^"]|\"{1,2}(?!\"))*?\"{3,}/
QUOTED.2: /\"(?!\"\")(?:[^"\\\n]|\\[^\n])*\"/
REFERENCE: /\$\{[^{}\n]*\}/
ESCAPED.2: /\$\$\{[^{}\n]*\}/
UNQUOTED: /(?:[^$"{}\[\]:=,+#`^?!@*&\\\s\/\ufeff]|\/(?!\/)|\+(?!=))+(?:\[[\w*., ]*\])?/
_NL: /(?:\#[^\n]*|\/\/[^\n]*|\n)(?:[^\S\n]|\#[^\n]*|\/\/[^\n]*|\n)*/
WS: /[^\S\n]+/
%ignore WS
"""
_ROLE_OF: dict[str, Role] = {role: role for role in ROLES}
_NUMBER = re.compile(r"-?(?:0|[1-9]\d*)(\.\d+)?([eE][+-]?\d{1,3})?", re.ASCII)
_LITERALS = {"true": True, "false": False, "null": None}
# In `"$"${x}` the dollar must not join the variable to make the escape `$${x}`. It is kept apart by
# writing it as the default of an optional variable without a name: `${?:$}`.
_DOLLARS = re.compile(r"\$+$")
_ESCAPE = re.compile(r'\\(?!["\\/bfnrt]|u[0-9a-fA-F]{4})(.)', re.DOTALL)


@dataclass(frozen=True, slots=True)
class RawArray:
    place: FilePlace
    items: tuple[RawValue, ...]
    depth: int


@dataclass(frozen=True, slots=True)
class RawField:
    key: tuple[Token, ...]
    append: bool
    value: RawValue


@dataclass(frozen=True, slots=True)
class RawObject:
    place: FilePlace
    fields: tuple[RawField, ...]
    depth: int


RawPiece = Token | RawArray | RawObject


@dataclass(frozen=True, slots=True)
class RawValue:
    """One piece, or several side by side that are concatenated."""

    pieces: tuple[RawPiece, ...]

    @property
    def depth(self) -> int:
        return max(0 if isinstance(piece, Token) else piece.depth for piece in self.pieces)


class Key(NamedTuple):
    """One part of a dotted key."""

    name: str
    place: FilePlace


@dataclass(slots=True)
class Document:
    root: Object  # everything but the plugins
    # In the order of the file.
    plugins: list[PluginBlock] = field(default_factory=list[PluginBlock])


def read_document(text: str, *, problems: Problems | None = None) -> Document:
    """The document that a text describes.

    Raises `Problem` at its first mistake; with `problems` all of them are added to these, and the
    document is not to be used if there are any.
    """
    kept = Problems() if problems is None else problems
    document = _read_all(text, kept)
    if problems is None:
        kept.check()
    return document


def _read_all(text: str, problems: Problems) -> Document:
    document = Document(Object(FilePlace(1, 1)))
    if (nul := text.find("\0")) >= 0:
        problems.add(Problem(place_at(text, nul), "a NUL character stands here"))
        return document
    before = problems.count
    raw = parse(text, problems)
    if problems.count > before:  # what was passed over would be missed by any other check
        return document
    builder = _DocumentBuilder(text)
    document.root = Object(raw.place)
    for member in raw.fields:
        with problems.collect():
            path = builder.key(member.key)
            role = _ROLE_OF.get(path[0].name)
            if role is None:
                builder.put(document.root, path, member)
            else:
                document.plugins += builder.plugins(role, path, member)
    return document


def read_value(text: str, at: FilePlace) -> Node:
    """The value that a text describes, which stands at a place of a file. Raises `Problem`."""
    try:
        document = read_document(f"v=\n{text}")
    except Problem as problem:
        raise Problem(_shifted_place(problem.place, at), problem.text) from None
    others = [place for key, place, _ in document.root.walk() if key != "v"]
    others += [plugin.place for plugin in document.plugins]
    if others:
        text = "one value was expected, and another one follows here"
        raise Problem(_shifted_place(others[0], at), text)
    return _shifted(document.root.members["v"], at)


def _shifted_place(place: FilePlace, at: FilePlace) -> FilePlace:
    """A place within a value whose text begins in line 2, as a place of the file."""
    column = place.column + at.column - 1 if place.line == 2 else place.column
    return FilePlace(place.line + at.line - 2, column)


def _shifted(node: Node, at: FilePlace) -> Node:
    place = _shifted_place(node.place, at)
    match node:
        case Array():
            return Array(place, tuple(_shifted(item, at) for item in node.items))
        case Concatenation():
            return Concatenation(place, tuple(_shifted(part, at) for part in node.parts))
        case Object():
            shifted = Object(place)
            for key, where, member in node.walk():
                shifted.put(key, _shifted_place(where, at), _shifted(member, at))
            return shifted
        case Scalar() | Reference():
            return replace(node, place=place)


def parse(text: str, problems: Problems) -> RawObject:
    """The fields of a document as written: nothing is merged or replaced yet.

    Behind a mistake the parser goes on, at the next token that fits; what it returns then is not
    to be used. It tells of one mistake a line, since others there are mostly made by the first.
    """
    recovery = SyntaxRecovery(text, problems)
    try:
        return _parser()(text, on_error=recovery.go_on)
    except (UnexpectedToken, UnexpectedCharacters) as error:
        recovery.note(error)
    except Problem as problem:
        problems.add(problem)
    return RawObject(FilePlace(1, 1), (), 1)


def _depth(place: FilePlace, values: Iterable[RawValue]) -> int:
    depth = 1 + max((value.depth for value in values), default=0)
    if depth > NESTING_MAX:
        raise Problem(place, f"nested more than {NESTING_MAX} deep")
    return depth


class _RawTransformer(Transformer[Token, RawObject]):
    """Builds raw objects while the parser reduces, so that lark never builds a tree of its own."""

    def start(self, children: list[RawField | RawObject]) -> RawObject:
        match children:
            case [RawObject() as root]:
                return root
            case _:
                return self._object(FilePlace(1, 1), children)

    def object(self, children: list[Token | RawField]) -> RawObject:
        return self._object(place_of(cast("Token", children[0])), children[1:])

    def _object(self, place: FilePlace, children: Sequence[object]) -> RawObject:
        fields = cast("Sequence[RawField]", children)
        return RawObject(place, tuple(fields), _depth(place, (field.value for field in fields)))

    def array(self, children: list[Token | RawValue]) -> RawArray:
        place = place_of(cast("Token", children[0]))
        items = cast("list[RawValue]", children[1:])
        return RawArray(place, tuple(items), _depth(place, items))

    def key(self, children: list[Token]) -> tuple[Token, ...]:
        return tuple(children)

    def value(self, children: list[RawPiece]) -> RawValue:
        return RawValue(tuple(children))

    object_value = value

    def assigned(self, children: tuple[tuple[Token, ...], Token, RawValue]) -> RawField:
        key, sign, value = children
        return RawField(key, sign == "+=", value)

    def opened(self, children: tuple[tuple[Token, ...], RawValue]) -> RawField:
        key, value = children
        return RawField(key, append=False, value=value)


@functools.cache
def _parser() -> Callable[..., RawObject]:
    lark = Lark(GRAMMAR, parser="lalr", lexer="basic", transformer=_RawTransformer())
    return cast("Callable[..., RawObject]", getattr(lark, "parse"))  # noqa: B009 - untyped


class _DocumentBuilder:
    """Turns raw fields into nodes. `text` is the source, for the gaps between tokens."""

    def __init__(self, text: str) -> None:
        self.text = text
        self._depth = 0  # of the object that is being filled; a dot in a key counts like a brace

    def plugins(self, role: Role, path: list[Key], member: RawField) -> list[PluginBlock]:
        if len(path) > 1:
            return [self._plugin(role, path[1:], member)]
        match member.value.pieces:
            case [RawObject() as block]:
                return [self._plugin(role, self.key(f.key), f) for f in block.fields]
            case _:
                return plugins_of_list(role, self.value(member.value))

    def _plugin(self, role: Role, path: list[Key], member: RawField) -> PluginBlock:
        name, place = path[0]
        holder = Object(place)
        self.put(holder, path, member)
        options = holder.members[name]
        if not isinstance(options, Object):
            raise Problem(place, f"{role} {name} must be a block: {name} {{ … }}")
        return PluginBlock(role, name, place, options)

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
        into.put(name, place, _append(before, value) if member.append else _override(before, value))

    def key(self, tokens: tuple[Token, ...]) -> list[Key]:
        """The path that a key stands for: it is split at its dots, except inside of quotes."""
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
        return concatenate(nodes[0].place, nodes)

    def _piece(self, piece: RawPiece) -> Node:
        if isinstance(piece, RawObject):
            return self.object(piece)
        if not isinstance(piece, Token):
            return Array(piece.place, tuple(self.value(item) for item in piece.items))
        if piece.type == "REFERENCE":
            return Reference(place_of(piece), str(piece))
        text = _text(piece)
        value = plain_value(text) if piece.type == "UNQUOTED" else text
        return Scalar(place_of(piece), value, text)

    def _joined_text(self, tokens: list[Token]) -> Scalar:
        text = _text(tokens[0])
        for before, token in itertools.pairwise(tokens):
            text += self.text[before.end_pos : token.start_pos]
            if token.type == "REFERENCE":
                text = _DOLLARS.sub(r"${?:\g<0>}", text)
            text += _text(token)
        return Scalar(place_of(tokens[0]), text, text)


def plugins_of_list(role: Role, node: Node) -> list[PluginBlock]:
    """The plugins of a list of objects that name themselves by `plugin_name`. Raises `Problem`."""
    if not isinstance(node, Array):
        raise Problem(node.place, f"{role} must be a block of plugins, or a list of them")
    plugins: list[PluginBlock] = []
    for item in node.items:
        name = item.members.get("plugin_name") if isinstance(item, Object) else None
        if not isinstance(item, Object) or not isinstance(name, Scalar):
            raise Problem(item.place, f"a {role} in a list must be an object with plugin_name")
        del item.members["plugin_name"]
        plugins.append(PluginBlock(role, name.text, name.place, item))
    return plugins


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


def plain_value(text: str) -> Plain:
    """The value of an unquoted text. A number whose digits a float would change stays text."""
    if text in _LITERALS:
        return _LITERALS[text]
    number = _NUMBER.fullmatch(text)
    if number is None or len(text) > NUMBER_CHARS_MAX:
        return text
    if number[1] is None and number[2] is None:
        return int(text)
    value = float(text)
    return value if Decimal(text) == Decimal(repr(value)) else text


def _override(before: Node | None, value: Node) -> Node:
    """The value of a key that is assigned again: an object is merged into an earlier one, an
    optional variable keeps the earlier value as its fallback, and all else replaces it."""
    if isinstance(value, Object) and isinstance(before, Object):
        return merge(before, value)
    if isinstance(value, Object) and isinstance(before, Reference | Concatenation):
        return concatenate(value.place, (before, value))
    if isinstance(value, Reference) and value.text.startswith("${?"):
        return replace(value, before=before)
    return value


def _append(before: Node | None, value: Node) -> Node:
    """The value of a key after `+=`."""
    added = Array(value.place, (value,))
    return added if before is None else concatenate(value.place, (before, added))


def merge(old: Object, new: Object) -> Object:
    merged = Object(old.place, dict(old.members), dict(old.keys))
    for key, place, node in new.walk():
        merged.put(key, place, _override(merged.members.get(key), node))
    return merged


def concatenate(place: FilePlace, nodes: tuple[Node, ...]) -> Node:
    """Lists or objects side by side become one; with a variable among them, at substitution."""
    if any(isinstance(node, Reference | Concatenation) for node in nodes):
        return Concatenation(place, nodes)
    if all(isinstance(node, Array) for node in nodes):
        return Array(place, tuple(i for n in nodes if isinstance(n, Array) for i in n.items))
    result = nodes[0]
    for node in nodes[1:]:
        if not isinstance(result, Object) or not isinstance(node, Object):
            raise Problem(node.place, "a list, an object and a text can't be put side by side")
        result = merge(result, node)
    return result
