"""A wall clock that is set, forward or back, and what waits in the store meanwhile."""

from __future__ import annotations

from collections.abc import Generator, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import pytest
from sqlalchemy import Connection, Engine, Table, event, insert, select, text, update

from headrace.clock import JUMP_MIN_MS, SystemClock
from headrace.coordinator.leadership.leader import (
    SET_AHEAD_MIN_MS,
    LeaderClock,
    begin_time,
    longest_pauses,
    moved_by_ms,
)
from headrace.model.jobs.epoch import CleanupStep
from headrace.store import due_time_shift
from headrace.store.core import leases
from headrace.store.core.engine import is_sqlite, reading, writing
from headrace.store.core.leases import LeaderTime
from headrace.store.core.schema import metadata
from headrace.store.core.transactions import Term, fenced
from headrace.store.due_time_shift import WAITED_FOR
from headrace.store.jobs.schema import cleanups, job_logs, savepoints
from headrace.store.tables.schema import blockers, catalogs, lake_tables
from tests.conftest import ADDRESS
from tests.coordinator.leadership.clocked import HOUR_MS, NOW_MS, OPTIONS, begin, keep
from tests.fakes import FakeClock
from tests.stores import open_store

pytestmark = pytest.mark.req("L5")

JUMPS_MS = [-5 * 24 * HOUR_MS, -HOUR_MS, -6_000, 6_000, HOUR_MS, 5 * 24 * HOUR_MS]
MARKS_KEPT_MS = OPTIONS.retention.marks_kept_ms
# When something was, for people. A new column of a time must be put here, or be waited for.
ONLY_TOLD = {
    "blockers": {"created_at_ms"},
    "catalogs": {"created_at_ms"},
    "epochs": {"planned_at_ms", "prepared_at_ms", "ended_at_ms"},
    "groups": {"created_at_ms"},
    "history": {"created_at_ms", "started_at_ms", "ended_at_ms"},
    "job_logs": {"at_ms", "taken_at_ms"},
    "jobs": {"created_at_ms", "started_at_ms", "ended_at_ms"},
    "lake_tables": {"created_at_ms", "status_since_ms"},
    "leases": {"clock_ms", "set_ahead_at_ms"},
    "processes": {"created_at_ms", "ended_at_ms"},
    "resources": {"created_at_ms", "started_at_ms"},
    "tasks": {"created_at_ms", "scheduled_at_ms", "ended_at_ms", "failed_at_ms"},
    "workers": {"registered_at_ms", "seen_at_ms"},
}
LENGTHS = {"interval_ms", "min_plan_interval_ms", "pause_ms", "offset_ms"}


def test_every_time_in_the_store_is_waited_for_or_only_told() -> None:
    for table in metadata.sorted_tables:
        times = {c.name for c in table.c if c.name.endswith("_ms")} - LENGTHS
        waited_for = set(WAITED_FOR.get(table, ()))
        told = ONLY_TOLD.get(table.name, set[str]())
        assert times == waited_for | told, table.name
        assert not waited_for & told


def test_the_real_clock_has_a_time_that_cant_be_set() -> None:
    clock = SystemClock()
    assert 0 < clock.elapsed_s() <= clock.elapsed_s()


@pytest.mark.parametrize("jump_ms", JUMPS_MS)
def test_within_a_term_time_goes_on_as_if_nobody_had_set_the_clock(
    clock: FakeClock, jump_ms: int
) -> None:
    leader, began_ms = LeaderClock(clock), clock.wall_ms()
    clock.set_wall(began_ms + jump_ms)
    clock.advance(10)

    assert leader.time() == LeaderTime(began_ms + 10_000, -jump_ms)


def test_small_steps_are_followed_and_many_of_them_are_a_jump(clock: FakeClock) -> None:
    leader, began_ms = LeaderClock(clock), clock.wall_ms()
    clock.set_wall(began_ms - 3_000)
    assert leader.time() == LeaderTime(began_ms - 3_000, 0)
    clock.set_wall(began_ms - 6_000)
    assert leader.time() == LeaderTime(began_ms - 3_000, 3_000)


def test_a_clock_that_is_set_right_again_counts_as_it_did(clock: FakeClock) -> None:
    leader, began_ms = LeaderClock(clock), clock.wall_ms()
    clock.set_wall(began_ms + HOUR_MS)
    assert leader.time().offset_ms == -HOUR_MS
    clock.set_wall(began_ms)
    assert leader.time() == LeaderTime(began_ms, 0)


def test_a_machine_that_slept_is_not_a_clock_that_was_set(clock: FakeClock) -> None:
    leader, began_ms = LeaderClock(clock), clock.wall_ms()
    clock.sleep(8 * 3600)
    assert leader.time() == LeaderTime(began_ms + 8 * HOUR_MS, 0)


@pytest.mark.parametrize(
    ("clock_ms", "offset_ms", "now_ms", "by_ms"),
    [
        (NOW_MS, 0, NOW_MS + 1, 0),
        (NOW_MS, 0, NOW_MS + HOUR_MS, 0),  # nobody led for an hour
        (NOW_MS, 0, NOW_MS - JUMP_MIN_MS, 0),  # a little behind is any other machine
        (NOW_MS, 0, NOW_MS - HOUR_MS, -HOUR_MS),  # set back while nobody led, or another machine
        (NOW_MS, HOUR_MS, NOW_MS - HOUR_MS + 1, -HOUR_MS),  # set back in the term, the same machine
        (NOW_MS, HOUR_MS, NOW_MS + 1, 0),  # the same, and a machine whose clock was not set
        (NOW_MS, -HOUR_MS, NOW_MS + HOUR_MS + 1, HOUR_MS),  # set ahead, the same machine
        (NOW_MS, -HOUR_MS, NOW_MS + 1, 0),  # the same, and a machine whose clock was not set
        (NOW_MS, -HOUR_MS, NOW_MS - HOUR_MS, -HOUR_MS),  # and one that is behind
    ],
)
def test_what_waits_is_moved_by_what_the_clock_was_set(
    clock_ms: int, offset_ms: int, now_ms: int, by_ms: int
) -> None:
    assert sum(moved_by_ms(LeaderTime(clock_ms, offset_ms), now_ms)) == by_ms


@pytest.mark.parametrize(
    ("ahead_ms", "by_ms"), [(HOUR_MS, HOUR_MS), (-HOUR_MS, -HOUR_MS), (JUMP_MIN_MS, 0)]
)
def test_who_followed_a_leader_moves_what_waits_by_the_difference_of_their_clocks(
    ahead_ms: int, by_ms: int
) -> None:
    told = LeaderTime(NOW_MS, 0)
    assert moved_by_ms(told, NOW_MS + ahead_ms + 3_000, leader_now_ms=NOW_MS + 3_000) == (by_ms, 0)


def test_a_store_whose_leaders_told_no_time_is_left_as_it_is() -> None:
    assert moved_by_ms(None, NOW_MS) == (0, 0)


SAVEPOINT: Mapping[str, Any] = {
    "incarnation": "i",
    "job_id": "j",
    "kind": "SAVEPOINT",
    "epoch": 3,
    "positions": {},
    "ready": [],
    "written": {},
}


def of_table(store: Engine, *names: str) -> tuple[Any, ...]:
    with reading(store) as conn:
        return tuple(conn.execute(select(*(lake_tables.c[n] for n in names))).one())


WAITS = ("due_at_ms", "not_before_ms", "planned_at_ms", "pending_since_ms", "optimized_at_ms")


@pytest.mark.parametrize("jump_ms", JUMPS_MS)
def test_the_next_term_moves_what_waits_by_the_offset_of_the_last(
    store: Engine, term: Term, clock: FakeClock, jump_ms: int
) -> None:
    begin(store, term, clock)
    leader, now_ms = LeaderClock(clock), clock.wall_ms()
    waits = {
        "due_at_ms": now_ms + 50_000,
        "not_before_ms": 0,  # no time
        "planned_at_ms": now_ms - 30_000,
        "pending_since_ms": None,
        "optimized_at_ms": now_ms - 20,  # by which some policies choose
        "clocks": {"p": [now_ms - 7, None, None, now_ms]},
    }
    keep(store, waits, expires_at_ms=now_ms + 9_000)
    clock.set_wall(now_ms + jump_ms)
    with writing(store) as conn:
        assert leases.renew(conn, term, renewals=1, time=leader.time())
        assert leases.resign(conn, term)
        after = leases.take(conn, leases.read(conn), holder="other", address=ADDRESS)
    assert after is not None

    begin(store, after, clock)

    assert of_table(store, *WAITS, "clocks") == (
        now_ms + jump_ms + 50_000,
        0,
        now_ms + jump_ms - 30_000,
        None,
        now_ms + jump_ms - 20,
        {"p": [now_ms + jump_ms - 7, None, None, now_ms + jump_ms]},
    )
    with reading(store) as conn:
        [expires_at_ms] = conn.execute(select(blockers.c.expires_at_ms)).scalars()
        assert expires_at_ms == now_ms + jump_ms + 9_000
        assert leases.leader_time(conn) == LeaderTime(now_ms + jump_ms, 0)
        ahead_ms = now_ms + jump_ms if jump_ms >= SET_AHEAD_MIN_MS else 0
        assert leases.set_ahead_at_ms(conn) == ahead_ms
        [created_at_ms] = conn.execute(select(lake_tables.c.created_at_ms)).scalars()
        assert created_at_ms == NOW_MS  # people read when it was first seen


def test_a_new_leader_takes_no_due_time_later_than_the_longest_pause_of_its_kind(
    store: Engine, term: Term, clock: FakeClock
) -> None:
    now_ms, far_ms = clock.wall_ms(), clock.wall_ms() + 1000 * HOUR_MS
    late: dict[str, Any] = dict.fromkeys(WAITS, far_ms)
    keep(store, late, expires_at_ms=far_ms)
    with writing(store) as conn:
        conn.execute(update(catalogs).values(due_at_ms=far_ms))

    begin(store, term, clock)

    slack_ms = now_ms + JUMP_MIN_MS
    longest = longest_pauses(OPTIONS)
    assert of_table(store, *WAITS) == (
        slack_ms + 60_000,
        slack_ms + longest.rest_ms,
        slack_ms,
        slack_ms,
        slack_ms,
    )
    with reading(store) as conn:
        due = set(conn.execute(select(catalogs.c.due_at_ms)).scalars())
        [expires_at_ms] = conn.execute(select(blockers.c.expires_at_ms)).scalars()
    assert due == {slack_ms + longest.discovery_ms}
    assert expires_at_ms == slack_ms + longest.block_ms


@pytest.mark.parametrize(("promised_ms", "kept_ms"), [(1, MARKS_KEPT_MS), (30 * HOUR_MS,) * 2])
def test_marks_are_kept_as_long_as_their_job_was_promised(
    store: Engine, term: Term, clock: FakeClock, promised_ms: int, kept_ms: int
) -> None:
    """A committer was told its deadline when the setting was another."""
    made_ms = clock.wall_ms() + 100 * HOUR_MS
    with writing(store) as conn:
        conn.execute(
            insert(cleanups).values(
                incarnation="i",
                job_id="j",
                group_name="default",
                step=CleanupStep.TARGETS,
                made_at_ms=made_ms,
                due_at_ms=made_ms + promised_ms,
                targets_due_at_ms=made_ms + promised_ms,
            )
        )

    begin(store, term, clock)

    with reading(store) as conn:
        [due_at_ms] = conn.execute(select(cleanups.c.due_at_ms)).scalars()
    assert due_at_ms == clock.wall_ms() + JUMP_MIN_MS + kept_ms


def next_term(store: Engine, clock: FakeClock, now_ms: int) -> None:
    """One leads that did not follow the last, and whose clock says `now_ms`."""
    with writing(store) as conn:
        held = leases.read(conn)
        won = leases.take(conn, held, holder="h", address=ADDRESS)
    assert won is not None
    clock.set_wall(now_ms)
    begin(store, won, clock)


def test_machines_that_take_turns_do_not_eat_up_how_long_marks_are_kept(
    store: Engine, term: Term, clock: FakeClock
) -> None:
    """One of them is 10 min ahead, and takes that for a time in which nobody led."""
    begin(store, term, clock)
    now_ms, ahead_ms = clock.wall_ms(), 600_000
    due_ms = now_ms + MARKS_KEPT_MS
    with writing(store) as conn:
        for step in CleanupStep:
            conn.execute(
                insert(cleanups).values(
                    incarnation=step,
                    job_id="j",
                    group_name="default",
                    step=step,
                    made_at_ms=now_ms,
                    due_at_ms=due_ms,
                    targets_due_at_ms=due_ms,
                )
            )
        conn.execute(insert(savepoints).values(**SAVEPOINT, made_at_ms=now_ms))
    for _ in range(12):
        next_term(store, clock, now_ms + ahead_ms)
        next_term(store, clock, now_ms)

    with reading(store) as conn:
        times = select(cleanups.c.made_at_ms, cleanups.c.targets_due_at_ms)
        assert {tuple(row) for row in conn.execute(times)} == {(now_ms, due_ms)}
        targets = cleanups.c.step == CleanupStep.TARGETS
        assert conn.scalar(select(cleanups.c.due_at_ms).where(targets)) == due_ms
        assert conn.scalar(select(savepoints.c.made_at_ms)) == now_ms


@pytest.mark.parametrize(("ahead_ms", "noted"), [(6_000, False), (2 * HOUR_MS, True)])
def test_only_a_clock_that_is_far_ahead_keeps_things_from_expiring(
    store: Engine,
    term: Term,
    clock: FakeClock,
    ahead_ms: int,
    noted: bool,  # noqa: FBT001
) -> None:
    """A weekly failover to a machine some seconds ahead would keep all of them for ever."""
    before_ms = clock.wall_ms() - 9 * HOUR_MS
    with writing(store) as conn:
        leases.note_set_ahead(conn, term, at_ms=before_ms)
    leader_now_ms = clock.wall_ms() - ahead_ms

    begin_time(store, term, LeaderClock(clock), longest_pauses(OPTIONS), leader_now_ms)

    with reading(store) as conn:
        expected_ms = clock.wall_ms() if noted else before_ms + ahead_ms
        assert leases.set_ahead_at_ms(conn) == expected_ms


def test_a_savepoint_is_not_younger_than_now(store: Engine, term: Term, clock: FakeClock) -> None:
    """It would be kept for years, had a clock been ahead by so much."""
    with writing(store) as conn:
        made_ms = clock.wall_ms() + 1000 * HOUR_MS
        conn.execute(insert(savepoints).values(**SAVEPOINT, made_at_ms=made_ms))
    begin(store, term, clock)
    with reading(store) as conn:
        assert conn.scalar(select(savepoints.c.made_at_ms)) == clock.wall_ms() + JUMP_MIN_MS


def test_a_term_begins_without_touching_millions_of_log_lines(
    store: Engine, term: Term, clock: FakeClock
) -> None:
    """Those from the future are brought to now by the expiry, a batch at a time."""
    with writing(store) as conn:
        about = {"incarnation": "i", "source": "w1", "job_id": "j", "level": "INFO", "text": ""}
        taken_ms = clock.wall_ms() + 1000 * HOUR_MS
        line = insert(job_logs).values(**about, number=1, at_ms=1, taken_at_ms=taken_ms)
        conn.execute(line)
        leases.record_time(conn, term, LeaderTime(clock.wall_ms() + HOUR_MS, 0))
    with heard_updates(store, "job_logs") as heard:
        begin(store, term, clock)
    assert heard == []


def test_what_is_wanted_at_once_is_due_for_a_leader_whose_clock_is_behind(
    store: Engine, term: Term, clock: FakeClock
) -> None:
    behind_ms = clock.wall_ms() - HOUR_MS
    with fenced(store, term) as conn:
        leases.record_time(conn, term, LeaderTime(behind_ms, 0))
        assert leases.at_once_ms(conn, now_ms=clock.wall_ms()) == behind_ms
        assert leases.at_once_ms(conn, now_ms=behind_ms - 1) == behind_ms - 1


@contextmanager
def heard_updates(store: Engine, of: str) -> Generator[list[tuple[str, Any]]]:
    """What is asked of one table, as the driver is told it."""
    heard: list[tuple[str, Any]] = []

    def hear(_conn: Connection, _cursor: Any, statement: str, given: Any, *_rest: Any) -> None:
        if statement.startswith(f"UPDATE {of} "):
            heard.append((statement, given))

    event.listen(store, "before_cursor_execute", hear)
    try:
        yield heard
    finally:
        event.remove(store, "before_cursor_execute", hear)


def test_a_term_begins_without_reading_a_month_of_processes(
    store: Engine, term: Term, clock: FakeClock
) -> None:
    with writing(store) as conn:
        leases.record_time(conn, term, LeaderTime(clock.wall_ms() + HOUR_MS, 0))
    with heard_updates(store, "processes") as heard:
        begin(store, term, clock)

    assert len(heard) == 4  # moved and limited: both times, each by its index
    with writing(store) as conn:
        if is_sqlite(store):
            explain, scan = "EXPLAIN QUERY PLAN ", "SCAN processes\n"
        else:
            conn.execute(text("SET LOCAL enable_seqscan = off"))
            explain, scan = "EXPLAIN ", "Seq Scan"
        for statement, given in heard:
            plan = [str(row[-1]) for row in conn.exec_driver_sql(explain + statement, given)]
            assert scan not in "\n".join([*plan, ""]), (statement, plan)


SLOW = """
CREATE FUNCTION dawdle() RETURNS trigger LANGUAGE plpgsql
AS $$ BEGIN PERFORM pg_sleep(0.6); RETURN NEW; END $$;
CREATE TRIGGER slow BEFORE UPDATE ON lake_tables FOR EACH ROW EXECUTE FUNCTION dawdle();
"""
SHORT_TTL_S = 0.3


@pytest.fixture
def slow(postgresql_url: str) -> Iterator[Engine]:
    """A store in which a table's row takes longer to change than any statement may."""
    engine = open_store(postgresql_url, ttl_s=SHORT_TTL_S)
    with writing(engine) as conn:
        conn.execute(text(SLOW))
    yield engine
    engine.dispose()


def elected(store: Engine) -> Term:
    with writing(store) as conn:
        won = leases.take(conn, leases.read(conn), holder="h", address=ADDRESS)
    assert won is not None
    return won


def test_due_times_are_moved_however_long_it_takes(slow: Engine, clock: FakeClock) -> None:
    term, now_ms = elected(slow), clock.wall_ms()
    keep(slow, {"due_at_ms": now_ms + 50_000})
    with writing(slow) as conn:
        leases.record_time(conn, term, LeaderTime(now_ms + HOUR_MS, 0))

    begin(slow, term, clock)

    assert of_table(slow, "due_at_ms") == (now_ms + 50_000 - HOUR_MS,)
    with reading(slow) as conn:
        assert leases.leader_time(conn) == LeaderTime(now_ms, 0)


def test_a_term_goes_on_when_times_that_are_too_late_take_too_long_to_look_for(
    slow: Engine, clock: FakeClock, caplog: pytest.LogCaptureFixture
) -> None:
    far_ms = clock.wall_ms() + 1000 * HOUR_MS
    keep(slow, {"due_at_ms": far_ms}, expires_at_ms=far_ms)
    term, longest = elected(slow), longest_pauses(OPTIONS)

    begin_time(slow, term, LeaderClock(clock), longest, limit_s=SHORT_TTL_S / 3)

    assert of_table(slow, "due_at_ms") == (far_ms,)
    [told] = [r for r in caplog.records if r.getMessage() == "due times not looked at"]
    assert vars(told)["table"] == "lake_tables"
    with reading(slow) as conn:  # the others were looked at
        [expires_at_ms] = conn.execute(select(blockers.c.expires_at_ms)).scalars()
    assert expires_at_ms < far_ms


def test_no_longer_than_it_may_are_late_times_looked_for(
    store: Engine, term: Term, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The lease waits to be renewed meanwhile."""
    looked: list[str] = []

    def slowly(_conn: Connection, table: Table, _limits: object) -> int:
        looked.append(table.name)
        clock.advance(0.6)
        return 0

    monkeypatch.setattr(due_time_shift, "cut_to_limits", slowly)
    begin(store, term, clock)
    assert len(looked) == 2
