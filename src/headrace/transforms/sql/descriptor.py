"""The descriptor of Sql, which runs one query over the tables it reads."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from headrace.plugins.descriptor import Capabilities, Descriptor
from headrace.plugins.options import Kind, Option, OptionSet, common_options, one_table_options
from headrace.plugins.resolved_options import ResolvedOptions
from headrace.plugins.row_kinds import KindTreatment


class Engine(StrEnum):
    """Whose functions a query calls."""

    ZETA = "ZETA"
    SPARK = "SPARK"


@dataclass(frozen=True, slots=True)
class SqlOptions:
    query: str
    engine: Engine | None  # whose functions it calls; None: the query tells


def _sql_options(options: ResolvedOptions) -> SqlOptions:
    engine = options.optional_text("engine")
    return SqlOptions(
        options.optional_text("query") or "",
        None if engine is None else Engine("ZETA" if engine == "INTERNAL" else engine),
    )


SQL = Descriptor(
    name="Sql",
    role="transform",
    make="headrace.transforms.sql.transform:SqlTransform",
    doc="Runs a query; its inputs are the tables. It is Spark's SQL, with SeaTunnel's functions. "
    "Where rows are updated or deleted, too, or are of several tables, it may project, filter, "
    "explode and UNION ALL; what merges or orders rows is refused.",
    read_options=_sql_options,
    capabilities=Capabilities(treats_kinds=KindTreatment.CARRIES),
    options=OptionSet(
        (
            Option("query", Kind.STRING, required=True, doc="a SELECT statement."),
            Option(
                "engine",
                Kind.STRING,
                choices=("ZETA", "INTERNAL", "SPARK"),
                doc="Whose functions the query calls: `ZETA` (or `INTERNAL`) is SeaTunnel's, with "
                "Spark's for whatever it has not; `SPARK` takes the query as it is. Missing, "
                "the query tells, and what has two meanings is refused: see "
                "[functions](sql-functions.md).",
            ),
            Option(
                "row_error_handle_way",
                Kind.STRING,
                "FAIL",
                choices=("FAIL", "SKIP"),
                supported=("FAIL",),
            ),
            *one_table_options(),
            *common_options("transform"),
        )
    ),
)
DESCRIPTORS = (SQL,)
