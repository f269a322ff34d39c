"""What people ask of tables: written once, refused with the way out."""

from __future__ import annotations

from typing import Any

import pytest
from sqlalchemy import Engine

from headrace.coordinator.tables.commands import DRY_PLAN_MAX_MS, DRY_PLANS_MAX, TableCommands
from headrace.errors import BadSetting, NotFound, Refused, Unavailable
from headrace.model.ids import RandomIds
from headrace.model.tables.status import OptimizingType, ProcessStatus, TableStatus
from headrace.model.task import Lane, TaskKind, TaskStatus
from headrace.store.core import leases
from headrace.store.core.engine import reading
from headrace.store.core.leases import LeaderTime
from headrace.store.core.transactions import Term, fenced
from headrace.store.tables import lake_tables
from headrace.store.tasks.tasks import OfTable
from tests.coordinator.tables.lake_rows import LakeRows
from tests.fakes import FakeClock

NAME = "headrace.db.t"


@pytest.fixture
def commands(store: Engine, clock: FakeClock) -> TableCommands:
    return TableCommands(store, clock, RandomIds())


@pytest.fixture
def lakes(store: Engine, clock: FakeClock) -> LakeRows:
    return LakeRows(store, now_ms=clock.wall_ms())


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ("headrace.db.orderz", "did you mean 'headrace.db.orders'"),
        ("orders", "did you mean 'headrace.db.orders'"),
        ("nowhere.at.all", "`headrace table list` shows those that are known"),
    ],
)
def test_an_unknown_table_is_answered_with_the_near_name(
    commands: TableCommands, lakes: LakeRows, asked: str, said: str
) -> None:
    lakes.table("orders")

    with pytest.raises(NotFound, match=said):
        commands.pause(asked)


def test_optimize_said_twice_is_said_once_and_the_stronger_wish_counts(
    commands: TableCommands, lakes: LakeRows
) -> None:
    table = lakes.table(not_before_ms=2**50)

    said = [commands.optimize(NAME, OptimizingType(kind)).changed for kind in (2, 2, 1, 3)]

    assert said == [True, False, False, True]
    found = lakes.read(table)
    assert (found.wanted_type, found.not_before_ms) == (OptimizingType.FULL, 0)


def test_optimize_of_a_table_that_is_at_it_changes_nothing(
    commands: TableCommands, lakes: LakeRows
) -> None:
    table = lakes.table(status=TableStatus.MINOR_OPTIMIZING)
    lakes.name_process(table, lakes.process(table))

    assert not commands.optimize(NAME, OptimizingType.MINOR).changed
    assert commands.optimize(NAME, OptimizingType.FULL).changed


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"wanted_paused": 1}, f"`headrace table resume {NAME}`"),
        ({"enabled": 0}, "SET TBLPROPERTIES \\('self-optimizing.enabled'='true'\\)"),
    ],
)
def test_a_table_that_is_switched_off_is_not_optimized(
    commands: TableCommands, lakes: LakeRows, values: dict[str, Any], said: str
) -> None:
    table = lakes.table(**values)

    with pytest.raises(Refused, match=said):
        commands.optimize(NAME, OptimizingType.MAJOR)
    assert lakes.read(table).wanted_type is None


@pytest.mark.req("T7")
def test_cancel_asks_for_the_end_of_the_process_and_withdraws_the_wish(
    commands: TableCommands, lakes: LakeRows
) -> None:
    table = lakes.table(status=TableStatus.MINOR_OPTIMIZING, wanted_type="FULL")
    process = lakes.process(table)
    lakes.name_process(table, process)

    assert [commands.cancel(NAME).changed for _ in range(2)] == [True, False]
    assert lakes.read_process(process).wanted_cancel
    assert lakes.read(table).wanted_type is None


@pytest.mark.parametrize(
    ("status", "settling"), [(TableStatus.COMMITTING, None), (TableStatus.IDLE, 1)]
)
def test_what_may_have_landed_is_not_canceled(
    commands: TableCommands, lakes: LakeRows, status: TableStatus, settling: int | None
) -> None:
    table = lakes.table(status=status)
    process = lakes.process(table, settling_since_ms=settling)

    with pytest.raises(Refused, match="its commit may have landed"):
        commands.cancel(NAME)
    assert not lakes.read_process(process).wanted_cancel


def test_cancel_without_a_process_changes_nothing(commands: TableCommands, lakes: LakeRows) -> None:
    table = lakes.table()
    lakes.process(table, ProcessStatus.SUCCESS)

    assert not commands.cancel(NAME).changed


def test_pause_and_resume_said_twice_are_said_once(
    commands: TableCommands, lakes: LakeRows, clock: FakeClock
) -> None:
    table = lakes.table(wanted_type="FULL")

    assert [commands.pause(NAME).changed for _ in range(2)] == [True, False]
    assert (lakes.read(table).wanted_paused, lakes.read(table).wanted_type) == (True, None)
    clock.advance(7)
    assert [commands.resume(NAME).changed for _ in range(2)] == [True, False]
    assert (lakes.read(table).wanted_paused, lakes.read(table).due_at_ms) == (
        False,
        clock.wall_ms(),
    )


def test_a_dry_plan_is_a_control_task_without_a_process(
    commands: TableCommands, lakes: LakeRows
) -> None:
    table = lakes.table(status=TableStatus.PENDING)

    task = commands.dry_plan(NAME, commands.plan(NAME, OptimizingType.FULL))

    assert (task.kind, task.lane, task.table_id) == (TaskKind.PLAN, Lane.CONTROL, table)
    assert (task.process_id, task.status) == (None, TaskStatus.PLANNED)
    assert task.payload == {"dry": True, "at_least": "FULL", "retry_times": 0}
    assert lakes.read(table).status is TableStatus.PENDING
    assert lakes.read(table).task_id is None
    assert commands.plan(NAME, OptimizingType.FULL) == task.id
    assert commands.plan(NAME, None) != task.id


def test_a_plan_of_another_table_or_for_real_is_not_shown(
    commands: TableCommands, lakes: LakeRows
) -> None:
    table = lakes.table()
    lakes.table("other")
    task = commands.plan("headrace.db.other", None)
    lakes.task("real", TaskKind.PLAN, TaskStatus.PLANNED, OfTable(table))

    for named in (task, "real", "none"):
        with pytest.raises(NotFound, match=f"`headrace table plan {NAME}` makes one"):
            commands.dry_plan(NAME, named)


def test_dry_plans_have_a_limit_until_those_that_nobody_makes_are_given_up(
    commands: TableCommands, lakes: LakeRows, clock: FakeClock
) -> None:
    for number in range(DRY_PLANS_MAX + 1):
        lakes.table(f"t{number}")
    [first, *_] = [commands.plan(f"headrace.db.t{n}", None) for n in range(DRY_PLANS_MAX)]

    with pytest.raises(Unavailable, match="ask again later"):
        commands.plan(f"headrace.db.t{DRY_PLANS_MAX}", None)
    clock.advance(DRY_PLAN_MAX_MS / 1000)
    given_up = commands.dry_plan("headrace.db.t0", first)
    assert given_up.status is TaskStatus.PLANNED
    commands.plan(f"headrace.db.t{DRY_PLANS_MAX}", None)
    given_up = commands.dry_plan("headrace.db.t0", first)
    assert given_up.status is TaskStatus.CANCELED
    assert given_up.error == "no worker made this plan within 10 minutes"


def test_a_blocker_is_renewed_under_its_name_and_ends(
    commands: TableCommands, lakes: LakeRows, store: Engine, clock: FakeClock
) -> None:
    table = lakes.table()
    first = commands.block(NAME, "load", reason="nightly load", seconds=60).blocker
    clock.advance(30)
    again = commands.block(NAME, "load", reason="still loading", seconds=60).blocker

    assert again.created_at_ms == first.created_at_ms
    assert again.expires_at_ms == first.expires_at_ms + 30_000
    with reading(store) as conn:
        assert lake_tables.blockers_of(conn, table, now_ms=clock.wall_ms()) == [again]
    commands.unblock(NAME, "load")
    with pytest.raises(NotFound, match="it may have expired; there are no blockers"):
        commands.unblock(NAME, "load")


HOUR_MS = 3_600_000


@pytest.fixture
def led(store: Engine, term: Term, clock: FakeClock) -> int:
    """The leader has told its time, which this is."""
    with fenced(store, term) as conn:
        leases.record_time(conn, term, LeaderTime(clock.wall_ms(), 0))
    return clock.wall_ms()


@pytest.mark.req("L5")
@pytest.mark.parametrize("ahead_ms", [-HOUR_MS, -900_000, 0, 900_000])
def test_a_table_is_blocked_for_as_long_as_was_asked_whatever_the_clock_of_the_node(
    store: Engine, lakes: LakeRows, led: int, ahead_ms: int
) -> None:
    """Longer, if that is ahead: nobody knows then whether somebody leads, or did long ago."""
    table = lakes.table()
    node = TableCommands(store, FakeClock(wall_ms=led + ahead_ms), RandomIds())

    taken = node.block(NAME, "load", reason="r", seconds=600).blocker

    assert taken.expires_at_ms == led + max(0, ahead_ms) + 600_000
    with reading(store) as conn:
        assert lake_tables.blocked_tables(conn, now_ms=led + 599_999) == {table}
    node.block(NAME, "load", reason="r", seconds=600)  # renewed


@pytest.mark.req("L5")
def test_a_dry_plan_is_given_up_by_no_clock_but_the_leaders(
    store: Engine, lakes: LakeRows, led: int
) -> None:
    lakes.table()
    lakes.table("other")
    behind, ahead = (
        TableCommands(store, FakeClock(wall_ms=led + by_ms), RandomIds())
        for by_ms in (-HOUR_MS, HOUR_MS)
    )
    waits = behind.plan(NAME, None)
    ahead.plan("headrace.db.other", None)

    assert behind.dry_plan(NAME, waits).status is TaskStatus.PLANNED


@pytest.mark.parametrize(
    ("status", "settling_since_ms", "may_land"),
    [
        (TableStatus.COMMITTING, None, True),
        (TableStatus.IDLE, 1, True),
        (TableStatus.MAJOR_OPTIMIZING, None, False),
    ],
)
def test_whoever_blocks_a_table_is_told_of_a_commit_that_may_still_land(
    commands: TableCommands,
    lakes: LakeRows,
    status: TableStatus,
    settling_since_ms: int | None,
    may_land: bool,  # noqa: FBT001
) -> None:
    table = lakes.table(status=status)
    process = lakes.process(table, settling_since_ms=settling_since_ms)
    if status is not TableStatus.IDLE:
        lakes.name_process(table, process)

    told = commands.block(NAME, "load", reason="r", seconds=60).committing

    assert told == (lakes.read_process(process).number if may_land else None)


@pytest.mark.parametrize(
    ("name", "reason", "seconds", "said"),
    [
        ("a b", "r", 1, "blocker name 'a b' can't be used"),
        ("a", "r", 0, "for 1 to 86400 seconds, and not for 0"),
        ("a", "r", 86_401, "for 1 to 86400 seconds"),
        ("a", " ", 1, "needs a reason"),
        ("a", "r" * 501, 1, "needs a reason"),
    ],
)
def test_a_blocker_that_can_not_be_is_refused(
    commands: TableCommands, lakes: LakeRows, name: str, reason: str, seconds: int, said: str
) -> None:
    lakes.table()

    with pytest.raises(BadSetting, match=said):
        commands.block(NAME, name, reason=reason, seconds=seconds)


def test_an_expired_blocker_can_be_taken_anew(
    commands: TableCommands, lakes: LakeRows, store: Engine, clock: FakeClock
) -> None:
    table = lakes.table()
    commands.block(NAME, "load", reason="r", seconds=1)
    clock.advance(2)

    taken = commands.block(NAME, "load", reason="r", seconds=1).blocker
    assert taken.expires_at_ms > clock.wall_ms()
    with reading(store) as conn:
        assert len(lake_tables.blockers_of(conn, table, now_ms=clock.wall_ms())) == 1
