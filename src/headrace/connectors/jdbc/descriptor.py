"""Descriptors of the Jdbc source and sink: a database behind its JDBC driver."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from urllib.parse import unquote

from pydantic import JsonValue

from headrace.plugins.descriptor import Capabilities, Descriptor, Guarantee, TargetKey
from headrace.plugins.jars import JarCoordinates
from headrace.plugins.options import PARALLELISM_MAX, Kind, Option, OptionSet, common_options
from headrace.plugins.resolved_options import ResolvedOptions
from headrace.plugins.save_modes import (
    ALL_SAVE_MODES,
    SaveModes,
    data_save_mode,
    save_mode_flaw,
    schema_save_mode,
)
from headrace.plugins.syntax_tree import RESERVED

DATABASES = ("jdbc:postgresql:",)  # how the URL of a supported database begins
DRIVER = "org.postgresql.Driver"
# By the beginning of a URL: the jar of its driver. PostgreSQL's is among those that every JVM
# starts with, since catalogs of lake tables need it, too; a test compares the two.
DRIVER_JARS = {
    "jdbc:postgresql:": JarCoordinates(
        "org.postgresql:postgresql:42.7.14",
        sha256="73914527305a40cce504b0d3d90b23caf565136912d607ae8ae7c5895512332c",
        transitive=False,
    ),
}
BATCH_ROWS_MAX = 1_000_000
COMMIT_TRIES_MAX = 100
_TABLE_NAMES = tuple(RESERVED)
_IDENTIFIERS = ("ORIGINAL", "UPPERCASE", "LOWERCASE")
_BY_SPARK = "Spark cuts the rows by partition_column alone"
# A semicolon in these ends no statement: quoted texts, quoted names and comments.
_QUOTED = re.compile(
    r"\$(\w*)\$.*?\$\1\$|'(?:[^']|'')*'|\"(?:[^\"]|\"\")*\"|--[^\n]*|/\*.*?\*/", re.DOTALL
)
_NAME = r'(?:"(?:[^"]|"")+"|[A-Za-z_][\w$]*)'
INSERT_NAME = re.compile(_NAME)
# The only form of `query`: a table, optionally its columns, and one `?` for each column.
INSERT = re.compile(
    rf"\s*INSERT\s+INTO\s+(?P<table>{_NAME}(?:\s*\.\s*{_NAME})*)\s*"
    rf"(?:\(\s*(?P<columns>{_NAME}(?:\s*,\s*{_NAME})*)\s*\))?\s*"
    r"VALUES\s*\(\s*(?P<values>\?(?:\s*,\s*\?)*)\s*\)\s*;?\s*",
    re.IGNORECASE,
)
_TRANSACTION_ENDS = frozenset({"abort", "commit", "end", "prepare", "rollback"})
_INTO = re.compile(r"\s*insert\s+into\s+([^\s(]+)", re.IGNORECASE)


@dataclass(frozen=True, slots=True, kw_only=True)
class DatabaseOptions:
    """Which database, and as whom. Whatever may hold a secret is not shown."""

    url: str = field(repr=False)
    driver: str | None  # None: the one that comes along for the url
    user: str | None
    password: str | None = field(repr=False)
    properties: Mapping[str, str] = field(repr=False)
    connect_timeout_s: int
    statement_timeout_s: int  # 0: the default


@dataclass(frozen=True, slots=True, kw_only=True)
class JdbcSourceOptions:
    database: DatabaseOptions
    query: str | None
    table_path: str | None
    where: str | None
    partition_column: str | None
    partitions: int | None  # None: the parallelism
    lower_bound: str | None
    upper_bound: str | None
    fetch_size: int  # 0: the dialect's


@dataclass(frozen=True, slots=True, kw_only=True)
class JdbcSinkOptions:
    database: DatabaseOptions
    query: str | None
    generates_sql: bool
    database_name: str | None
    table: str | None
    primary_keys: tuple[str, ...]
    upserts: bool
    batch_size: int
    commit_tries_max: int
    save_modes: SaveModes
    custom_sql: str | None


def sql_flaw(text: str) -> str | None:
    """What is wrong with SQL that would end the transaction in which it runs, or None.

    The fencing of an epoch needs that one transaction (E1).
    """
    for statement in _QUOTED.sub(" ", text).split(";"):
        first = next(iter(statement.split()), "").lower()
        if first in _TRANSACTION_ENDS:
            return f"{first.upper()} would end the transaction that it is a part of; leave it out"
    return None


def url_flaw(url: str) -> str | None:
    """What is wrong with a URL, or None: each database needs its own driver and dialect."""
    if url.startswith(tuple(DATABASES)):
        named = url.partition("?")[0].split(":", 2)[2].strip("/")
        return None if named else "it names no database: jdbc:postgresql://host:5432/database"
    return (
        f"it must begin with {' or '.join(DATABASES)} so far; for other databases no driver comes "
        "along, and none is built"
    )


def driver_flaw(driver: str) -> str | None:
    if driver == DRIVER:
        return None
    return f"the one that speaks to {' or '.join(DATABASES)} is {DRIVER}; leave 'driver' out"


def _database_flaw(options: Mapping[str, JsonValue]) -> str | None:
    """What is wrong with `database`, or None: a sink writes to the one that its URL leads to."""
    named = str(options.get("database") or "")
    _, _, place = str(options.get("url")).partition("?")[0].partition("//")
    leads_to = unquote(place.partition("/")[2])
    if not named or not leads_to or "${" in named or named == leads_to:
        return None
    return f"'database' is {named!r}, and the url leads to another one; make them the same"


def insert_flaw(query: str) -> str | None:
    if INSERT.fullmatch(query):
        return None
    return (
        "it must have the form INSERT INTO t (a, b) VALUES (?, ?); for anything else shape the "
        "rows in a transform, and set generate_sink_sql = true with 'table'"
    )


def source_flaw(options: Mapping[str, JsonValue]) -> str | None:
    if options.get("query") and options.get("table_path"):
        return "give 'query' or 'table_path', one of them"
    bounds = ("partition_lower_bound", "partition_upper_bound")
    bounds_set = [name for name in bounds if options.get(name) is not None]
    if len(bounds_set) == 1:
        return f"give both {bounds[0]!r} and {bounds[1]!r}, or neither"
    needing = [name for name in ("partition_num", *bounds) if options.get(name) is not None]
    if needing and not options.get("partition_column"):
        return f"{needing[0]!r} needs a 'partition_column'"
    return None


def sink_flaw(options: Mapping[str, JsonValue]) -> str | None:
    if options.get("primary_keys") and options.get("enable_upsert") is not False:
        return (
            "'primary_keys' asks for upserts, which come later; set enable_upsert = false to "
            "insert every row, or leave 'primary_keys' out"
        )
    if options.get("query") and options.get("generate_sink_sql"):
        return "give 'query' or generate_sink_sql = true, not both"
    if options.get("query") and options.get("table"):
        return "give 'query' or 'table', not both: the query names the table"
    return _database_flaw(options) or save_mode_flaw(options)


def _common() -> tuple[Option, ...]:
    return (
        Option(
            "url",
            Kind.STRING,
            required=True,
            sensitive=True,  # it may hold a password
            flaw=url_flaw,
            doc="where the database is: jdbc:postgresql://host:5432/database.",
        ),
        Option(
            "driver",
            Kind.STRING,
            flaw=driver_flaw,
            doc="Missing: the one that comes along for the url.",
        ),
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


def _database_options(options: ResolvedOptions) -> DatabaseOptions:
    return DatabaseOptions(
        url=options.text("url"),
        driver=options.optional_text("driver"),
        user=options.optional_text("user"),
        password=options.optional_text("password"),
        properties=options.properties("properties"),
        connect_timeout_s=options.integer("connection_check_timeout_sec"),
        statement_timeout_s=max(0, options.optional_integer("transaction_timeout_sec") or 0),
    )


def _source_options(options: ResolvedOptions) -> JdbcSourceOptions:
    return JdbcSourceOptions(
        database=_database_options(options),
        query=options.optional_text("query"),
        table_path=options.optional_text("table_path"),
        where=options.optional_text("where_condition"),
        partition_column=options.optional_text("partition_column"),
        partitions=options.optional_integer("partition_num"),
        lower_bound=options.optional_text("partition_lower_bound"),
        upper_bound=options.optional_text("partition_upper_bound"),
        fetch_size=options.integer("fetch_size"),
    )


def _sink_options(options: ResolvedOptions) -> JdbcSinkOptions:
    return JdbcSinkOptions(
        database=_database_options(options),
        query=options.optional_text("query"),
        generates_sql=options.flag("generate_sink_sql"),
        database_name=options.optional_text("database"),
        table=options.optional_text("table"),
        primary_keys=options.texts("primary_keys"),
        upserts=options.flag("enable_upsert"),
        batch_size=options.integer("batch_size"),
        commit_tries_max=options.integer("max_commit_attempts"),
        save_modes=options.save_modes(),
        custom_sql=options.optional_text("custom_sql"),
    )


def _driver_jars(
    options: JdbcSourceOptions | JdbcSinkOptions,
) -> tuple[JarCoordinates, ...]:
    url = options.database.url
    return tuple(jar for begin, jar in DRIVER_JARS.items() if url.startswith(begin))


def _target_key(options: JdbcSinkOptions) -> TargetKey:
    into = _INTO.match(options.query or "")
    table = into[1] if into else options.table or ""
    url = options.database.url.partition("?")[0]
    return ("database", url, table.replace('"', "").removeprefix("public."))


JDBC_SOURCE = Descriptor(
    name="Jdbc",
    role="source",
    make="headrace.connectors.jdbc.source:JdbcSource",
    doc="Reads a table or a query, once. PostgreSQL so far.",
    read_options=_source_options,
    jars=tuple(DRIVER_JARS.values()),
    jars_for=_driver_jars,
    one_of=(("query", "table_path"),),
    flaw=source_flaw,
    capabilities=Capabilities(
        guarantee=Guarantee.EXACTLY_ONCE,
        how="an epoch that runs again before it was prepared may read other rows; what was "
        "prepared is never read again",
        unbounded=False,
        repeatable=False,  # the table may have changed when it is read again
    ),
    options=OptionSet(
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

JDBC_SINK = Descriptor(
    name="Jdbc",
    role="sink",
    make="headrace.connectors.jdbc.sink:JdbcSink",
    doc="Inserts into a table, exactly once. PostgreSQL so far.",
    read_options=_sink_options,
    jars=tuple(DRIVER_JARS.values()),
    jars_for=_driver_jars,
    target_key=_target_key,
    one_of=(("query", "table"),),
    flaw=sink_flaw,
    capabilities=Capabilities(
        guarantee=Guarantee.EXACTLY_ONCE,
        how="rows are staged in a table beside the target; one transaction of the database raises "
        "the pipeline's mark and moves them, and a mark that is there already refuses it",
        save_modes=ALL_SAVE_MODES,
    ),
    options=OptionSet(
        (
            *_common(),
            Option(
                "query", Kind.STRING, flaw=insert_flaw, doc="INSERT INTO t (a, b) VALUES (?, ?)."
            ),
            Option("generate_sink_sql", Kind.BOOL, default=False, doc="With `table`: implied."),
            Option(
                "database", Kind.STRING, doc="The one the url leads to.", placeholders=_TABLE_NAMES
            ),
            Option("table", Kind.STRING, doc="table, or schema.table.", placeholders=_TABLE_NAMES),
            Option(
                "primary_keys",
                Kind.LIST,
                placeholders=_TABLE_NAMES,
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
DESCRIPTORS = (JDBC_SOURCE, JDBC_SINK)
