"""Jdbc: a database behind its JDBC driver, as a source and as a sink."""

from __future__ import annotations

import re

from headrace.jobfile.options import (
    PARALLELISM_MAX,
    Kind,
    Option,
    Options,
    PluginDecl,
    common_options,
)
from headrace.jobfile.saving import data_save_mode, saving_flaw, schema_save_mode

BATCH_ROWS_MAX = 1_000_000
COMMIT_TRIES_MAX = 100
_IDENTIFIERS = ("ORIGINAL", "UPPERCASE", "LOWERCASE")
_BY_SPARK = "Spark cuts the rows by partition_column alone"
# What may hold a semicolon that ends no statement: quoted texts and names, and comments.
_QUOTED = re.compile(
    r"\$(\w*)\$.*?\$\1\$|'(?:[^']|'')*'|\"(?:[^\"]|\"\")*\"|--[^\n]*|/\*.*?\*/", re.DOTALL
)
_ENDS = frozenset({"abort", "commit", "end", "prepare", "rollback"})


def sql_flaw(text: str) -> str | None:
    """Whether a text would end the transaction in which it is run, and is fenced (E1)."""
    for statement in _QUOTED.sub(" ", text).split(";"):
        first = next(iter(statement.split()), "").lower()
        if first in _ENDS:
            return f"{first.upper()} would end the transaction that it is a part of; leave it out"
    return None


def _common() -> tuple[Option, ...]:
    return (
        Option(
            "url",
            Kind.STRING,
            required=True,
            sensitive=True,  # it may hold a password
            doc="where the database is: jdbc:postgresql://host:5432/database.",
        ),
        Option("driver", Kind.STRING, doc="Missing: the one that comes along for the url."),
        Option("user", Kind.STRING, aliases=("username",)),
        Option("password", Kind.STRING, sensitive=True),
        Option(
            "connection_check_timeout_sec",
            Kind.INT,
            30,
            minimum=1,
            doc="How long a connection may take to be made.",
        ),
        Option("properties", Kind.MAP, doc="Of each connection, as its driver knows them."),
        Option("compatible_mode", Kind.STRING, supported=()),
    )


JDBC_SOURCE = PluginDecl(
    name="Jdbc",
    role="source",
    doc="Reads a table or a query, once. PostgreSQL so far.",
    one_of=(("query", "table_path"),),
    repeatable=False,  # the table may have changed when it is read again
    streams=False,
    options=Options(
        (
            *_common(),
            Option("query", Kind.STRING, doc="A SELECT."),
            Option("table_path", Kind.STRING, doc="database.schema.table, or the end of it."),
            Option(
                "table_list",
                Kind.JSON,
                supported=(),
                unsupported="is not built yet; write a Jdbc block for each table",
            ),
            Option("where_condition", Kind.STRING, doc="Begins with `where`."),
            Option("partition_column", Kind.STRING, doc="Missing: one task reads all."),
            Option(
                "partition_num",
                Kind.INT,
                minimum=1,
                maximum=PARALLELISM_MAX,
                doc="Missing: the parallelism.",
            ),
            Option("partition_lower_bound", Kind.STRING, doc="Missing: the least value."),
            Option("partition_upper_bound", Kind.STRING, doc="Missing: the greatest value."),
            Option("fetch_size", Kind.INT, 0, minimum=0, doc="Rows a time; 0: 10000."),
            Option("split.size", Kind.INT, 8096, minimum=1, idle=_BY_SPARK),
            Option("split.even-distribution.factor.lower-bound", Kind.FLOAT, idle=_BY_SPARK),
            Option("split.even-distribution.factor.upper-bound", Kind.FLOAT, idle=_BY_SPARK),
            Option("split.sample-sharding.threshold", Kind.INT, idle=_BY_SPARK),
            Option("split.inverse-sampling.rate", Kind.INT, idle=_BY_SPARK),
            Option("use_select_count", Kind.BOOL, idle=_BY_SPARK),
            Option("skip_analyze", Kind.BOOL, idle=_BY_SPARK),
            Option(
                "decimal_type_narrowing", Kind.BOOL, idle="decimals stay what the database says"
            ),
            *common_options("source"),
        )
    ),
)

JDBC_SINK = PluginDecl(
    name="Jdbc",
    role="sink",
    doc="Inserts into a table, exactly once. PostgreSQL so far.",
    one_of=(("query", "table"),),
    flaw=saving_flaw,
    options=Options(
        (
            *_common(),
            Option("query", Kind.STRING, doc="INSERT INTO t (a, b) VALUES (?, ?)."),
            Option("generate_sink_sql", Kind.BOOL, default=False, doc="With `table`: implied."),
            Option("database", Kind.STRING, doc="The one the url leads to."),
            Option("table", Kind.STRING, doc="table, or schema.table."),
            Option(
                "primary_keys",
                Kind.LIST,
                doc="Of a table that is made here. Upserts come later: needs "
                "`enable_upsert = false`.",
            ),
            Option("enable_upsert", Kind.BOOL, default=True),
            Option(
                "batch_size",
                Kind.INT,
                1000,
                minimum=1,
                maximum=BATCH_ROWS_MAX,
                doc="Rows sent at once.",
            ),
            Option("is_exactly_once", Kind.BOOL, default=False, doc="It is, with both values."),
            Option(
                "xa_data_source_class_name",
                Kind.STRING,
                idle="rows are committed in one transaction of the database, without XA",
            ),
            Option(
                "max_commit_attempts",
                Kind.INT,
                3,
                minimum=1,
                maximum=COMMIT_TRIES_MAX,
                doc="Before the task fails, and is retried as the job says.",
            ),
            Option(
                "transaction_timeout_sec",
                Kind.INT,
                -1,
                minimum=-1,
                doc="Of one statement; -1: 3600.",
            ),
            Option("max_retries", Kind.INT, 0, minimum=0, idle="Spark retries a task that failed"),
            Option("auto_commit", Kind.BOOL, idle="each Spark task stages in one transaction"),
            Option("is_primary_key_updated", Kind.BOOL, idle="upserts come later"),
            Option(
                "support_upsert_by_query_primary_key_exist",
                Kind.BOOL,
                supported=(False,),
            ),
            Option("support_upsert_by_insert_only", Kind.BOOL, supported=(False,)),
            Option("use_copy_statement", Kind.BOOL, supported=(False,)),
            Option("field_ide", Kind.STRING, choices=_IDENTIFIERS, supported=("ORIGINAL",)),
            Option("create_index", Kind.BOOL, idle="a table made here has its primary key only"),
            schema_save_mode("Of the table. RECREATE_SCHEMA drops it and makes it anew."),
            data_save_mode("Of its rows. DROP_DATA is TRUNCATE, once, before the first row."),
            Option(
                "custom_sql",
                Kind.STRING,
                flaw=sql_flaw,
                doc="Run once, before the first row, with data_save_mode = CUSTOM_PROCESSING; in "
                "one transaction, which it can't end.",
            ),
            *common_options("sink"),
        )
    ),
)
