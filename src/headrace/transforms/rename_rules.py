"""SeaTunnel's rules for new names of fields and tables: replace parts, change the case, add.

Matches are looked for in the old name. Then its case is changed, the parts that matched are
replaced, which keeps the case of what replaces them, and prefix and suffix are added. Of several
replacements that match, the last one is carried out, alone.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from headrace.plugins import blocks
from headrace.plugins.options import Kind, Option
from headrace.plugins.resolved_options import ResolvedOptions
from headrace.plugins.syntax_tree import Node, Note, Problem

REPLACEMENTS = "replacements_with_regex"


@dataclass(frozen=True, slots=True)
class NamePart:
    """A part of a name that is replaced."""

    pattern: re.Pattern[str]
    by: str


@dataclass(frozen=True, slots=True)
class RenameRules:
    case: str | None  # UPPER or LOWER
    prefix: str
    suffix: str
    parts: tuple[NamePart, ...]

    def new_name(self, name: str) -> str:
        matched, by = self._matches(name)
        if self.case is not None:
            name = self.cased(name)
        for start, end in reversed(matched):
            name = name[:start] + by + name[end:]
        return self.prefix + name + self.suffix

    def cased(self, name: str) -> str:
        match self.case:
            case "UPPER":
                return name.upper()
            case "LOWER":
                return name.lower()
            case _:
                return name

    def _matches(self, name: str) -> tuple[list[tuple[int, int]], str]:
        for part in reversed(self.parts):
            if spans := [found.span() for found in part.pattern.finditer(name)]:
                return spans, part.by
        return [], ""


def rename_options(what: str, *, idle: str = "") -> tuple[Option, ...]:
    """The options of these rules; `what` is named anew, e.g. "a field"."""
    return (
        Option(
            "convert_case",
            Kind.STRING,
            choices=("UPPER", "LOWER"),
            doc=f"The case of the name of {what}.",
            idle=idle,
        ),
        Option("prefix", Kind.STRING, doc="What is put before the name.", idle=idle),
        Option("suffix", Kind.STRING, doc="What is put behind the name.", idle=idle),
        Option(
            REPLACEMENTS,
            Kind.JSON,
            doc="`[{replace_from, replace_to, is_regex = true}]`: parts of the old name that are "
            "replaced; without `is_regex`, the whole name. Of several that match, the last.",
            reader=_checked,
            idle=idle,
        ),
    )


def rename_rules(options: ResolvedOptions) -> RenameRules:
    given = options.value(REPLACEMENTS)
    parts = blocks.read_again(given, _parts, option=REPLACEMENTS) if given is not None else ()
    return RenameRules(
        case=options.optional_text("convert_case"),
        prefix=(options.optional_text("prefix") or "").strip(),
        suffix=(options.optional_text("suffix") or "").strip(),
        parts=parts,
    )


def no_rule_flaw(options: Mapping[str, object], *also: str) -> str | None:
    """What is wrong with options that change no name at all."""
    known = ("convert_case", "prefix", "suffix", REPLACEMENTS, *also)
    if any(name in options for name in known):
        return None
    return f"nothing says how names change; give one of {', '.join(known)}"


def _checked(node: Node, _: Note) -> None:
    _parts(node)


def _parts(node: Node) -> tuple[NamePart, ...]:
    keys = ("replace_from", "replace_to", "is_regex")
    found = blocks.blocks(node, what="a replacement", keys=keys, required=keys[:2])
    return tuple(
        NamePart(
            _pattern(
                blocks.text(each, "replace_from") or "",
                each.members["replace_from"],
                is_regex=blocks.flag(each, "is_regex", default=True),
            ),
            (blocks.text(each, "replace_to") or "").strip(),
        )
        for each in found
    )


def _pattern(text: str, node: Node, *, is_regex: bool) -> re.Pattern[str]:
    if not text:
        raise Problem(node.place, "replace_from must name what is replaced, and is empty")
    if not is_regex:
        return re.compile(rf"\A{re.escape(text)}\Z")
    try:
        return re.compile(text)
    except re.error as error:
        raise Problem(node.place, f"replace_from is no regular expression: {error}") from None
