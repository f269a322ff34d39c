"""Sql: one query over the tables it reads."""

from __future__ import annotations

from headrace.jobfile.options import Kind, Option, Options, PluginDecl, common_options

SQL = PluginDecl(
    name="Sql",
    role="transform",
    doc="Runs a query; its inputs are the tables.",
    options=Options(
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
