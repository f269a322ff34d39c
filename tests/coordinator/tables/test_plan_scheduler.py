"""Tables are planned in turn: by policy, a few at a time, and none is left behind."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sqlalchemy import Connection, delete

from headrace.coordinator.tables.plan_scheduler import (
    BUDGET_PER_SLOT_BYTES,
    PLANNING_MAX,
    PlanScheduler,
    policy_of,
    rank_of,
)
from headrace.model.tables.schedule import STARVED_AFTER_MS, SchedulingPolicy
from headrace.model.tables.status import OptimizingType, TableStatus
from headrace.model.task import TaskKind, TaskStatus
from headrace.store.core.engine import reading, writing
from headrace.store.groups import groups
from headrace.store.tables import lake_tables as stored_tables
from headrace.store.tables import processes, table_changes
from headrace.store.tables.schema import lake_tables
from headrace.store.tasks.schema import tasks as task_rows
from headrace.store.tasks.tasks import OfTable
from tests.coordinator.leader_harness import LeaderHarness
from tests.coordinator.tables.table_harness import TableHarness
from tests.examples import examples
from tests.stores import given_catalog, given_group

IDLE, PENDING, PLANNING = TableStatus.IDLE, TableStatus.PENDING, TableStatus.PLANNING
SLOTS = 4


@pytest.fixture
def rounds(desk: LeaderHarness) -> TableHarness:
    return TableHarness(desk, slots=SLOTS)


def waiting(rounds: TableHarness, name: str, *, ago_ms: int = 1000, **values: Any) -> str:
    since_ms = rounds.clock.wall_ms() - ago_ms
    return rounds.lakes.table(name, PENDING, pending_since_ms=since_ms, **values)


def planned(rounds: TableHarness) -> set[str]:
    return {str(each["table_id"]) for each in rounds.tasks(TaskKind.PLAN)}


def by(rounds: TableHarness, policy: SchedulingPolicy) -> None:
    rounds.turns = PlanScheduler(rounds.clock, rounds.desk.ids, policy=policy)


def ranks(
    rounds: TableHarness, policy: SchedulingPolicy, *tables: str
) -> list[tuple[int, int] | None]:
    with reading(rounds.desk.store) as conn:
        now_ms = rounds.clock.wall_ms()
        read = [rounds.table(each) for each in tables]
        return [rank_of(conn, each, now_ms=now_ms, policy=policy) for each in read]


def test_a_few_tables_of_a_group_are_planned_at_once(rounds: TableHarness) -> None:
    tables = [waiting(rounds, f"t{n}", ago_ms=1000 - n) for n in range(PLANNING_MAX + 1)]

    rounds.run(rounds.turns)

    assert planned(rounds) == set(tables[:PLANNING_MAX])
    assert [rounds.status(each) for each in tables] == [*([PLANNING] * PLANNING_MAX), PENDING]
    assert not rounds.run(rounds.turns).done
    [first, *_] = rounds.tasks(TaskKind.PLAN)
    assert first["payload"]["budget_bytes"] == SLOTS * BUDGET_PER_SLOT_BYTES
    assert first["payload"]["at_least"] is None


@pytest.mark.parametrize("policy", list(SchedulingPolicy))
def test_the_policy_says_who_is_first_and_the_rank_is_the_same(
    rounds: TableHarness, policy: SchedulingPolicy
) -> None:
    busy = waiting(rounds, "busy", ago_ms=5000, benefit=2.0, optimized_at_ms=5)
    fresh = waiting(rounds, "fresh", ago_ms=1000, benefit=1.0, optimized_at_ms=9)
    never = waiting(rounds, "never", ago_ms=3000, benefit=3.0)
    for table in (busy, never):
        rounds.lakes.process(table, status=_ENDED, rewrites=[TaskStatus.SUCCESS])
    with writing(rounds.desk.store) as conn:
        conn.execute(task_rows.update().values(scheduled_at_ms=rounds.clock.wall_ms() - 9000))
        mine = task_rows.c.table_id == never
        conn.execute(task_rows.update().where(mine).values(scheduled_at_ms=1, ended_at_ms=2))
    by(rounds, policy)
    order = {
        SchedulingPolicy.QUOTA: [never, fresh, busy],
        SchedulingPolicy.BALANCED: [never, busy, fresh],
        SchedulingPolicy.BENEFIT: [never, busy, fresh],
    }[policy]

    assert ranks(rounds, policy, *order) == [(1, 3), (2, 3), (3, 3)]
    rounds.run(rounds.turns)
    assert planned(rounds) == set(order[:PLANNING_MAX])


_ENDED = processes.ProcessStatus.SUCCESS


HINDRANCES: dict[str, dict[str, Any]] = {
    "it is disabled": {"enabled": 0},
    "it is paused": {"wanted_paused": 1},
    "it failed a moment ago": {"not_before_ms": 2**60},
    "it was planned a moment ago": {"planned_at_ms": 1_700_000_000_000 - 59_999},
    "no worker is in its group": {"group_name": "nobody"},
    "it is not waiting": {"status": IDLE},
    "it is in a process": {"status": TableStatus.COMMITTING},
}


@pytest.mark.parametrize("because", HINDRANCES)
def test_a_table_is_not_planned_while(rounds: TableHarness, because: str) -> None:
    values = dict(HINDRANCES[because])
    status = values.pop("status", PENDING)
    table = rounds.lakes.table("t", status, pending_since_ms=1, **values)

    assert not rounds.run(rounds.turns).done
    assert ranks(rounds, SchedulingPolicy.QUOTA, table) == [None]


@pytest.mark.req("T2")
def test_a_table_is_not_planned_while_a_process_of_it_is_settling(rounds: TableHarness) -> None:
    table = waiting(rounds, "t")
    process = rounds.lakes.process(table, settling_since_ms=1)
    assert not rounds.run(rounds.turns).done

    with writing(rounds.desk.store) as conn:
        found = processes.get(conn, process)
        assert found is not None
        processes.end(conn, found, _ENDED, now_ms=2)

    rounds.run(rounds.turns)
    assert planned(rounds) == {table}


def test_a_blocked_table_is_planned_when_its_blocker_expires(rounds: TableHarness) -> None:
    table = waiting(rounds, "t")
    now_ms = rounds.clock.wall_ms()
    with writing(rounds.desk.store) as conn:
        until_ms = now_ms + 60_000
        stored_tables.block(conn, table, "etl", reason="load", until_ms=until_ms, now_ms=now_ms)
    assert not rounds.run(rounds.turns).done

    rounds.advance(60)
    rounds.run(rounds.turns)

    assert planned(rounds) == {table}


def test_tables_of_a_catalog_that_is_being_removed_are_not_planned(rounds: TableHarness) -> None:
    waiting(rounds, "t")
    with writing(rounds.desk.store) as conn:
        given_catalog(conn, "headrace", wanted_removed=1)

    assert not rounds.run(rounds.turns).done


def test_what_somebody_asked_for_goes_first_from_idle_too(rounds: TableHarness) -> None:
    now_ms = rounds.clock.wall_ms()
    for n in range(PLANNING_MAX):
        waiting(rounds, f"t{n}", ago_ms=2 * STARVED_AFTER_MS)
    idle = rounds.lakes.table("idle", wanted_type="FULL")
    again = waiting(rounds, "again", wanted_type="MINOR", planned_at_ms=now_ms)

    rounds.run(rounds.turns)

    assert planned(rounds) == {idle, again}
    told = {each["table_id"]: each["payload"]["at_least"] for each in rounds.tasks(TaskKind.PLAN)}
    assert told == {idle: OptimizingType.FULL.name, again: OptimizingType.MINOR.name}


@pytest.mark.parametrize("because", ["it is disabled", "it is paused", "it failed a moment ago"])
def test_even_what_somebody_asked_for_is_not_planned_while(
    rounds: TableHarness, because: str
) -> None:
    rounds.lakes.table("t", wanted_type="FULL", **HINDRANCES[because])

    assert not rounds.run(rounds.turns).done


def test_nothing_is_planned_that_no_slot_could_begin(rounds: TableHarness) -> None:
    """Two tables with a quota of half the slots fill the group; a third would only wait."""
    for name in ("a", "b"):
        table = rounds.lakes.table(name, TableStatus.MINOR_OPTIMIZING)
        rounds.lakes.process(table, rewrites=[TaskStatus.PLANNED] * 9)
    waiting(rounds, "t")
    assert not rounds.run(rounds.turns).done

    wanted = rounds.lakes.table("wanted", wanted_type="MINOR")
    rounds.run(rounds.turns)
    assert planned(rounds) == {wanted}


def test_a_table_with_many_tasks_does_not_keep_others_from_their_share(
    rounds: TableHarness,
) -> None:
    table = rounds.lakes.table("a", TableStatus.MINOR_OPTIMIZING)
    rounds.lakes.process(table, rewrites=[TaskStatus.PLANNED] * 400)
    other = waiting(rounds, "t")

    rounds.run(rounds.turns)

    assert planned(rounds) == {other}


def test_each_group_plans_for_itself(rounds: TableHarness) -> None:
    rounds.desk.register("w2", group="other")
    for n in range(PLANNING_MAX):
        rounds.lakes.task(f"p{n}", TaskKind.PLAN, TaskStatus.PLANNED, OfTable("x"))
    waiting(rounds, "t")
    elsewhere = waiting(rounds, "elsewhere", group_name="other")

    rounds.run(rounds.turns)

    assert planned(rounds) == {"x", elsewhere}


@pytest.mark.req("T6")
def test_a_table_that_can_not_be_planned_holds_nobody_up(
    rounds: TableHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    broken, sound = waiting(rounds, "broken", ago_ms=2000), waiting(rounds, "sound")
    really = stored_tables.lock

    def lock(conn: Connection, table_id: str) -> Any:
        if table_id == broken:
            raise RuntimeError("the store plays tricks")
        return really(conn, table_id)

    monkeypatch.setattr(stored_tables, "lock", lock)
    rounds.run(rounds.turns)

    assert planned(rounds) == {sound}
    assert rounds.table(broken).error == "it can't be planned: RuntimeError"
    assert rounds.table(broken).not_before_ms > rounds.clock.wall_ms()


def test_a_group_that_has_a_policy_uses_its_own(rounds: TableHarness) -> None:
    gains = waiting(rounds, "gains", ago_ms=1000, benefit=9.0, optimized_at_ms=9)
    older = [waiting(rounds, f"older{i}", ago_ms=5000, optimized_at_ms=i + 1) for i in range(3)]
    by(rounds, SchedulingPolicy.BALANCED)
    assert ranks(rounds, SchedulingPolicy.BALANCED, gains, *older)[0] == (4, 4)
    with writing(rounds.desk.store) as conn:
        groups.add(conn, "default", now_ms=1)
        given_group(conn, "default", policy=SchedulingPolicy.BENEFIT)
        assert policy_of(conn, "default", otherwise=SchedulingPolicy.QUOTA) == "benefit"
        assert policy_of(conn, "other", otherwise=SchedulingPolicy.QUOTA) == "quota"

    rounds.run(rounds.turns)

    assert gains in planned(rounds)


def begun_at(rounds: TableHarness, policy: SchedulingPolicy, rivals: int, *, older: int) -> int:
    """How many plans begin until the victim's does, though rivals that look better in every respect
    come back at once; `older` of them have waited longer than it when it begins to starve."""
    with writing(rounds.desk.store) as conn:
        for rows in (task_rows, lake_tables):
            conn.execute(delete(rows))
    by(rounds, policy)
    optimized = {"optimized_at_ms": 9, "min_plan_interval_ms": 0}
    victim = waiting(rounds, "victim", ago_ms=STARVED_AFTER_MS, **optimized)
    for n in range(rivals):
        ago_ms = STARVED_AFTER_MS + 1 if n < older else 1
        best = {"benefit": 9.0 + n, "quota": 9.0, "min_plan_interval_ms": 0}
        waiting(rounds, f"rival{n}", ago_ms=ago_ms, **best)
    begun = 0
    while rounds.status(victim) is PENDING and begun <= 4 * (rivals + 1):
        rounds.run(rounds.turns)
        begun += len(planned(rounds))
        with writing(rounds.desk.store) as conn:  # each plan ends, and its table waits anew
            for table_id in planned(rounds) - {victim}:
                table = stored_tables.get(conn, table_id)
                assert table is not None
                table_changes.await_turn(conn, table, now_ms=rounds.clock.wall_ms())
            conn.execute(delete(task_rows))
        rounds.advance(0.001)
    return begun


@given(
    policy=st.sampled_from(SchedulingPolicy),
    rivals=st.integers(min_value=0, max_value=8),
    older=st.integers(min_value=0, max_value=8),
)
@examples(12, shares_a_store=True)
def test_no_policy_starves_a_table(
    rounds: TableHarness, policy: SchedulingPolicy, rivals: int, older: int
) -> None:
    """With k tables that had waited longer it is the k+1st at the latest: whole passes count."""
    older = min(rivals, older)

    begun = begun_at(rounds, policy, rivals, older=older)

    assert begun <= (older // PLANNING_MAX + 1) * PLANNING_MAX
