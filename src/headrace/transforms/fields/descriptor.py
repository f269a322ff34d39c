"""Descriptors of FieldMapper and Filter, which choose the fields that go on."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import cast

from pydantic import JsonValue

from headrace.plugins.descriptor import Capabilities, Descriptor
from headrace.plugins.options import Kind, Option, OptionSet, common_options
from headrace.plugins.resolved_options import ResolvedOptions
from headrace.plugins.row_kinds import KindTreatment


@dataclass(frozen=True, slots=True)
class FieldMapperOptions:
    mapping: Mapping[str, str]  # new names by old ones, in the order of the result


@dataclass(frozen=True, slots=True)
class FilterOptions:
    """One of the two is empty."""

    include: tuple[str, ...]
    exclude: tuple[str, ...]


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
    fields = cast("list[str]", options[names[0]])
    if not fields:
        return f"{names[0]} names no field"
    if (twice := _first_duplicate(fields)) is not None:
        return f"{names[0]} names {twice!r} twice"
    return None


def _mapper_options(options: ResolvedOptions) -> FieldMapperOptions:
    return FieldMapperOptions(options.properties("field_mapper"))


def _filter_options(options: ResolvedOptions) -> FilterOptions:
    return FilterOptions(options.texts("include_fields"), options.texts("exclude_fields"))


FIELD_MAPPER = Descriptor(
    name="FieldMapper",
    role="transform",
    make="headrace.transforms.fields.transform:FieldMapperTransform",
    doc="Keeps and renames fields: only those that are mapped, in the order of the mapping.",
    read_options=_mapper_options,
    flaw=_mapper_flaw,
    capabilities=Capabilities(treats_kinds=KindTreatment.CARRIES),
    options=OptionSet(
        (
            Option(
                "field_mapper", Kind.MAP, required=True, doc="`{old = new}`; every field to keep."
            ),
            *common_options("transform"),
        )
    ),
)

FILTER = Descriptor(
    name="Filter",
    role="transform",
    make="headrace.transforms.fields.transform:FilterTransform",
    doc="Keeps some of the fields, as in SeaTunnel. Rows are filtered with Sql.",
    one_of=(("include_fields", "exclude_fields"),),
    read_options=_filter_options,
    flaw=_filter_flaw,
    capabilities=Capabilities(treats_kinds=KindTreatment.CARRIES),
    options=OptionSet(
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
DESCRIPTORS = (FIELD_MAPPER, FILTER)
