"""The descriptor of JsonPath, which takes fields from within JSON, and the paths that it takes:
names, numbers, and at most one `[*]`, which is what Spark can follow."""

from __future__ import annotations

import re
from dataclasses import dataclass

from headrace.plugins import blocks
from headrace.plugins.descriptor import Capabilities, Descriptor
from headrace.plugins.options import (
    Kind,
    Option,
    OptionSet,
    common_options,
    one_table_options,
)
from headrace.plugins.resolved_options import ResolvedOptions
from headrace.plugins.row_kinds import KindTreatment
from headrace.plugins.schema import ColumnType, PlainType, holds_vector, read_type
from headrace.plugins.syntax_tree import Array, Node, Note, Object, Problem

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
_WAY_OUT = "take the part before it as a field, and go on with a Sql transform"
_KEYS = ("src_field", "path", "dest_field", "dest_type", "column_error_handle_way")
_WAYS = ("FAIL", "SKIP", "SKIP_ROW")
_NOT_BUILT = "is not built yet: bad rows can't be sent elsewhere; use FAIL or SKIP"


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


def _why(rest: str) -> str:
    return next((why for begins, why in _REFUSED if begins.match(rest)), "it can't be read")


def _in_spark(step: re.Match[str]) -> str:
    if step["index"] is not None:
        return f"[{int(step['index'])}]"
    name = step["name"] or step["single"] or step["double"]
    quote = '"' if "'" in name else "'"
    return f"[{quote}{name}{quote}]"


@dataclass(frozen=True, slots=True)
class JsonColumn:
    source: str
    path: JsonPathSteps
    output: str
    type: ColumnType
    way: str | None  # FAIL, SKIP or SKIP_ROW; None: as the row


@dataclass(frozen=True, slots=True)
class JsonPathOptions:
    columns: tuple[JsonColumn, ...]
    skips: bool  # leave rows with errors out, instead of failing


def read_columns(node: Node) -> tuple[JsonColumn, ...]:
    """The columns of the option. Raises `Problem`, which names a path that can't be read."""
    found = blocks.blocks(
        node, what="a column", keys=_KEYS, required=("src_field", "path", "dest_field")
    )
    if not found:
        raise Problem(node.place, "columns names no column")
    columns = tuple(column for block in found for column in _columns_of(block))
    seen: set[str] = set()
    for column in columns:
        if column.output in seen:
            raise Problem(node.place, f"two columns have the dest_field {column.output!r}")
        seen.add(column.output)
    return columns


def _columns_of(block: Object) -> list[JsonColumn]:
    paths, outputs = blocks.texts(block, "path"), blocks.texts(block, "dest_field")
    types = _types(block) or [PlainType("string")]
    if not len(paths) == len(outputs) == len(types):
        raise Problem(
            block.place,
            f"path has {len(paths)} values, dest_field {len(outputs)} and dest_type {len(types)}; "
            "they belong together one by one",
        )
    source = blocks.text(block, "src_field") or ""
    way = blocks.choice(block, "column_error_handle_way", _WAYS)
    return [
        JsonColumn(source, _path(path, block), output, of, way)
        for path, output, of in zip(paths, outputs, types, strict=True)
    ]


def _types(block: Object) -> list[ColumnType]:
    node = block.members.get("dest_type")
    if node is None:
        return []
    found = [read_type(item) for item in (node.items if isinstance(node, Array) else (node,))]
    if any(holds_vector(of) for of in found):
        raise Problem(node.place, "dest_type can't be a vector, which is not built yet")
    return found


def _path(text: str, block: Object) -> JsonPathSteps:
    try:
        return read_path(text)
    except PathProblem as problem:
        place = block.members["path"].place
        raise Problem(place, f"path {text!r} can't be used: {problem}") from None


def _check_columns(node: Node, _: Note) -> None:
    read_columns(node)


def _options(options: ResolvedOptions) -> JsonPathOptions:
    return JsonPathOptions(
        blocks.read_again(options.value("columns"), read_columns, option="columns"),
        skips=options.text("row_error_handle_way") == "SKIP",
    )


JSON_PATH = Descriptor(
    name="JsonPath",
    role="transform",
    make="headrace.transforms.json_path.transform:JsonPathTransform",
    capabilities=Capabilities(treats_kinds=KindTreatment.CARRIES),
    doc="Takes fields from within JSON: texts, bytes, arrays, maps and rows, which count as arrays "
    "of their values. A path that leads nowhere, a text that is no JSON and a value that does not "
    "fit its type are errors, as in SeaTunnel; a null is none.",
    read_options=_options,
    options=OptionSet(
        (
            Option(
                "columns",
                Kind.JSON,
                required=True,
                doc="`[{src_field, path, dest_field, dest_type = string, "
                "column_error_handle_way}]`, where path, dest_field and dest_type may be lists of "
                "the same length. A path has names and numbers, `$.a['b c'][0]`, and at most one "
                "`[*]`, which gives an array; filters, deep scans (`..`), slices and functions "
                "are refused. `column_error_handle_way` is FAIL, SKIP (the field is null) or "
                "SKIP_ROW; missing, `row_error_handle_way` counts.",
                reader=_check_columns,
            ),
            Option(
                "row_error_handle_way",
                Kind.STRING,
                "FAIL",
                choices=("FAIL", "SKIP", "ROUTE_TO_TABLE"),
                supported=("FAIL", "SKIP"),
                unsupported=_NOT_BUILT,
                doc="What becomes of a row with an error: the job fails, or goes on without it.",
            ),
            *one_table_options(),
            *common_options("transform"),
        )
    ),
)
DESCRIPTORS = (JSON_PATH,)
