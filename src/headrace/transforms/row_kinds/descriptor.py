"""Descriptors of FilterRowKind and RowKindExtractor, which read the kinds of rows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import cast

from pydantic import JsonValue

from headrace.plugins.descriptor import Capabilities, Descriptor
from headrace.plugins.options import Kind, Option, OptionSet, common_options
from headrace.plugins.resolved_options import ResolvedOptions
from headrace.plugins.row_kinds import (
    ALL_KINDS,
    INSERT_ONLY,
    RESERVED_PREFIX,
    KindTreatment,
    RowFlow,
    RowKind,
    is_reserved,
)

_NAMES = tuple(kind.name for kind in RowKind)
_LISTS = ("include_kinds", "exclude_kinds")
_READS = Capabilities(treats_kinds=KindTreatment.READS)


@dataclass(frozen=True, slots=True)
class FilterRowKindOptions:
    kept: frozenset[RowKind]


@dataclass(frozen=True, slots=True)
class RowKindExtractorOptions:
    field: str
    full: bool  # INSERT, and not +I


def _kept(options: Mapping[str, JsonValue]) -> frozenset[RowKind]:
    """The kinds that go on. One of the two lists is given."""
    named = [cast("list[str] | None", options.get(name)) for name in _LISTS]
    include, exclude = (frozenset(RowKind[name] for name in each or ()) for each in named)
    return include or ALL_KINDS - exclude


def _filter_flaw(options: Mapping[str, JsonValue]) -> str | None:
    given = [name for name in _LISTS if name in options]
    if len(given) > 1:
        return "give include_kinds or exclude_kinds, and not both"
    return None if options[given[0]] else f"{given[0]} names no kind"


def _narrowed(options: Mapping[str, JsonValue], come: RowFlow) -> RowFlow:
    return replace(come, kinds=come.kinds & _kept(options))


def _inserted(_: Mapping[str, JsonValue], come: RowFlow) -> RowFlow:
    return replace(come, kinds=INSERT_ONLY)


def _filter_options(options: ResolvedOptions) -> FilterRowKindOptions:
    return FilterRowKindOptions(_kept({name: [*options.texts(name)] for name in _LISTS}))


def _extractor_options(options: ResolvedOptions) -> RowKindExtractorOptions:
    return RowKindExtractorOptions(
        options.text("custom_field_name"), options.text("transform_type") == "FULL"
    )


def _field_flaw(name: str) -> str | None:
    if not name:
        return "a field must have a name"
    return f"names that begin with {RESERVED_PREFIX!r} are reserved" if is_reserved(name) else None


FILTER_ROW_KIND = Descriptor(
    name="FilterRowKind",
    role="transform",
    make="headrace.transforms.row_kinds.transform:FilterRowKindTransform",
    doc="Keeps rows of some kinds. Rows of a source that gives no kinds are all `INSERT`.",
    one_of=(_LISTS,),
    read_options=_filter_options,
    flaw=_filter_flaw,
    capabilities=_READS,
    changes_flow=_narrowed,
    options=OptionSet(
        (
            Option("include_kinds", Kind.LIST, choices=_NAMES, doc="The kinds to keep."),
            Option("exclude_kinds", Kind.LIST, choices=_NAMES, doc="The kinds to leave out."),
            *common_options("transform"),
        )
    ),
)

ROW_KIND_EXTRACTOR = Descriptor(
    name="RowKindExtractor",
    role="transform",
    make="headrace.transforms.row_kinds.transform:RowKindExtractorTransform",
    doc="Writes the kind of a row into a field, the last one, and makes every row an `INSERT`: "
    "what was a change becomes an entry in a log of changes.",
    read_options=_extractor_options,
    capabilities=_READS,
    changes_flow=_inserted,
    options=OptionSet(
        (
            Option(
                "custom_field_name",
                Kind.STRING,
                "row_kind",
                flaw=_field_flaw,
                doc="The field, which the rows must not have yet.",
            ),
            Option(
                "transform_type",
                Kind.STRING,
                "SHORT",
                choices=("SHORT", "FULL"),
                doc="`+I`, `-U`, `+U` and `-D`, or `INSERT`, `UPDATE_BEFORE`, `UPDATE_AFTER` and "
                "`DELETE`.",
            ),
            *common_options("transform"),
        )
    ),
)
DESCRIPTORS = (FILTER_ROW_KIND, ROW_KIND_EXTRACTOR)
