"""Java's regular expressions as texts: how many groups one has, and the same one behind a prefix.

Spark replaces every match of an expression, or none. To replace the first one alone, the expression
is put into a group behind one that takes what precedes it, so the numbers of all its groups rise by
two: in the expression (`\\1`) and in the replacement (`$1`); `$0` becomes `$2`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

# Of an expression: quoted parts, escapes, character classes, and what opens a group.
_PART = re.compile(
    r"""
      (?P<quoted> \\Q.*?(?:\\E|\Z) )
    | \\(?P<reference> [1-9]\d* )
    | (?P<escape> \\. )
    | (?P<class> \[\^?\]?(?:\\.|\[[^\]]*\]|[^\]\\])*\] )
    | (?P<named> \(\?<(?![=!]) )
    | (?P<special> \(\? )
    | (?P<group> \( )
    | (?P<other> . )
    """,
    re.VERBOSE | re.DOTALL,
)
_RAISED_BY = 2  # groups that stand before: what precedes the match, and the match itself
_REPLACED = re.compile(r"(?P<escape>\\.)|\$(?P<number>\d+)|(?P<other>.)", re.DOTALL)


def capture_groups(expression: str) -> int:
    """How many groups an expression captures."""
    return sum(part.lastgroup in {"named", "group"} for part in _PART.finditer(expression))


def first_match(expression: str, replacement: str) -> tuple[str, str]:
    """An expression that matches once, from the beginning to the end of the first match, and the
    replacement that goes with it."""
    groups = capture_groups(expression)
    # The prefix takes line ends, too, whatever the expression's own flags say of the dot.
    matched = rf"\A([\s\S]*?)({''.join(_raised(expression, groups))})"
    return matched, "$1" + "".join(_raised_replacement(replacement, groups))


def _raised(expression: str, groups: int) -> Iterator[str]:
    for part in _PART.finditer(expression):
        if (digits := part["reference"]) is None:
            yield part[0]
        else:  # in a group of its own: a digit that follows belongs to the text
            number, rest = _group_number(digits, groups)
            yield rf"(?:\{number + _RAISED_BY}){rest}"


def _raised_replacement(replacement: str, groups: int) -> Iterator[str]:
    for part in _REPLACED.finditer(replacement):
        if (digits := part["number"]) is None:
            yield part[0]
        else:
            number, rest = _group_number(digits, groups)
            yield f"${number + _RAISED_BY}" + "".join(f"\\{digit}" for digit in rest)


def _group_number(digits: str, groups: int) -> tuple[int, str]:
    """As Java reads it: the first digit, and further ones as long as there is such a group; and
    the digits that are left, which stand for themselves."""
    length = 1
    while length < len(digits) and int(digits[: length + 1]) <= groups:
        length += 1
    return int(digits[:length]), digits[length:]
