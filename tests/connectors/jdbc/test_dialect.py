"""Names, SQL texts and options of the Jdbc connectors: what needs no database."""

from __future__ import annotations

import re

import pytest
from pydantic import JsonValue
from pyspark.sql import types as spark

from headrace.connectors.jdbc.database import Database
from headrace.connectors.jdbc.descriptor import JDBC_SINK, JDBC_SOURCE
from headrace.connectors.jdbc.dialect import (
    NAME_BYTES_MAX,
    NewColumn,
    PostgreSQL,
    TableName,
    dialect_of,
    parts_of,
    stage_name,
    stage_prefix,
)
from headrace.connectors.jdbc.stage import StageHandle, runs_of
from headrace.connectors.jdbc.target import read_insert
from headrace.errors import Refused
from headrace.model.jobs.epoch import CommitAt, EpochAt
from headrace.plugins.descriptor import AnyDescriptor
from headrace.plugins.secrets import take_secrets

DIALECT = PostgreSQL()


def at(
    incarnation: str = "i",
    pipeline: int = 1,
    epoch: int = 1,
    execution: str = "t.1",
    sink: str = "s",
) -> CommitAt:
    return CommitAt(EpochAt(incarnation, pipeline, epoch, execution), sink)


def test_a_stage_table_has_a_name_that_fits_and_needs_no_quotes() -> None:
    name = stage_name(at("i" * 200, 10**6, 10**12, "e" * 300, 'Jdbc "ü"'))

    assert len(name.encode()) <= NAME_BYTES_MAX
    assert re.fullmatch(r"[a-z0-9_]+", name)


def test_stage_tables_of_one_epoch_and_only_they_begin_alike() -> None:
    one = at()
    assert stage_name(at(execution="t.2")).startswith(stage_prefix(one))
    assert stage_name(at(execution="t.2")) != stage_name(one)
    others = [at("j"), at(pipeline=2), at(epoch=11), at(sink="s1"), at(pipeline=11, epoch=0)]
    others += [at("i1", 1), at("i", 11)]
    prefixes = {stage_prefix(one), *(stage_prefix(other) for other in others)}
    assert len(prefixes) == len(others) + 1


def test_the_name_of_a_stage_table_is_the_same_for_ever() -> None:
    """A sweep of the next version must find what this one staged."""
    assert stage_name(at()) == "headrace_stage_e81e1096bcc2f99a0b6293620de3fed1_8ee426859e30"


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("t", ["t"]),
        ("s.t", ["s", "t"]),
        ('"a.b"."c""d"', ["a.b", 'c"d']),
        ("db.s.T x", ["db", "s", "T x"]),
    ],
)
def test_a_dotted_name_is_taken_apart(text: str, parts: list[str]) -> None:
    assert parts_of(text) == parts


@pytest.mark.parametrize("text", ["", ".", "a.", ".a", "a..b", '"a', 'a"b"', '""', "a\0b", '"a"b'])
def test_a_broken_name_is_refused(text: str) -> None:
    with pytest.raises(Refused, match="no name of a table"):
        parts_of(text)


def test_identifiers_are_quoted_so_that_nothing_gets_out_of_them() -> None:
    assert DIALECT.table(TableName('s"x', "t;--")) == '"s""x"."t;--"'
    assert DIALECT.columns(["a", 'b")']) == '"a", "b"")"'
    with pytest.raises(Refused, match="can't be a name"):
        DIALECT.columns(["a\0"])


@pytest.mark.req("E1")
def test_the_mark_is_raised_from_below_and_in_no_other_case() -> None:
    statement = DIALECT.raise_mark(TableName("public", "headrace_commits"))

    assert statement.endswith("WHERE held.epoch < excluded.epoch")
    assert statement.count("?") == 9


def test_only_rows_of_the_attempts_that_count_are_moved() -> None:
    moved = DIALECT.move(TableName("s", "t"), TableName("s", "st"), ["a", "b"], [4, 5, 9])

    assert moved == (
        'INSERT INTO "s"."t" ("a", "b") SELECT "a", "b" FROM "s"."st" '
        "WHERE headrace_attempt IN (4, 5, 9)"
    )


def test_a_type_without_a_place_in_the_database_is_refused() -> None:
    column = NewColumn("m", spark.MapType(spark.StringType(), spark.StringType()))
    with pytest.raises(Refused, match="column m is of type map<string,string>"):
        DIALECT.create_table(TableName(None, "t"), [column], [])


def test_attempts_are_told_as_runs_and_read_back() -> None:
    numbers = [9, 4, 5, 4, 12, 11]
    handle = StageHandle(
        db_schema=None, table="t", stage="st", execution="e", columns=[], rows=0,
        attempts=runs_of(numbers),
    )  # fmt: skip
    assert handle.attempts == [(4, 5), (9, 9), (11, 12)]
    assert handle.attempt_numbers() == sorted(set(numbers))


@pytest.mark.parametrize(
    ("query", "table", "columns"),
    [
        ("INSERT INTO t (a, b) VALUES (?, ?)", ("t",), ("a", "b")),
        ('insert  into S . "T"("A",b)\nvalues( ?,? ) ;', ("s", "T"), ("A", "b")),
        ("INSERT INTO t VALUES (?, ?)", ("t",), None),
    ],
)
def test_a_plain_insert_is_understood(
    query: str, table: tuple[str, ...], columns: tuple[str, ...] | None
) -> None:
    found = read_insert(query)
    assert (found.table, found.columns, found.values) == (table, columns, 2)


@pytest.mark.parametrize(
    "query",
    [
        "SELECT 1",
        "INSERT INTO t (a) VALUES (upper(?))",
        "INSERT INTO t (a) VALUES (?) ON CONFLICT DO NOTHING",
        "INSERT INTO t (a) VALUES (?); DROP TABLE t",
        "INSERT INTO t (a) VALUES (?), (?)",
        "INSERT INTO t (a) SELECT ?",
    ],
)
def test_any_other_statement_is_refused_with_the_way_out(query: str) -> None:
    with pytest.raises(Refused, match="generate_sink_sql = true"):
        read_insert(query)


@pytest.mark.parametrize(
    ("query", "said"),
    [
        ("INSERT INTO t (a, b) VALUES (?)", "2 columns and has 1 values"),
        ("INSERT INTO t (a, A) VALUES (?, ?)", "a column twice"),
    ],
)
def test_an_insert_that_does_not_add_up_is_refused(query: str, said: str) -> None:
    with pytest.raises(Refused, match=said):
        read_insert(query)


@pytest.mark.parametrize("descriptor", [JDBC_SOURCE, JDBC_SINK])
def test_url_and_password_are_kept_apart_from_the_job(descriptor: AnyDescriptor) -> None:
    given: dict[str, JsonValue] = {
        "url": "jdbc:postgresql://h/d?password=hidden",
        "user": "me",
        "password": "hidden",
        "properties": {"sslpassword": "hidden", "sslmode": "require"},
    }
    kept, taken = take_secrets("Jdbc-1", descriptor, given)

    assert "hidden" not in str(kept)
    assert set(taken) == {"Jdbc-1.url", "Jdbc-1.password", "Jdbc-1.properties.sslpassword"}


@pytest.mark.parametrize(
    "url",
    ["jdbc:postgresql://me:hidden@h:5432/d?password=hidden", "jdbc:postgresql://h:5432/d"],
)
def test_a_database_is_shown_without_what_may_be_secret(url: str) -> None:
    database = Database("sink Jdbc-1", url, "D", "me", "hidden", {"sslpassword": "hidden"})

    assert str(database) == "jdbc:postgresql://h:5432/d"
    assert "hidden" not in repr(database)


def test_every_secret_of_a_database_is_masked_and_the_longest_first() -> None:
    url = "jdbc:postgresql://me:at%20url@h:5432/d?sslmode=x&password=in-url&sslpassword=a%2Bb"
    extra = {"sslpassword": "in-url-and-more", "sslmode": "require"}

    secrets = Database("sink Jdbc-1", url, "D", "me", "hidden", extra).secrets()

    assert secrets[0] == "in-url-and-more"
    assert set(secrets[1:]) == {"hidden", "in-url", "a%2Bb", "a+b", "at%20url", "at url"}
    assert Database("sink Jdbc-1", "jdbc:postgresql://h/d", "D").secrets() == []


def test_another_database_is_refused_with_what_is_built() -> None:
    with pytest.raises(Refused, match="must begin with jdbc:postgresql:"):
        dialect_of("jdbc:oracle:thin:@h")
