"""JSON paths as they can be followed in Spark: names, numbers, and at most one `[*]`."""

from __future__ import annotations

import re
from dataclasses import dataclass

PATH_STEPS_MAX = 100  # far more than JSON is nested

_STEP = re.compile(
    r"""
      \.(?P<name> [^.\[\]()*?@'"\s,:]+ )
    | \[\s*(?P<index> \d{1,9} )\s*\]
    | \[\s*'(?P<single> [^'\\]+ )'\s*\]
    | \[\s*"(?P<double> [^"\\]+ )"\s*\]
    | (?P<every> \[\s*\*\s*\] )
    """,
    re.VERBOSE,
)
# What SeaTunnel's paths may hold beside that, by how it begins; the first one that fits is named.
_REFUSED = (
    (re.compile(r"\.\.|\.\["), "it scans for a name at any depth (..)"),
    (re.compile(r"\[\s*\?"), "it filters ([?…])"),
    (re.compile(r"\.\*"), "it takes every field (.*)"),
    (re.compile(r"\[\s*-"), "it counts from the end ([-1])"),
    (re.compile(r"\[[^\]]*:"), "it takes a slice ([1:3])"),
    (re.compile(r"\[[^\]]*,"), "it takes several at once ([a,b])"),
    (re.compile(r"\s*\("), "it calls a function"),
)


class PathProblem(ValueError):
    """Why a path can't be followed; the text says which part, and the way out."""


@dataclass(frozen=True, slots=True)
class JsonPathSteps:
    """A path in the notation of Spark's variants, which has no `[*]`."""

    text: str  # as it was written
    before: str  # up to `[*]`, or all of it
    after: str | None  # behind `[*]`, from each item; None: there is none


def read_path(text: str) -> JsonPathSteps:
    """The steps of a path. Raises `PathProblem`."""
    path = text.strip()
    if not path.startswith("$"):
        raise PathProblem("it must begin with $, which is the whole of the JSON")
    parts, at = [[""]], 1
    for _ in range(PATH_STEPS_MAX):
        if at == len(path):
            break
        step = _STEP.match(path, at)
        if step is None:
            raise PathProblem(f"{_why(path[at:])} at {path[at:]!r}; {_WAY_OUT}")
        if step["every"]:
            parts.append([""])
        else:
            parts[-1].append(_in_spark(step))
        at = step.end()
    else:
        raise PathProblem(f"it has more than {PATH_STEPS_MAX} steps")
    before, *after = ["$" + "".join(part) for part in parts]
    if len(after) > 1:
        raise PathProblem(f"it has more than one [*]; {_WAY_OUT}")
    return JsonPathSteps(text, before, after[0] if after else None)


_WAY_OUT = "take the part before it as a field, and go on with a Sql transform"


def _why(rest: str) -> str:
    return next((why for begins, why in _REFUSED if begins.match(rest)), "it can't be read")


def _in_spark(step: re.Match[str]) -> str:
    if step["index"] is not None:
        return f"[{int(step['index'])}]"
    name = step["name"] or step["single"] or step["double"]
    quote = '"' if "'" in name else "'"
    return f"[{quote}{name}{quote}]"
