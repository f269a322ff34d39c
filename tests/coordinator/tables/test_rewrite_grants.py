"""Each table has its share of the slots, and no task counts twice or not at all."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sqlalchemy import delete, update

from headrace.coordinator.tables.controller import PASSED_OVER_S, RewriteGrants
from headrace.model.tables.schedule import quota_limit
from headrace.model.tables.status import TableStatus
from headrace.model.task import ENDED, Claim, Lane, TaskKind, TaskStatus
from headrace.store.core.engine import writing
from headrace.store.tables import table_tasks
from headrace.store.tables.schema import lake_tables
from headrace.store.tables.schema import processes as process_rows
from headrace.store.tasks.schema import tasks as task_rows
from tests.coordinator.leader_harness import TIMEOUT_S, LeaderHarness
from tests.coordinator.specs import spec
from tests.coordinator.tables.table_harness import TableHarness
from tests.examples import examples

SLOTS = 4
HALF = 2  # the share of a table with a quota of 0.5
MANY = 9
DAY_MS = 24 * 3_600_000

both = pytest.mark.parametrize("break_quota", [False, True])


@pytest.fixture
def rounds(desk: LeaderHarness) -> TableHarness:
    return TableHarness(desk, slots=SLOTS)


def rewriting(rounds: TableHarness, name: str, tasks: int = MANY, *, quota: float = 0.5) -> str:
    """A table in a process whose tasks all wait for a grant."""
    table = rounds.lakes.table(name, TableStatus.MINOR_OPTIMIZING, quota=quota)
    process = rounds.lakes.process(table, rewrites=[TaskStatus.PLANNED] * tasks)
    with writing(rounds.desk.store) as conn:
        mine = task_rows.c.process_id == process
        conn.execute(update(task_rows).where(mine).values(granted=0))
    rounds.lakes.name_process(table, process)
    return table


def granted(rounds: TableHarness, table: str) -> int:
    """Tasks of the table that have not ended, and may be claimed or are."""
    mine = [each for each in rounds.tasks(TaskKind.REWRITE) if each["table_id"] == table]
    return sum(each["granted"] for each in mine if each["status"] not in ENDED)


def grant(rounds: TableHarness, *, break_quota: bool = False) -> None:
    rounds.grants = RewriteGrants(rounds.clock, break_quota=break_quota)
    rounds.run(rounds.grants)


def claims(rounds: TableHarness, worker: str = "w1") -> list[Claim]:
    """What the worker is given of the slots it has; its next sync says that it holds them."""
    found = rounds.desk.sync(worker, free={Lane.SLOT: SLOTS}).assignments
    return [each.claim for each in found if each.kind is TaskKind.REWRITE]


def given_out(rounds: TableHarness) -> list[Claim]:
    held = claims(rounds)
    rounds.desk.sync("w1", holds=held, free={})
    return held


def test_nothing_is_claimed_before_it_is_granted(rounds: TableHarness) -> None:
    table = rewriting(rounds, "t")
    assert not claims(rounds)

    grant(rounds)

    assert granted(rounds, table) == len(claims(rounds)) == HALF


@pytest.mark.parametrize(("quota", "share"), [(0.5, HALF), (1.0, SLOTS), (3.0, 3), (0.01, 1)])
def test_a_table_gets_its_quota_and_no_more(rounds: TableHarness, quota: float, share: int) -> None:
    table = rewriting(rounds, "t", quota=quota)

    for _ in range(3):
        grant(rounds)

    assert granted(rounds, table) == share


def test_slots_that_nobody_could_use_within_his_quota_may_break_it(rounds: TableHarness) -> None:
    table = rewriting(rounds, "t")
    grant(rounds, break_quota=True)
    assert granted(rounds, table) == SLOTS


def test_tables_share_the_slots(rounds: TableHarness) -> None:
    one, other = rewriting(rounds, "a", quota=1.0), rewriting(rounds, "b", quota=1.0)
    grant(rounds)
    assert (granted(rounds, one), granted(rounds, other)) == (HALF, HALF)


@pytest.mark.req("L5")
def test_who_was_planned_first_goes_first_whatever_a_clock_was_set_to(rounds: TableHarness) -> None:
    now_ms = rounds.clock.wall_ms()
    first, second = rewriting(rounds, "first"), rewriting(rounds, "second")
    with writing(rounds.desk.store) as conn:
        # Its tasks were made before the clock was set back; due times were moved since.
        mine = task_rows.c.table_id == first
        conn.execute(update(task_rows).where(mine).values(created_at_ms=now_ms + DAY_MS))
        for table, planned_ms in ((first, now_ms - 9_000), (second, now_ms)):
            planned = update(lake_tables).where(lake_tables.c.id == table)
            conn.execute(planned.values(planned_at_ms=planned_ms))
        found = table_tasks.at_work(conn, group="default")

    assert [each.table_id for each in found] == [first, second]


@pytest.mark.req("L5")
def test_what_ran_before_a_clock_was_set_back_does_not_count_until_it_comes_there_again(
    rounds: TableHarness,
) -> None:
    table, now_ms = rewriting(rounds, "t", 2), rounds.clock.wall_ms()
    with writing(rounds.desk.store) as conn:
        ran = update(task_rows).where(task_rows.c.table_id == table)
        for number, began_ms in enumerate((now_ms - 3_000, now_ms + DAY_MS)):
            times = {"scheduled_at_ms": began_ms, "ended_at_ms": began_ms + 1_000}
            done = {"status": TaskStatus.SUCCESS, **times}
            conn.execute(ran.where(task_rows.c.number == number).values(done))
        found = table_tasks.run_ms(conn, [table], since_ms=now_ms - 60_000, now_ms=now_ms)

    assert found == {table: 1_000}


def test_pipelines_hold_slots_too(rounds: TableHarness) -> None:
    table = rewriting(rounds, "t", quota=1.0)
    rounds.desk.submit(spec(pipelines=3), job_id="job")
    rounds.desk.passes()

    grant(rounds)

    assert granted(rounds, table) == SLOTS - 3


def test_rewrites_that_wait_for_a_grant_hold_no_slot_from_a_job(rounds: TableHarness) -> None:
    rewriting(rounds, "t", tasks=50)
    rounds.desk.submit(spec(pipelines=SLOTS), job_id="job")
    rounds.desk.passes()

    assert rounds.desk.status("job") == "SCHEDULED"


@both
@pytest.mark.req("T4", "T5")
def test_a_task_of_a_dead_worker_counts_once(rounds: TableHarness, break_quota: bool) -> None:  # noqa: FBT001
    table = rewriting(rounds, "t")
    grant(rounds, break_quota=break_quota)
    share = granted(rounds, table)
    held = given_out(rounds)
    assert len(held) == share

    rounds.desk.register("w2", slots=SLOTS)
    rounds.clock.advance(TIMEOUT_S + 1)
    rounds.desk.sync("w2", free={})
    rounds.run(rounds.desk.workers)
    again = {rounds.desk.task(claim.task).status for claim in held}
    assert again == {TaskStatus.PLANNED}
    grant(rounds, break_quota=break_quota)

    assert granted(rounds, table) == share == (SLOTS if break_quota else HALF)
    rounds.clock.advance(10)  # the pause of a retry
    retaken = claims(rounds, "w2")
    assert sorted(c.task for c in retaken) == sorted(c.task for c in held)
    grant(rounds, break_quota=break_quota)
    assert granted(rounds, table) == share


@both
@pytest.mark.parametrize("acked", [False, True])
@pytest.mark.req("T4")
def test_a_task_that_its_worker_lost_counts_once(
    rounds: TableHarness,
    break_quota: bool,  # noqa: FBT001
    acked: bool,  # noqa: FBT001
) -> None:
    table = rewriting(rounds, "t")
    grant(rounds, break_quota=break_quota)
    share = granted(rounds, table)
    held = given_out(rounds) if acked else claims(rounds)

    rounds.desk.sync("w1", holds=(), free={})  # it polls again, and knows of none
    grant(rounds, break_quota=break_quota)

    assert {rounds.desk.task(claim.task).status for claim in held} == {TaskStatus.PLANNED}
    assert granted(rounds, table) == share


@both
@pytest.mark.req("T4")
def test_a_task_that_a_worker_holds_through_a_change_of_leaders_counts_once(
    rounds: TableHarness,
    break_quota: bool,  # noqa: FBT001
) -> None:
    table = rewriting(rounds, "t")
    grant(rounds, break_quota=break_quota)
    share, held = granted(rounds, table), given_out(rounds)

    rounds.desk.take_over()
    grant(rounds, break_quota=break_quota)
    assert granted(rounds, table) == share
    rounds.desk.sync("w1", holds=held, free={})
    grant(rounds, break_quota=break_quota)

    assert granted(rounds, table) == share
    assert {rounds.desk.task(claim.task).status for claim in held} == {TaskStatus.ACKED}


def test_while_a_job_waits_nothing_is_granted(rounds: TableHarness) -> None:
    rounds.desk.submit(spec(pipelines=3), job_id="running")
    rounds.desk.passes()
    rounds.desk.submit(spec(pipelines=2), job_id="waiting")
    rounds.desk.passes()
    table = rewriting(rounds, "t")

    grant(rounds)

    assert granted(rounds, table) == 0


def test_a_job_that_no_slot_would_help_holds_no_table_up(rounds: TableHarness) -> None:
    rounds.desk.submit(spec(pipelines=SLOTS + 1), job_id="huge")
    rounds.desk.passes()
    table = rewriting(rounds, "t")

    grant(rounds)

    assert granted(rounds, table) == HALF


def test_however_long_jobs_wait_tables_get_on_by_a_task_now_and_then(rounds: TableHarness) -> None:
    rounds.desk.submit(spec(pipelines=2), job_id="running")
    rounds.desk.passes()
    rounds.desk.submit(spec(pipelines=3), job_id="waiting")
    rounds.desk.passes()
    table, other = rewriting(rounds, "a"), rewriting(rounds, "b")
    loop = RewriteGrants(rounds.clock, break_quota=False)
    rounds.run(loop)
    assert granted(rounds, table) == 0

    for _ in range(3):  # not two at once, however long that one takes
        rounds.advance(PASSED_OVER_S)
        rounds.run(loop)
        assert (granted(rounds, table), granted(rounds, other)) == (1, 0)

    with writing(rounds.desk.store) as conn:
        done = task_rows.c.granted == 1, task_rows.c.kind == TaskKind.REWRITE
        conn.execute(update(task_rows).where(*done).values(status="CANCELED", ended_at_ms=1))
    rounds.advance(PASSED_OVER_S - 1)
    rounds.run(loop)
    assert granted(rounds, table) == 0  # the job has its chance
    rounds.advance(1)
    rounds.run(loop)
    assert granted(rounds, table) == 1


def test_a_group_with_fewer_slots_than_before_grants_nothing_more(rounds: TableHarness) -> None:
    rounds.desk.register("w2", slots=SLOTS)
    table = rewriting(rounds, "t", quota=1.0)
    grant(rounds)
    assert granted(rounds, table) == 2 * SLOTS
    rounds.clock.advance(TIMEOUT_S + 1)
    rounds.desk.sync("w1", free={})
    rounds.run(rounds.desk.workers)

    grant(rounds)

    assert granted(rounds, table) == 2 * SLOTS


@given(
    quotas=st.lists(st.sampled_from([0.01, 0.25, 0.5, 1.0, 2.0]), min_size=1, max_size=4),
    break_quota=st.booleans(),
    steps=st.lists(st.sampled_from(["claim", "lose", "die", "end"]), max_size=5),
)
@examples(12, shares_a_store=True)
@pytest.mark.req("T4")
def test_whatever_happens_to_tasks_no_share_is_exceeded_and_no_table_starves(
    rounds: TableHarness,
    quotas: list[float],
    break_quota: bool,  # noqa: FBT001
    steps: list[str],
) -> None:
    """As long as it has a task left and there is a slot for each, each table has one at work."""
    with writing(rounds.desk.store) as conn:
        for rows in (task_rows, process_rows, lake_tables):
            conn.execute(delete(rows))
    if not rounds.desk.is_registered("w1"):
        rounds.desk.register("w1", slots=SLOTS)
    rounds.desk.sync("w1", free={})
    tables = {rewriting(rounds, f"t{n}", 30, quota=q): q for n, q in enumerate(quotas)}
    held: list[Claim] = []
    for step in ["claim", *steps]:
        grant(rounds, break_quota=break_quota)
        counts = {table: granted(rounds, table) for table in tables}
        assert sum(counts.values()) <= SLOTS
        assert all(counts.values())
        if not break_quota:
            assert all(counts[t] <= quota_limit(q, SLOTS) for t, q in tables.items())
        held = _happens(rounds, step, held)


def _happens(rounds: TableHarness, step: str, held: list[Claim]) -> list[Claim]:
    desk = rounds.desk
    match step:
        case "claim":
            new = desk.sync("w1", holds=held, free={Lane.SLOT: SLOTS}).assignments
            held = [*held, *(each.claim for each in new)]
            desk.sync("w1", holds=held, free={})
        case "lose":
            desk.sync("w1", holds=(), free={})
            held = []
        case "die":
            rounds.clock.advance(TIMEOUT_S + 1)
            rounds.run(desk.workers)
            desk.register("w1", slots=SLOTS)
            held = []
        case _:
            with writing(desk.store) as conn:
                mine = task_rows.c.id.in_([claim.task for claim in held[:1]])
                ended = {"status": TaskStatus.CANCELED, "ended_at_ms": 1}
                conn.execute(update(task_rows).where(mine).values(**ended))
            held = held[1:]
    rounds.clock.advance(10)  # the pause of a retry
    return held
