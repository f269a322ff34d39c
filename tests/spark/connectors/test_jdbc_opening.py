"""Save modes of the Jdbc sink on a real PostgreSQL: what each does, and that it is done once."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import pytest

from headrace import seams
from headrace.connectors.connector import Committed
from headrace.connectors.jdbc.sink import JdbcSink
from headrace.errors import Refused
from tests.spark.base import Base

IN_A_COMMIT = b"ON CONFLICT (incarnation"
MARK_MAX_S = 240


@pytest.fixture(autouse=True)
def no_seam_stays_armed() -> Iterator[None]:
    yield
    seams.disarm_all()


@pytest.fixture
def base(base: Base) -> Base:
    base.run("INSERT INTO orders SELECT n, 'old' FROM generate_series(1, 3) AS n")
    return base


def surveyed(base: Base, to: JdbcSink) -> Any:
    return to.survey(base.session, base.frame(0), base.at(0))


def opened(base: Base, to: JdbcSink, execution: str = "t1.1") -> Committed:
    return to.open(base.session, surveyed(base, to), base.at(0, execution))


def write(base: Base, to: JdbcSink, rows: int, epoch: int = 1) -> None:
    at = base.at(epoch)
    to.commit(base.session, base.staged(rows, at, to), at)


@pytest.mark.parametrize(
    ("modes", "left"),
    [
        ({"data_save_mode": "DROP_DATA"}, 0),
        ({"schema_save_mode": "RECREATE_SCHEMA"}, 0),
        ({"schema_save_mode": "RECREATE_SCHEMA", "data_save_mode": "DROP_DATA"}, 0),
        ({"schema_save_mode": "ERROR_WHEN_SCHEMA_NOT_EXIST"}, 3),
        (
            {
                "data_save_mode": "CUSTOM_PROCESSING",
                "custom_sql": "DELETE FROM orders WHERE name <> '?' AND id < 2; SELECT 1",
            },
            2,
        ),
    ],
)
def test_each_mode_leaves_the_rows_it_should(
    base: Base, modes: dict[str, Any], *, left: int
) -> None:
    to = base.sink(**modes)
    assert to.opens
    assert not opened(base, to).already
    assert base.count() == left
    assert base.marks() == [(0, "data", 0)]

    write(base, to, 5)
    to.finish(5)
    assert base.count() == left + 5
    assert base.marks() == [(1, "data", 5)]


def test_a_mode_that_only_appends_has_nothing_to_open(base: Base) -> None:
    assert not base.sink().opens
    assert not base.sink(schema_save_mode="IGNORE").opens


def test_a_table_is_made_anew_with_the_columns_of_the_rows(base: Base) -> None:
    base.run("DROP TABLE orders; CREATE TABLE orders (id text, other text)")
    base.run("INSERT INTO orders VALUES ('x', 'y')")
    to = base.sink(schema_save_mode="RECREATE_SCHEMA", primary_keys=["id"], enable_upsert=False)
    opened(base, to)
    columns = base.run(
        "SELECT column_name, data_type, is_nullable FROM information_schema.columns "
        "WHERE table_name = 'orders' ORDER BY ordinal_position"
    )
    assert columns == [("id", "bigint", "NO"), ("name", "text", "YES")]
    write(base, to, 5)
    assert base.count() == 5


@pytest.mark.parametrize(
    "modes",
    [
        {"data_save_mode": "DROP_DATA"},
        {"data_save_mode": "ERROR_WHEN_DATA_EXISTS"},
        {"schema_save_mode": "RECREATE_SCHEMA"},
    ],
)
def test_a_table_that_is_missing_is_made_with_the_first_rows(
    base: Base, modes: dict[str, Any]
) -> None:
    base.run("DROP TABLE orders")
    to = base.sink(**modes)
    opened(base, to)
    assert base.run("SELECT to_regclass('orders')::text") == [(None,)]
    assert base.marks() == [(0, "data", 0)]
    write(base, to, 5)
    assert base.count() == 5


def test_a_table_that_is_missing_is_made_before_the_users_own_statement(base: Base) -> None:
    base.run("DROP TABLE orders")
    custom = "INSERT INTO orders VALUES (7, 'seven')"
    opened(base, base.sink(data_save_mode="CUSTOM_PROCESSING", custom_sql=custom))
    assert base.count() == 1


def test_a_table_that_holds_rows_or_is_missing_is_refused_when_the_mode_says_so(
    base: Base,
) -> None:
    full = base.sink(schema_save_mode="RECREATE_SCHEMA", data_save_mode="ERROR_WHEN_DATA_EXISTS")
    with pytest.raises(Refused, match=r"Jdbc-1: table public\.orders in .* holds rows, and"):
        surveyed(base, full)
    assert base.count() == 3, "the rows are looked for before the table is made anew"

    base.run("DELETE FROM orders")
    opened(base, full)
    base.run("DROP TABLE orders")
    missing = base.sink(schema_save_mode="ERROR_WHEN_SCHEMA_NOT_EXIST")
    with pytest.raises(Refused, match=r"there is no table public\.orders .*; make it, or set"):
        surveyed(base, missing)


def test_a_survey_changes_nothing(base: Base) -> None:
    tables = "SELECT tablename FROM pg_tables WHERE schemaname = 'public'"
    surveyed(base, base.sink(schema_save_mode="RECREATE_SCHEMA", data_save_mode="DROP_DATA"))
    assert base.run(tables) == [("orders",)]
    assert base.count() == 3


@pytest.mark.req("E1")
@pytest.mark.parametrize(
    "modes",
    [
        {"data_save_mode": "DROP_DATA"},
        {"schema_save_mode": "RECREATE_SCHEMA"},
        {"data_save_mode": "CUSTOM_PROCESSING", "custom_sql": "DELETE FROM orders"},
    ],
)
def test_an_opening_said_again_is_refused_by_the_mark_also_when_epoch_1_is_in(
    base: Base, modes: dict[str, Any]
) -> None:
    to = base.sink(**modes)
    handle = surveyed(base, to)
    assert not to.open(base.session, handle, base.at(0, "t1.2")).already
    base.run("INSERT INTO orders VALUES (50, 'since')")
    assert to.open(base.session, handle, base.at(0, "t1.1")).already
    write(base, to, 5)
    assert to.open(base.session, handle, base.at(0, "t1.1")).already
    assert base.count() == 6
    assert base.marks() == [(1, "data", 5)]


@pytest.mark.req("E1")
@pytest.mark.parametrize(
    "modes", [{"data_save_mode": "DROP_DATA"}, {"schema_save_mode": "RECREATE_SCHEMA"}]
)
def test_a_zombie_that_wakes_in_epoch_0_when_epoch_1_is_in_changes_nothing(
    base: Base, modes: dict[str, Any]
) -> None:
    to = base.sink(**modes)
    handle = surveyed(base, to)
    asleep, wake = threading.Event(), threading.Event()
    outcomes: dict[str, Committed] = {}

    def pause() -> None:
        if threading.current_thread().name == "zombie":
            asleep.set()
            assert wake.wait(MARK_MAX_S)

    def opening() -> None:
        outcomes["zombie"] = to.open(base.session, handle, base.at(0, "t1.1"))

    seams.arm("before sink open", pause)
    zombie = threading.Thread(target=opening, name="zombie", daemon=True)
    zombie.start()
    assert asleep.wait(MARK_MAX_S)
    assert not to.open(base.session, handle, base.at(0, "t1.2")).already
    write(base, to, 5)
    wake.set()
    zombie.join(timeout=MARK_MAX_S)

    assert outcomes["zombie"].already
    assert base.count() == 5


@pytest.mark.req("E3")
def test_an_opening_whose_answer_was_lost_is_found_by_its_mark(base: Base) -> None:
    to = base.sink(data_save_mode="DROP_DATA")
    handle = surveyed(base, to)
    base.wire.lose_commit_after(IN_A_COMMIT)

    done = to.open(base.session, handle, base.at(0))

    assert base.wire.lost == 1
    assert not done.already, "it was our own"
    assert base.count() == 0


@pytest.mark.req("E1")
def test_an_opening_that_fails_in_the_middle_has_done_nothing(base: Base) -> None:
    custom = "DELETE FROM orders; INSERT INTO nowhere VALUES (1)"
    to = base.sink(data_save_mode="CUSTOM_PROCESSING", custom_sql=custom)
    with pytest.raises(Refused, match='relation "nowhere" does not exist'):
        opened(base, to)
    assert base.count() == 3
    assert base.marks() == [], "the token is unspent"
