"""HOCON's syntax as a small LALR grammar. What it means is in document.py.

Newlines separate, so they are tokens; other white space is not, and the gaps inside `a b c` are
found again from the positions of the tokens. What an unquoted string may hold is typesafe
config's rule, and two things more that people write: a `+` that is no `+=`, and `local[2]`.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import cast

from lark import Lark, Token, Transformer, UnexpectedCharacters, UnexpectedToken

from headrace.jobfile.nodes import NESTING_MAX, Place, Problem

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


@dataclass(frozen=True, slots=True)
class RawArray:
    place: Place
    items: tuple[RawValue, ...]
    depth: int


@dataclass(frozen=True, slots=True)
class RawField:
    key: tuple[Token, ...]
    append: bool
    value: RawValue


@dataclass(frozen=True, slots=True)
class RawObject:
    place: Place
    fields: tuple[RawField, ...]
    depth: int


RawPiece = Token | RawArray | RawObject


@dataclass(frozen=True, slots=True)
class RawValue:
    """One or more pieces side by side."""

    pieces: tuple[RawPiece, ...]

    @property
    def depth(self) -> int:
        return max(0 if isinstance(piece, Token) else piece.depth for piece in self.pieces)


def place_of(token: Token) -> Place:
    return Place(token.line or 1, token.column or 1)


def _depth(place: Place, values: Iterable[RawValue]) -> int:
    depth = 1 + max((value.depth for value in values), default=0)
    if depth > NESTING_MAX:
        raise Problem(place, f"nested more than {NESTING_MAX} deep")
    return depth


class _Build(Transformer[Token, RawObject]):
    """Called while the parser reduces, so no tree is ever built."""

    def start(self, children: list[RawField | RawObject]) -> RawObject:
        match children:
            case [RawObject() as root]:
                return root
            case _:
                return self._object(Place(1, 1), children)

    def object(self, children: list[Token | RawField]) -> RawObject:
        return self._object(place_of(cast("Token", children[0])), children[1:])

    def _object(self, place: Place, children: Sequence[object]) -> RawObject:
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
def _parser() -> Callable[[str], RawObject]:
    lark = Lark(GRAMMAR, parser="lalr", lexer="basic", transformer=_Build())
    return cast("Callable[[str], RawObject]", getattr(lark, "parse"))  # noqa: B009 - untyped


def parse(text: str) -> RawObject:
    """The fields of a document as they stand there, nothing merged or replaced yet."""
    try:
        return _parser()(text)
    except UnexpectedToken as error:
        raise _unexpected(error, text) from None
    except UnexpectedCharacters as error:
        place = Place(error.line, error.column)
        raise Problem(place, _bad_character(text, place)) from None


_CLOSING = (("RBRACE", "'}'"), ("RSQB", "']'"))


def _unexpected(error: UnexpectedToken, text: str) -> Problem:
    token, wanted = cast("Token", error.token), error.accepts
    if token.type == "$END":
        line = text.count("\n") + 1
        column = len(text) - (text.rfind("\n") + 1) + 1
        missing = [sign for kind, sign in _CLOSING if kind in wanted]
        what = f"{' or '.join(missing)} is missing" if missing else "a value is missing"
        return Problem(Place(line, column), f"the file ends too early: {what}")
    if token.type == "INCLUDE":
        return Problem(
            place_of(token), "include is not supported; write the included text into this file"
        )
    found = "the end of the line" if token.type == "_NL" else repr(str(token))
    return Problem(place_of(token), f"{found} was not expected here; {_advice(token, wanted)}")


def _advice(token: Token, wanted: set[str]) -> str:
    if "SET" in wanted:
        return "after a key comes '=', ':' or '{'"
    if token.type == "SET" and "_NL" in wanted and "REFERENCE" in wanted:
        return "put the value in double quotes if it belongs to it, or begin a new line"
    if "RSQB" in wanted:
        return "a list goes on with ',' or a new line, or ends with ']'"
    if "REFERENCE" in wanted:
        return "a value comes here"
    return "a key comes here, or the end of the block"


def _bad_character(text: str, place: Place) -> str:
    rest = text.split("\n")[place.line - 1][place.column - 1 :]
    character = rest[0]
    if rest.startswith('"""'):
        return 'this string has no end: \'"""\' is missing'
    if character == '"':
        return "this string has no end: '\"' is missing on this line"
    if character == "$":
        return "this variable has no end, or no name; write ${name} or ${name:default}"
    return f"{character!r} can't stand in an unquoted value; put the value in double quotes"
