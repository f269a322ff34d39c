"""FieldMapper and Filter: which fields go on, under which names and in which order."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import cast

from pydantic import JsonValue

from headrace.jobfile.options import Kind, Option, Options, PluginDecl, common_options


def _twice(names: Iterable[str]) -> str | None:
    return next((name for name, times in Counter(names).items() if times > 1), None)


def _mapper_flaw(options: Mapping[str, JsonValue]) -> str | None:
    mapping = cast("Mapping[str, str]", options["field_mapper"])
    if not mapping:
        return "field_mapper names no field; write {old = new, …}"
    if (twice := _twice(mapping.values())) is not None:
        return f"field_mapper gives two fields the name {twice!r}"
    return None


def _filter_flaw(options: Mapping[str, JsonValue]) -> str | None:
    given = [name for name in ("include_fields", "exclude_fields") if name in options]
    if len(given) > 1:
        return "give include_fields or exclude_fields, and not both"
    fields = cast("list[str]", options[given[0]])
    if not fields:
        return f"{given[0]} names no field"
    if (twice := _twice(fields)) is not None:
        return f"{given[0]} names {twice!r} twice"
    return None


FIELD_MAPPER = PluginDecl(
    name="FieldMapper",
    role="transform",
    doc="Keeps and renames fields: only those that are mapped, in the order of the mapping.",
    flaw=_mapper_flaw,
    options=Options(
        (
            Option(
                "field_mapper", Kind.MAP, required=True, doc="`{old = new}`; every field to keep."
            ),
            *common_options("transform"),
        )
    ),
)

FILTER = PluginDecl(
    name="Filter",
    role="transform",
    doc="Keeps some of the fields, as in SeaTunnel. Rows are filtered with Sql.",
    one_of=(("include_fields", "exclude_fields"),),
    flaw=_filter_flaw,
    options=Options(
        (
            Option(
                "include_fields",
                Kind.LIST,
                aliases=("fields",),
                doc="The fields to keep, in this order.",
            ),
            Option("exclude_fields", Kind.LIST, doc="The fields to leave out."),
            *common_options("transform"),
        )
    ),
)
