"""Descriptors of the transforms that choose, rename, copy and rewrite fields."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import cast

from pydantic import JsonValue

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
from headrace.plugins.syntax_tree import Node, Note
from headrace.transforms.java_regex import capture_groups
from headrace.transforms.rename_rules import (
    RenameRules,
    no_rule_flaw,
    rename_options,
    rename_rules,
)

_COMMON = (*one_table_options(), *common_options("transform"))
_CARRIES = Capabilities(treats_kinds=KindTreatment.CARRIES)
_MODULE = "headrace.transforms.fields.transform"


@dataclass(frozen=True, slots=True)
class FieldMapperOptions:
    mapping: Mapping[str, str]  # new names by old ones, in the order of the result


@dataclass(frozen=True, slots=True)
class FilterOptions:
    """One of the two is empty."""

    include: tuple[str, ...]
    exclude: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class CopyOptions:
    sources: Mapping[str, str]  # old names by new ones


@dataclass(frozen=True, slots=True)
class FieldRenameOptions:
    rules: RenameRules
    specific: Mapping[str, str]  # new names by old ones


@dataclass(frozen=True, slots=True)
class ReplaceOptions:
    field: str
    pattern: str
    replacement: str
    is_regex: bool
    first_only: bool


@dataclass(frozen=True, slots=True)
class SplitOptions:
    field: str
    separator: str  # a regular expression
    outputs: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class RegexExtractOptions:
    field: str
    pattern: str
    outputs: tuple[str, ...]  # one for each group
    defaults: tuple[str | None, ...]


def _first_duplicate(names: Iterable[str]) -> str | None:
    return next((name for name, times in Counter(names).items() if times > 1), None)


def _mapper_flaw(options: Mapping[str, JsonValue]) -> str | None:
    mapping = cast("Mapping[str, str]", options["field_mapper"])
    if not mapping:
        return "field_mapper names no field; write {old = new, …}"
    if (twice := _first_duplicate(mapping.values())) is not None:
        return f"field_mapper gives two fields the name {twice!r}"
    return None


def _filter_flaw(options: Mapping[str, JsonValue]) -> str | None:
    names = [name for name in ("include_fields", "exclude_fields") if name in options]
    if len(names) > 1:
        return "give include_fields or exclude_fields, and not both"
    return _list_flaw(options, names[0])


def _list_flaw(options: Mapping[str, JsonValue], name: str) -> str | None:
    fields = cast("list[str]", options[name])
    if not fields:
        return f"{name} names no field"
    if (twice := _first_duplicate(fields)) is not None:
        return f"{name} names {twice!r} twice"
    return None


def _copy_flaw(options: Mapping[str, JsonValue]) -> str | None:
    old = [name for name in ("src_field", "dest_field") if name in options]
    if "fields" in options:
        if old:
            return f"give fields or {old[0]}, and not both"
        return None if options["fields"] else "fields names no field; write {new = old, …}"
    return None if len(old) == 2 else "src_field and dest_field belong together; give both"


def _replace_flaw(options: Mapping[str, JsonValue]) -> str | None:
    return None if options["pattern"] else "pattern is empty; say what is replaced"


def _regex_extract_flaw(options: Mapping[str, JsonValue]) -> str | None:
    outputs = cast("list[str]", options["output_fields"])
    groups = capture_groups(cast("str", options["regex_pattern"]))
    defaults = cast("list[str] | None", options.get("default_values"))
    if groups != len(outputs):
        return (
            f"regex_pattern has {groups} groups in parentheses and output_fields {len(outputs)} "
            "names; each group fills one field"
        )
    if defaults and len(defaults) != len(outputs):
        return f"default_values has {len(defaults)} values for {len(outputs)} output_fields"
    return _list_flaw(options, "output_fields")


def _read_specific(node: Node) -> Mapping[str, str]:
    keys = ("field_name", "target_name")
    found = blocks.blocks(node, what="a rule of specific", keys=keys, required=keys)
    return {
        blocks.text(each, "field_name") or "": blocks.text(each, "target_name") or ""
        for each in reversed(found)  # of two rules for one field, the first holds
    }


def _check_specific(node: Node, _: Note) -> None:
    _read_specific(node)


def _copy_options(options: ResolvedOptions) -> CopyOptions:
    single = options.optional_text("dest_field")
    if single is not None:
        return CopyOptions({single: options.text("src_field")})
    return CopyOptions(options.properties("fields"))


def _rename_options(options: ResolvedOptions) -> FieldRenameOptions:
    given = options.value("specific")
    specific: Mapping[str, str] = {}
    if given is not None:
        specific = blocks.read_again(given, _read_specific, option="specific")
    return FieldRenameOptions(rename_rules(options), specific)


def _replace_options(options: ResolvedOptions) -> ReplaceOptions:
    return ReplaceOptions(
        field=options.text("replace_field"),
        pattern=options.text("pattern"),
        replacement=options.text("replacement"),
        is_regex=options.flag("is_regex"),
        first_only=options.flag("is_regex") and options.flag("replace_first"),
    )


def _regex_extract_options(options: ResolvedOptions) -> RegexExtractOptions:
    outputs = options.texts("output_fields")
    return RegexExtractOptions(
        field=options.text("source_field"),
        pattern=options.text("regex_pattern"),
        outputs=outputs,
        defaults=options.texts("default_values") or (None,) * len(outputs),
    )


COPY = Descriptor(
    name="Copy",
    role="transform",
    make=f"{_MODULE}:CopyTransform",
    capabilities=_CARRIES,
    doc="Copies fields to new ones, at the end; a new one that exists is replaced in its place.",
    one_of=(("fields", "src_field", "dest_field"),),
    read_options=_copy_options,
    flaw=_copy_flaw,
    options=OptionSet(
        (
            Option("fields", Kind.MAP, doc="`{new = old}`; every field to copy."),
            Option("src_field", Kind.STRING, doc="One field to copy, as older job files say it."),
            Option("dest_field", Kind.STRING, doc="The copy of `src_field`."),
            *_COMMON,
        )
    ),
)

FIELD_MAPPER = Descriptor(
    name="FieldMapper",
    role="transform",
    make=f"{_MODULE}:FieldMapperTransform",
    doc="Keeps and renames fields: only those that are mapped, in the order of the mapping.",
    read_options=lambda options: FieldMapperOptions(options.properties("field_mapper")),
    flaw=_mapper_flaw,
    capabilities=_CARRIES,
    options=OptionSet(
        (
            Option(
                "field_mapper", Kind.MAP, required=True, doc="`{old = new}`; every field to keep."
            ),
            *_COMMON,
        )
    ),
)

FIELD_RENAME = Descriptor(
    name="FieldRename",
    role="transform",
    make=f"{_MODULE}:FieldRenameTransform",
    capabilities=_CARRIES,
    doc="Gives all fields new names, by rules. Regular expressions of names are Python's.",
    read_options=_rename_options,
    flaw=lambda options: no_rule_flaw(options, "specific"),
    options=OptionSet(
        (
            *rename_options("a field"),
            Option(
                "specific",
                Kind.JSON,
                doc="`[{field_name, target_name}]`: fields that get this name, whatever the rules.",
                reader=_check_specific,
            ),
            *_COMMON,
        )
    ),
)

FILTER = Descriptor(
    name="Filter",
    role="transform",
    make=f"{_MODULE}:FilterTransform",
    doc="Keeps some of the fields, as in SeaTunnel. Rows are filtered with Sql.",
    one_of=(("include_fields", "exclude_fields"),),
    read_options=lambda options: FilterOptions(
        options.texts("include_fields"), options.texts("exclude_fields")
    ),
    flaw=_filter_flaw,
    capabilities=_CARRIES,
    options=OptionSet(
        (
            Option(
                "include_fields",
                Kind.LIST,
                aliases=("fields",),
                doc="The fields to keep, in this order.",
            ),
            Option("exclude_fields", Kind.LIST, doc="The fields to leave out."),
            *_COMMON,
        )
    ),
)

REGEX_EXTRACT = Descriptor(
    name="RegexExtract",
    role="transform",
    make=f"{_MODULE}:RegexExtractTransform",
    capabilities=_CARRIES,
    doc="Fills new fields from the groups of a regular expression (Java's), where it first "
    "matches in a field of texts.",
    read_options=_regex_extract_options,
    flaw=_regex_extract_flaw,
    options=OptionSet(
        (
            Option("source_field", Kind.STRING, required=True, doc="The field to look into."),
            Option(
                "regex_pattern",
                Kind.STRING,
                required=True,
                doc="The expression; each of its groups fills one field.",
            ),
            Option("output_fields", Kind.LIST, required=True, doc="The new fields, in order."),
            Option(
                "default_values",
                Kind.LIST,
                doc="What they hold when nothing matches, or the field is null; else null.",
            ),
            *_COMMON,
        )
    ),
)

REPLACE = Descriptor(
    name="Replace",
    role="transform",
    make=f"{_MODULE}:ReplaceTransform",
    capabilities=_CARRIES,
    doc="Replaces parts of the texts in a field.",
    read_options=_replace_options,
    flaw=_replace_flaw,
    options=OptionSet(
        (
            Option("replace_field", Kind.STRING, required=True, doc="The field to change."),
            Option("pattern", Kind.STRING, required=True, doc="What is replaced."),
            Option(
                "replacement",
                Kind.STRING,
                required=True,
                doc="By what. With `is_regex`, `$1` stands for the first group.",
            ),
            Option(
                "is_regex",
                Kind.BOOL,
                default=False,
                doc="Whether `pattern` is a regular expression (Java's).",
            ),
            Option(
                "replace_first",
                Kind.BOOL,
                default=False,
                doc="Only the first match; counts with `is_regex`, as in SeaTunnel.",
            ),
            *_COMMON,
        )
    ),
)

SPLIT = Descriptor(
    name="Split",
    role="transform",
    make=f"{_MODULE}:SplitTransform",
    capabilities=_CARRIES,
    doc="Splits a field into new ones, at the end; the last one takes the rest, and those that "
    "nothing is left for are null.",
    read_options=lambda options: SplitOptions(
        options.text("split_field"), options.text("separator"), options.texts("output_fields")
    ),
    flaw=lambda options: _list_flaw(options, "output_fields"),
    options=OptionSet(
        (
            Option(
                "separator",
                Kind.STRING,
                required=True,
                doc="What stands between the parts: a regular expression (Java's), as in "
                "SeaTunnel, so write `\\\\|` for `|`.",
            ),
            Option("split_field", Kind.STRING, required=True, doc="The field to split."),
            Option("output_fields", Kind.LIST, required=True, doc="The new fields, in order."),
            *_COMMON,
        )
    ),
)

DESCRIPTORS = (COPY, FIELD_MAPPER, FIELD_RENAME, FILTER, REGEX_EXTRACT, REPLACE, SPLIT)
