"""What is wrong with the syntax of a HOCON text, said so that it can be mended.

`SyntaxRecovery` lets the parser go on behind a mistake, so that all of them are told at once. The
parser is given what it waits for, such as the value of a key, or a token that does not fit is
dropped. A bracket that is never closed is named by where it was opened. Which one that is, follows
from how lines are indented: a bracket that closes an outer block is mostly taken for the end of the
inner one, and only the end of the file shows that one is missing.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from lark import Token, UnexpectedCharacters, UnexpectedToken

from headrace.plugins.problems import PROBLEMS_MAX, Problems
from headrace.plugins.syntax_tree import FilePlace, Problem

if TYPE_CHECKING:
    from collections.abc import Iterator

INDENT_MAX = 200  # characters before a bracket that are looked at
RECOVERIES_MAX = 100  # mistakes, or consequences of them, behind which the parser goes on
_CLOSING = {"{": "}", "[": "]"}
_BRACKET_TOKENS = frozenset({"RBRACE", "RSQB"})
_KEYS = frozenset({"UNQUOTED", "QUOTED"})
# What a bracket may stand in without being one, and brackets.
_BRACKETS = re.compile(
    r'"""(?:[^"]|"{1,2}(?!"))*?"{3,}'
    r'|"(?:[^"\\\n]|\\[^\n])*"'
    r"|\$?\$\{[^{}\n]*\}"
    r"|\#[^\n]*|//[^\n]*"
    r"|[^$\"{}\[\]:=,+#`^?!@*&\\\s/]\[[\w*., ]*\]"
    r"|(?P<bracket>[{}\[\]])"
)


class Bracket(NamedTuple):
    sign: str
    place: FilePlace
    indent: int  # of its line
    first: bool  # on its line


def place_of(token: Token) -> FilePlace:
    return FilePlace(token.line or 1, token.column or 1)


def place_at(text: str, offset: int) -> FilePlace:
    return FilePlace(text.count("\n", 0, offset) + 1, offset - text.rfind("\n", 0, offset))


class SyntaxRecovery:
    """Notes the mistakes of one text, and says how the parser goes on."""

    def __init__(self, text: str, problems: Problems) -> None:
        self._text, self._problems = text, problems
        self._lines: set[int] = set()  # of which a mistake was told
        self._steps = 0

    def go_on(self, error: UnexpectedToken | UnexpectedCharacters) -> bool:
        """Note a mistake. Whether the parser is to go on; its state is mended for that."""
        if isinstance(error, UnexpectedToken) and _token(error).type == "$END":
            return False  # the caller notes it
        if not self.note(error):
            return False
        self._steps += 1
        if self._steps > RECOVERIES_MAX or self._problems.count > PROBLEMS_MAX:
            return False
        return isinstance(error, UnexpectedCharacters) or _mend(error)

    def note(self, error: UnexpectedToken | UnexpectedCharacters) -> bool:
        """Add the problem, unless one of its line was told. Whether it makes sense to go on."""
        if isinstance(error, UnexpectedCharacters):
            place = FilePlace(error.line, error.column)
            text = _bad_character(self._text, place)
            self._add(Problem(place, text), place.line)
            return not self._text.split("\n")[place.line - 1][place.column - 1 :].startswith('"""')
        self._add(_unexpected(error, self._text), _line_before(error))
        return True

    def _add(self, problem: Problem, caused_in: int) -> None:
        if not self._lines & {problem.place.line, caused_in}:
            self._problems.add(problem)
        self._lines |= {problem.place.line, caused_in}


def _token(error: UnexpectedToken) -> Token:
    return cast("Token", cast("Any", error).token)


def _last_of(value: object) -> object:
    """The last token of what the parser has put together, if it is a token or several."""
    if not isinstance(value, list | tuple) or not value:
        return cast("object", value)
    return cast("list[object]", value)[-1]


def _line_before(error: UnexpectedToken) -> int:
    """The line of the last token that fitted: a key without a value is missed on the next line."""
    for value in reversed(cast("Any", error.interactive_parser).parser_state.value_stack):
        last = _last_of(value)
        if isinstance(last, Token) and last.type != "_NL":
            return last.line or 0
        if not isinstance(last, Token):
            break
    return 0


def _mend(error: UnexpectedToken) -> bool:
    """Give the parser what it waits for before the token, and the token itself if it fits then.
    False: a bracket does not fit, and where blocks end behind it is anybody's guess."""
    parser, token = cast("Any", error.interactive_parser), _token(error)
    wanted = error.accepts
    if "SET" in wanted:
        parser.feed_token(Token.new_borrow_pos("SET", "=", token))
        parser.feed_token(Token.new_borrow_pos("UNQUOTED", "x", token))
        if token.type in _KEYS:
            parser.feed_token(Token.new_borrow_pos("_NL", "\n", token))
        wanted = cast("set[str]", parser.accepts())
    elif "REFERENCE" in wanted and token.type not in wanted:
        parser.feed_token(Token.new_borrow_pos("UNQUOTED", "x", token))
        wanted = cast("set[str]", parser.accepts())
    if token.type in wanted:
        parser.feed_token(token)
        return True
    return token.type not in _BRACKET_TOKENS


def _unexpected(error: UnexpectedToken, text: str) -> Problem:
    token, wanted = _token(error), error.accepts
    if token.type == "$END":
        return _early_end(text)
    if token.type == "INCLUDE":
        return Problem(
            place_of(token), "include is not supported; write the included text into this file"
        )
    met = "the end of the line" if token.type == "_NL" else repr(str(token))
    said = f"{met} was not expected here; {_advice(token, wanted)}"
    if "SET" in wanted and 0 < (line := _line_before(error)) < (token.line or 0):
        said += f", and the key in line {line} has nothing"
    if token.type in _BRACKET_TOKENS and (opened := _innermost(text, token.start_pos or 0)):
        sign, place, _, _ = opened
        said += f"; what is open here is the {sign!r} of line {place.line}, column {place.column}"
    return Problem(place_of(token), said)


def _early_end(text: str) -> Problem:
    end = place_at(text, len(text))
    if (bracket := _unclosed(text)) is None:
        return Problem(end, "the file ends too early: a value is missing")
    closing = _CLOSING[bracket.sign]
    return Problem(
        bracket.place,
        f"this {bracket.sign!r} is never closed: the file ends too early, in line {end.line}; add "
        f"{closing!r} where it is to end",
    )


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


def _bad_character(text: str, place: FilePlace) -> str:
    rest = text.split("\n")[place.line - 1][place.column - 1 :]
    character = rest[0]
    if rest.startswith('"""'):
        return 'this string has no end: \'"""\' is missing'
    if character == '"':
        return "this string has no end: '\"' is missing on this line"
    if character == "$":
        return "this variable has no end, or no name; write ${name} or ${name:default}"
    return f"{character!r} can't stand in an unquoted value; put the value in double quotes"


def _brackets(text: str, until: int) -> Iterator[Bracket]:
    line, begin = 1, 0
    for match in _BRACKETS.finditer(text, 0, until):
        at = match.start()
        if (newline := text.rfind("\n", begin, at)) >= 0:
            line += text.count("\n", begin, at)
            begin = newline + 1
        if match["bracket"]:
            before = text[begin : min(at, begin + INDENT_MAX)]
            indent = len(before) - len(before.lstrip())
            yield Bracket(match[0], FilePlace(line, at - begin + 1), indent, at - begin == indent)


def _innermost(text: str, until: int) -> Bracket | None:
    """The last bracket before an offset that is open there."""
    opened: list[Bracket] = []
    for bracket in _brackets(text, until):
        if bracket.sign in _CLOSING:
            opened.append(bracket)
        elif opened:
            opened.pop()
    return opened[-1] if opened else None


def _unclosed(text: str) -> Bracket | None:
    """The bracket that is never closed: the first one whose end stands less indented than itself,
    or the last one that is open at the end of the text."""
    opened: list[Bracket] = []
    suspect: Bracket | None = None
    for bracket in _brackets(text, len(text)):
        if bracket.sign in _CLOSING:
            opened.append(bracket)
        elif opened:
            last = opened.pop()
            if suspect is None and bracket.first and bracket.indent < last.indent:
                suspect = last
    if not opened:
        return None
    return suspect or opened[-1]
