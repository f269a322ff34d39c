"""The text of a query as tokens and calls, so far as choosing a dialect needs it.

Spark's own parser is no help here: some of what SeaTunnel allows it can't read. Whatever is not
understood stays as it is, and Spark says what is wrong with it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

NESTING_MAX = 200  # parentheses within each other

_TOKEN = re.compile(
    r"""
      (?P<space> \s+ | --(?:\\\n|[^\r\n])* | /\*.*?\*/ )
    | (?P<raw> [rR](?:'[^']*'|"[^"]*") )
    | (?P<text> '(?:[^'\\]|\\.|'')*' )
    | (?P<quoted> "(?:[^"\\]|\\.|"")*" | `(?:[^`]|``)*` )
    | (?P<number> (?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?[A-Za-z]* )
    | (?P<word> [^\W\d]\w* )
    | (?P<symbol> . )
    """,
    re.VERBOSE | re.DOTALL,
)


@dataclass(frozen=True, slots=True)
class SqlToken:
    kind: str  # a group of _TOKEN
    text: str

    @property
    def word(self) -> str:
        """The word in lower case; empty for any other token."""
        return self.text.lower() if self.kind == "word" else ""


@dataclass(frozen=True, slots=True)
class SqlCall:
    """A word and what stands in parentheses behind it: a function, or a keyword such as IN."""

    name: SqlToken
    gap: str  # between the word and its parenthesis
    args: tuple[tuple[SqlPart, ...], ...]


SqlPart = SqlToken | SqlCall


class TooDeep(ValueError):
    """A query with more than NESTING_MAX parentheses within each other."""


def parse(query: str) -> tuple[SqlPart, ...]:
    """The parts of a query; put together again by `flat`, they are the query, without comments that
    go to the end of a line: what is written behind one would belong to it. Raises `TooDeep`."""
    tokens = [
        SqlToken(str(found.lastgroup), " " if found[0].startswith("--") else found[0])
        for found in _TOKEN.finditer(query)
    ]
    parts: list[SqlPart] = []
    at = 0
    while at < len(tokens):
        lists, at = _lists(tokens, at, 0)
        parts += _with_commas(lists)
        if at < len(tokens):  # a parenthesis that closes nothing
            parts.append(tokens[at])
            at += 1
    return tuple(parts)


def flat(parts: Sequence[SqlPart]) -> Iterator[SqlToken]:
    """All tokens, in their order."""
    for part in parts:
        if isinstance(part, SqlToken):
            yield part
            continue
        yield part.name
        yield SqlToken("space", part.gap)
        yield SqlToken("symbol", "(")
        for number, arg in enumerate(part.args):
            if number:
                yield SqlToken("symbol", ",")
            yield from flat(arg)
        yield SqlToken("symbol", ")")


def significant(parts: Sequence[SqlPart]) -> list[SqlPart]:
    return [part for part in parts if isinstance(part, SqlCall) or part.kind != "space"]


def _lists(
    tokens: Sequence[SqlToken], at: int, depth: int
) -> tuple[list[tuple[SqlPart, ...]], int]:
    """What stands between commas up to the parenthesis that closes this level, and its place."""
    if depth > NESTING_MAX:
        raise TooDeep(f"it has more than {NESTING_MAX} parentheses within each other")
    lists: list[list[SqlPart]] = [[]]
    while at < len(tokens) and tokens[at].text != ")":
        token = tokens[at]
        if token.text == ",":
            lists.append([])
            at += 1
        elif token.text == "(" or (opens := _opens(tokens, at)) is None:
            if token.text != "(":
                lists[-1].append(token)
                at += 1
                continue
            inner, at = _lists(tokens, at + 1, depth + 1)
            lists[-1] += [token, *_with_commas(inner), *tokens[at : at + 1]]
            at = min(at + 1, len(tokens))
        else:
            gap = "".join(each.text for each in tokens[at + 1 : opens])
            args, end = _lists(tokens, opens + 1, depth + 1)
            if end == len(tokens):  # never closed: Spark will say so
                lists[-1] += [*tokens[at : opens + 1], *_with_commas(args)]
            else:
                lists[-1].append(SqlCall(token, gap, tuple(args)))
            at = min(end + 1, len(tokens))
    return [tuple(each) for each in lists], at


def _opens(tokens: Sequence[SqlToken], at: int) -> int | None:
    """Where the parenthesis of a call stands; None when the token is no name of one."""
    if tokens[at].kind != "word" or (at > 0 and tokens[at - 1].text == "."):
        return None
    after = at + 1
    while after < len(tokens) and tokens[after].kind == "space":
        after += 1
    return after if after < len(tokens) and tokens[after].text == "(" else None


def _with_commas(lists: Sequence[Sequence[SqlPart]]) -> Iterator[SqlPart]:
    for number, each in enumerate(lists):
        if number:
            yield SqlToken("symbol", ",")
        yield from each
