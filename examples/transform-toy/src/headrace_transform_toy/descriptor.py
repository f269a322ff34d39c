"""The descriptor of ToyUpper. Coordinators read it, too, so nothing here imports Spark."""

from __future__ import annotations

from dataclasses import dataclass

from headrace.plugins.descriptor import Descriptor
from headrace.plugins.options import Kind, Option, OptionSet, common_options
from headrace.plugins.resolved_options import ResolvedOptions


@dataclass(frozen=True, slots=True)
class ToyUpperOptions:
    fields: tuple[str, ...]


def _options(options: ResolvedOptions) -> ToyUpperOptions:
    return ToyUpperOptions(options.texts("fields"))


UPPER = Descriptor(
    name="ToyUpper",
    role="transform",
    make="headrace_transform_toy.transform:ToyUpperTransform",
    doc="Writes fields of texts in upper case.",
    options=OptionSet(
        (
            Option("fields", Kind.LIST, required=True, doc="the fields to change."),
            *common_options("transform"),
        )
    ),
    read_options=_options,
)
