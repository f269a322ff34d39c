"""What a Jdbc sink does with tables, columns and types, and how it says what can't be done."""

from __future__ import annotations

import os
import time
from collections.abc import Hashable, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import psycopg
import pytest

from headrace.errors import Refused, Unavailable
from tests.postgresql import PostgreSQL
from tests.spark.base import SECRET, Base
from tests.spark.lake import sql

RELOAD_MAX_S = 120.0
LOCK_MAX_S = 240.0


def written(base: Base, frame: Any, **options: Any) -> None:
    sink, at = base.sink(**options), base.at()
    sink.commit(base.session, sink.stage(base.session, frame, at).handle, at)


def test_a_missing_table_is_made_from_the_types_of_the_rows(base: Base) -> None:
    frame = base.session.sql(  # pyright: ignore[reportUnknownMemberType]
        "SELECT 1Y AS a, 2S AS b, 3 AS c, 4L AS d, 1.5F AS e, 2.5D AS f, 12.34BD AS g, 'x' AS h, "
        "true AS i, X'CAFE' AS j, DATE'2026-01-02' AS k, "
        "TIMESTAMP_NTZ'2026-01-02 03:04:05.678' AS l, TIMESTAMP'2026-01-02 03:04:05Z' AS m, "
        'array(1, 2) AS n, cast(null AS string) AS `O "p`'
    )

    written(base, frame, table="made")

    row = base.run("SELECT * FROM made")[0]
    assert row[:6] == (1, 2, 3, 4, 1.5, 2.5)
    assert row[6:11] == (Decimal("12.34"), "x", True, b"\xca\xfe", date(2026, 1, 2))
    assert row[11] == datetime(2026, 1, 2, 3, 4, 5, 678000)  # noqa: DTZ001
    assert row[12] == datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
    assert row[13:] == ([1, 2], None)
    assert base.run('SELECT count(*) FROM made WHERE "O ""p" IS NULL') == [(1,)]


def test_a_made_table_has_its_primary_key_when_upserts_are_off(base: Base) -> None:
    written(base, base.frame(3), table="made", primary_keys=["id"], enable_upsert=False)

    assert base.run("SELECT indexdef FROM pg_indexes WHERE tablename = 'made'")[0][0].endswith(
        "(id)"
    )


def made(base: Base, table: str = "made") -> bool:
    return base.run("SELECT to_regclass(%s)::text", table) != [(None,)]


def test_a_job_that_fails_before_its_first_commit_leaves_no_table(base: Base) -> None:
    """The next one, with other columns, would be refused by it."""
    to = base.sink(table="made")
    to.stage(base.session, base.frame(3), base.at())
    assert not made(base)
    to.abort(base.session, base.at())
    assert not made(base)
    assert base.stages() == []

    to = base.sink(table="made")
    other, again = base.frame(2).selectExpr("id AS other"), base.at(2)
    to.commit(base.session, to.stage(base.session, other, again).handle, again)

    assert base.run("SELECT other FROM made ORDER BY 1") == [(0,), (1,)]


def test_a_table_is_made_by_the_transaction_of_its_first_commit_or_not_at_all(base: Base) -> None:
    to, at = base.sink(table="made", primary_keys=["id"], enable_upsert=False), base.at()
    twice = base.frame(2).union(base.frame(2))
    handle = to.stage(base.session, twice, at).handle
    with pytest.raises(Refused, match="duplicate key value violates unique constraint"):
        to.commit(base.session, handle, at)
    assert not made(base)
    assert base.marks() == []


def test_an_epoch_without_rows_makes_the_table(base: Base) -> None:
    written(base, base.frame(0), table="made")
    assert base.count("made") == 0


def test_rows_staged_before_the_table_was_made_go_to_the_table_that_is_there(base: Base) -> None:
    """Two jobs make it at once; of one, the next epoch is staged before the first is committed."""
    one, other = base.sink(table="made"), base.sink(table="made")
    staged = [
        sink.stage(base.session, base.frame(2, first=10 * at.epoch), at).handle
        for sink, at in ((one, base.at(1)), (one, base.at(2)), (other, base.at(3)))
    ]
    for sink, handle, epoch in zip((one, one, other), staged, (1, 2, 3), strict=True):
        assert not sink.commit(base.session, handle, base.at(epoch)).already
    assert base.count("made") == 6


def test_one_of_two_that_make_a_table_at_once_waits_and_goes_on_with_the_others(
    base: Base,
) -> None:
    to, at = base.sink(table="made"), base.at()
    handle = to.stage(base.session, base.frame(2), at).handle
    # The first one has made the table, and not ended its transaction, when the second comes.
    with psycopg.connect(base.server_url) as first:
        first.execute("CREATE TABLE made (id bigint, name text)")
        with ThreadPoolExecutor(1) as pool:
            done = pool.submit(to.commit, base.session, handle, at)
            waits = "SELECT count(*) FROM pg_locks WHERE NOT granted"
            deadline_s = time.monotonic() + LOCK_MAX_S
            while base.run(waits) == [(0,)]:
                assert time.monotonic() < deadline_s, "it does not wait for the first"
                time.sleep(0.05)
            first.commit()
            assert not done.result(LOCK_MAX_S).already
    assert base.count("made") == 2


def test_who_finds_another_table_in_its_place_is_refused_and_commits_nothing(base: Base) -> None:
    to, at = base.sink(table="made"), base.at()
    handle = to.stage(base.session, base.frame(2), at).handle
    base.run("CREATE TABLE made (something_else int)")
    with pytest.raises(Refused, match='column "id" of relation "made" does not exist'):
        to.commit(base.session, handle, at)
    assert base.marks() == []


def test_a_table_that_was_dropped_since_the_first_commit_is_not_made_again(base: Base) -> None:
    to = base.sink(table="made")
    first, second = (to.stage(base.session, base.frame(2), base.at(n)).handle for n in (1, 2))
    to.commit(base.session, first, base.at(1))
    base.run("DROP TABLE made")
    with pytest.raises(Refused, match=r'relation "public\.made" does not exist'):
        to.commit(base.session, second, base.at(2))
    later = base.sink(table="made", has_committed=True)
    with pytest.raises(Refused, match=r'relation "public\.made" does not exist'):
        later.commit(base.session, second, base.at(2))
    assert not made(base)

    # Staged after it was dropped, on purpose: what comes from now on has a place.
    third = later.stage(base.session, base.frame(3), base.at(3)).handle
    later.commit(base.session, third, base.at(3))
    assert base.count("made") == 3


def test_rows_for_a_missing_table_do_not_go_to_one_that_was_made_after_a_drop(base: Base) -> None:
    """The marks are beside the table, and stay."""
    owner, zombie = base.sink(table="made"), base.sink(table="made")
    handle = zombie.stage(base.session, base.frame(5), base.at()).handle
    owner.commit(base.session, handle, base.at(1, "t1.2"))
    base.run("DROP TABLE made")
    base.run("CREATE TABLE made (id bigint, name text)")
    assert zombie.commit(base.session, handle, base.at()).already
    assert base.count("made") == 0


def test_two_sinks_of_a_pipeline_make_one_table_in_the_same_way(base: Base) -> None:
    """Or the epoch would be prepared at both, and could be committed at the first only."""
    planned: dict[Hashable, Any] = {}
    one, other = (
        base.sink(
            name, table="made", primary_keys=["id"], enable_upsert=False, planned_tables=planned
        )
        for name in ("Jdbc-1", "Jdbc-2")
    )
    more = base.frame(3, first=10).selectExpr("name", "id", "id AS more")
    first = one.stage(base.session, base.frame(2), base.at())
    with pytest.raises(Refused, match="has no column more"):
        other.stage(base.session, more, base.at())
    with pytest.raises(Refused, match="needs a value for column id"):
        other.stage(base.session, more.select("name"), base.at())
    second = other.stage(base.session, more.select("id"), base.at())
    third = other.stage(base.session, base.frame(2, first=20).select("name", "id"), base.at(2))
    one.commit(base.session, first.handle, base.at())
    other.commit(base.session, second.handle, base.at())
    other.commit(base.session, third.handle, base.at(2))
    assert base.count("made") == 7


def test_the_columns_a_table_fills_itself_may_be_left_out(base: Base) -> None:
    base.run("CREATE TABLE t (n serial PRIMARY KEY, at date NOT NULL DEFAULT '2026-01-01', ID int)")

    written(base, base.frame(2).select("id"), table="public.t")

    assert base.run("SELECT n IS NOT NULL, at::text FROM t") == [(True, "2026-01-01")] * 2


def test_names_that_look_like_sql_are_only_names(base: Base) -> None:
    odd = 'x"; DROP TABLE orders; --'
    frame = base.frame(2).withColumnRenamed("name", odd)

    written(base, frame, table='"a.b"" c"')

    assert base.count() == 0
    assert base.run('SELECT count(*) FROM "a.b"" c"') == [(2,)]


@pytest.mark.parametrize(
    "query",
    [
        "INSERT INTO orders (name, id) VALUES (?, ?)",
        "insert into public.orders(name,id) values(?,?);",
    ],
)
def test_the_values_of_a_query_are_the_columns_in_their_order(base: Base, query: str) -> None:
    written(base, base.frame(3).selectExpr("name AS a", "id AS b"), query=query)

    assert base.run("SELECT id, name FROM orders ORDER BY id") == [(0, "0"), (1, "1"), (2, "2")]


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"table": "nobody.t"}, 'schema "nobody" does not exist'),
        ({"table": "t", "schema_save_mode": "ERROR_WHEN_SCHEMA_NOT_EXIST"}, "there is no table"),
        ({"database": "elsewhere"}, "option 'database' is 'elsewhere'"),
        ({"query": "INSERT INTO orders (id) VALUES (?)"}, "1 values, and the rows have 2"),
        ({"driver": "com.example.None"}, "driver com.example.None is not on the class path"),
    ],
)
def test_what_can_not_be_met_is_refused_in_one_line(
    base: Base, options: dict[str, Any], said: str
) -> None:
    with pytest.raises(Refused, match=said) as refused:
        base.sink(**options).stage(base.session, base.frame(1), base.at())
    check_line(str(refused.value))


@pytest.mark.parametrize(
    ("columns", "said"),
    [
        ("id bigint", "has no column name; .* schema_save_mode = RECREATE_SCHEMA"),
        (
            "id bigint, name text, more int NOT NULL",
            "needs a value for column more, .* schema_save_mode",
        ),
        ("id bigint, name int", 'staging rows for table .*column "name" is of type integer'),
        ("id smallint, name text", "staging rows for table .*smallint out of range"),
    ],
)
def test_rows_that_do_not_fit_the_table_are_refused_while_they_are_staged(
    base: Base, columns: str, said: str
) -> None:
    base.run(f"CREATE TABLE t ({columns})")

    with pytest.raises(Refused, match=said) as refused:
        base.sink(table="t").stage(base.session, base.frame(1, first=99_999), base.at())
    check_line(str(refused.value))


def test_a_constraint_of_the_table_refuses_the_whole_epoch(base: Base) -> None:
    base.run("CREATE TABLE t (id bigint CHECK (id <> 1003), name text)")
    at, sink = base.at(), base.sink(table="t")
    handle = base.staged(10, at, sink)

    with pytest.raises(Refused, match=r"committing: .*violates check constraint") as refused:
        sink.commit(base.session, handle, at)
    check_line(str(refused.value))
    assert base.count("t") == 0
    assert base.marks() == []


def test_a_database_that_does_not_answer_may_be_tried_again(base: Base) -> None:
    base.wire.close()

    with pytest.raises(Unavailable, match=r"jdbc:postgresql://127.0.0.1:\d+/\w+: ") as away:
        base.sink().stage(base.session, base.frame(1), base.at())
    check_line(str(away.value))


def test_a_wrong_password_is_refused_and_never_said(
    base: Base, postgresql: PostgreSQL, guarded: str
) -> None:
    sink = base.sink(user=guarded, url=f"{base.url}?password={SECRET}")

    with pytest.raises(Refused, match="password authentication failed") as refused:
        sink.stage(base.session, base.frame(1), base.at())
    check_line(str(refused.value))


def test_a_failing_transform_is_not_blamed_on_the_database(base: Base) -> None:
    frame = base.frame(2).selectExpr("id", "cast(raise_error('mine') as string) AS name")

    with pytest.raises(Exception, match="mine") as failed:
        base.sink().stage(base.session, frame, base.at())
    assert not isinstance(failed.value, Refused | Unavailable)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"primary_keys": ["id"]}, "upserts, which come later; set enable_upsert = false"),
        ({"query": "UPDATE orders SET id = ?"}, "must have the form INSERT INTO"),
        ({"url": "jdbc:mysql://h/d"}, "must begin with jdbc:postgresql:"),
        ({"table": "a.b.c.d"}, "must be table, schema.table"),
        ({"table": "a..b"}, "no name of a table"),
    ],
)
def test_options_that_can_not_be_met_are_refused_before_anything_runs(
    base: Base, options: dict[str, Any], said: str
) -> None:
    with pytest.raises(Refused, match=said):
        base.sink(**options)


def test_the_session_is_the_same_as_before(base: Base) -> None:
    """Nothing is left in Spark: neither views nor settings that hold a password."""
    written(base, base.frame(1))

    assert sql(base.session, "SHOW TABLES") == []
    assert SECRET not in str(base.session.sparkContext.getConf().getAll())


def check_line(said: str) -> None:
    assert SECRET not in said
    assert "\n" not in said
    assert said.startswith("sink Jdbc-1: ")


@pytest.fixture
def guarded(base: Base, postgresql: PostgreSQL) -> Iterator[str]:
    """A role that is asked for its password."""
    ((path,),) = base.run("SHOW hba_file")
    file, before = Path(path), Path(path).read_text()
    file.write_text("local all guarded scram-sha-256\n" + before)
    try:
        base.run("CREATE ROLE guarded LOGIN PASSWORD 'another one'")
        base.run("SELECT pg_reload_conf()")
        _until_guarded(postgresql.url(base.database).replace("postgres@", "guarded@"))
        yield "guarded"
    finally:
        file.write_text(before)
        base.run("SELECT pg_reload_conf()")
        base.run("DROP ROLE guarded")


def _until_guarded(url: str) -> None:
    end_s = time.monotonic() + RELOAD_MAX_S  # the server reloads on a signal, a moment later
    while True:
        try:
            psycopg.connect(url, passfile=os.devnull).close()
        except psycopg.OperationalError:
            return
        assert time.monotonic() < end_s, "the server asks for no password"
        time.sleep(0.01)
