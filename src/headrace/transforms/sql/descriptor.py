"""The descriptor of Sql, which runs one query over the tables it reads."""

from __future__ import annotations

from dataclasses import dataclass

from headrace.plugins.descriptor import Capabilities, Descriptor
from headrace.plugins.options import Kind, Option, OptionSet, common_options
from headrace.plugins.resolved_options import ResolvedOptions
from headrace.plugins.row_kinds import KindTreatment


@dataclass(frozen=True, slots=True)
class SqlOptions:
    query: str


def _sql_options(options: ResolvedOptions) -> SqlOptions:
    return SqlOptions(options.optional_text("query") or "")


SQL = Descriptor(
    name="Sql",
    role="transform",
    make="headrace.transforms.sql.transform:SqlTransform",
    doc="Runs a query; its inputs are the tables. Where rows are updated or deleted, too, or are "
    "of several tables, it may project, filter, explode and UNION ALL; what merges or orders rows "
    "is refused.",
    read_options=_sql_options,
    capabilities=Capabilities(treats_kinds=KindTreatment.CARRIES),
    options=OptionSet(
        (
            Option("query", Kind.STRING, required=True, doc="a SELECT statement."),
            Option("engine", Kind.STRING, "ZETA", choices=("ZETA", "INTERNAL"), doc="One only."),
            Option(
                "row_error_handle_way",
                Kind.STRING,
                "FAIL",
                choices=("FAIL", "SKIP"),
                supported=("FAIL",),
            ),
            *common_options("transform"),
        )
    ),
)
DESCRIPTORS = (SQL,)
