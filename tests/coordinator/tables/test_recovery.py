"""After a restart every pair of table and process is decided, and none is left out (T1, T6, T8)."""

from __future__ import annotations

import pytest
from sqlalchemy import Engine, update

from headrace.coordinator.context import Pass, run_once
from headrace.coordinator.tables.recovery import RecoveryPass
from headrace.model.tables.status import (
    OPTIMIZING,
    PROCESS_ENDED,
    PROCESSING,
    ProcessStatus,
    Recovery,
    TableStatus,
    decide_recovery,
)
from headrace.model.task import ENDED, TaskKind, TaskStatus
from headrace.store.core.engine import writing
from headrace.store.tables.schema import processes as process_rows
from headrace.store.tasks.tasks import OfTable
from tests.coordinator.leader_harness import LeaderHarness
from tests.coordinator.tables.lake_rows import PENDING, LakeRows

T, P, S = TableStatus, ProcessStatus, TaskStatus

NO_PROCESS, MISSING = "no process", "its record is missing"
PROCESSES: list[ProcessStatus | str] = [NO_PROCESS, MISSING, *P]
SNAPSHOT_DONE = 7


@pytest.fixture
def lakes(desk: LeaderHarness) -> LakeRows:
    return LakeRows(desk.store, now_ms=desk.clock.wall_ms())


def recover(desk: LeaderHarness) -> Pass:
    """Another coordinator leads, and makes its recovery pass."""
    desk.take_over()
    recovering = RecoveryPass(desk.clock)
    return run_once(desk.store, desk.term, recovering, recovering.keys(desk.store))


def cell(
    lakes: LakeRows, process: ProcessStatus | str, status: TableStatus
) -> tuple[str, str | None]:
    """A table in this state, that names such a process."""
    pending = {} if status is T.IDLE else {"pending": PENDING, "pending_since_ms": 5}
    name = f"{status}-{process}".replace(" ", "-")
    table = lakes.table(name, status, optimized_snapshot=SNAPSHOT_DONE, **pending)
    if process == NO_PROCESS:
        return table, None
    if process == MISSING:
        lakes.name_process(table, "nobody")
        return table, None
    assert isinstance(process, ProcessStatus)
    commit = S.ACKED if status is T.COMMITTING else None
    done = S.SUCCESS if status is T.COMMITTING else S.ACKED
    made = lakes.process(table, process, rewrites=[done, S.SUCCESS], commit=commit)
    lakes.name_process(table, made)
    return table, made


def expected(process: ProcessStatus | str, status: TableStatus) -> Recovery:
    return decide_recovery(process if isinstance(process, ProcessStatus) else None, status)


@pytest.mark.req("T1", "T2")
def test_one_restart_decides_every_cell_of_the_matrix(desk: LeaderHarness, lakes: LakeRows) -> None:
    cells = {(p, t): cell(lakes, p, t) for p in PROCESSES for t in T}

    assert recover(desk).failed == []

    for (process, status), (table_id, process_id) in cells.items():
        table, told = lakes.read(table_id), f"{process} x {status}"
        recovery = expected(process, status)
        assert table.status is (T.IDLE if recovery is Recovery.RESET else status), told
        assert table.optimized_snapshot == SNAPSHOT_DONE, told
        kept = PENDING if status is T.PENDING else lakes.pending(table_id)
        assert lakes.pending(table_id) == kept, told
        if recovery is Recovery.RESUME:
            assert table.process_id == process_id, told
        else:
            assert table.process_id is None, told
            looked_at = (process, status) != (NO_PROCESS, T.IDLE)  # that one is at rest
            assert (table.due_at_ms <= desk.clock.wall_ms()) is looked_at, told
        if process_id is not None:
            _check_process(lakes, process_id, process, status)


def _check_process(
    lakes: LakeRows, process_id: str, before: ProcessStatus | str, status: TableStatus
) -> None:
    """Whatever isn't resumed is closed, or is settled, in the same transaction."""
    after, told = lakes.read_process(process_id), f"{before} x {status}"
    tasks = lakes.tasks_of(process_id).values()
    if before is not P.RUNNING:
        assert after.status is before, told
        return
    match status:
        case T.COMMITTING:
            assert after.settling, told
            assert [t.status for t in tasks if t.kind is TaskKind.COMMIT] == [S.ACKED], told
        case T.MINOR_OPTIMIZING | T.MAJOR_OPTIMIZING | T.FULL_OPTIMIZING:
            assert after.status is P.RUNNING, told
            assert not after.settling, told
            assert {t.status for t in tasks} == {S.ACKED, S.SUCCESS}, told
        case _:
            assert after.status is P.CLOSED, told
            assert all(t.status in ENDED for t in tasks), told
            assert S.CANCELED in {t.status for t in tasks}, told


@pytest.mark.req("T1")
@pytest.mark.parametrize("status", sorted(PROCESSING))
def test_a_second_restart_changes_nothing_more(
    desk: LeaderHarness, lakes: LakeRows, status: TableStatus
) -> None:
    table, process = cell(lakes, P.RUNNING, status)
    recover(desk)
    before = lakes.read(table), lakes.read_process(process or "")

    recover(desk)

    assert (lakes.read(table), lakes.read_process(process or "")) == before


@pytest.mark.req("T6")
def test_a_broken_row_blocks_no_other_table(desk: LeaderHarness, lakes: LakeRows) -> None:
    broken, process = cell(lakes, P.RUNNING, T.FULL_OPTIMIZING)  # before some, after others
    with writing(desk.store) as conn:
        garbage = update(process_rows).where(process_rows.c.id == process).values(plan="garbage")
        conn.execute(garbage)
    others = [cell(lakes, P.FAILED, status)[0] for status in sorted(OPTIMIZING)]

    found = recover(desk)

    assert found.failed == [broken]
    assert {lakes.read(other).status for other in others} == {T.IDLE}


@pytest.mark.req("T6")
def test_what_could_not_be_recovered_is_tried_again(desk: LeaderHarness, lakes: LakeRows) -> None:
    broken, process = cell(lakes, P.RUNNING, T.COMMITTING)
    desk.take_over()
    recovering = RecoveryPass(desk.clock)
    assert recovering.keys(desk.store) == [broken]
    recovering.recovered([], [broken])
    assert recovering.keys(desk.store) == ()

    desk.clock.advance(60)

    found = run_once(desk.store, desk.term, recovering, recovering.keys(desk.store))
    assert found.done == [broken]
    assert lakes.read(broken).status is T.IDLE
    assert lakes.read_process(process or "").settling


@pytest.mark.req("T3")
def test_a_resumed_process_whose_tasks_are_all_done_begins_to_commit(
    desk: LeaderHarness, lakes: LakeRows
) -> None:
    table = lakes.table("t", T.MAJOR_OPTIMIZING)
    process = lakes.process(table, rewrites=[S.SUCCESS, S.SUCCESS])
    lakes.name_process(table, process)

    recover(desk)

    assert lakes.read(table).status is T.COMMITTING
    [commit] = [t for t in lakes.tasks_of(process).values() if t.kind is TaskKind.COMMIT]
    assert commit.status is S.PLANNED
    assert lakes.read_process(process).commit_task == commit.id


@pytest.mark.req("T4")
@pytest.mark.parametrize("status", [S.PLANNED, S.SCHEDULED, S.ACKED])
def test_tasks_that_somebody_may_hold_are_kept(
    desk: LeaderHarness, lakes: LakeRows, status: TaskStatus
) -> None:
    table = lakes.table("t", T.MINOR_OPTIMIZING)
    process = lakes.process(table, rewrites=[status, S.SUCCESS])
    lakes.name_process(table, process)

    recover(desk)

    assert lakes.tasks_of(process)[f"{process}-0"].status is status


@pytest.mark.req("T1")
def test_a_commit_that_has_ended_unheard_is_asked_about_again(
    desk: LeaderHarness, lakes: LakeRows
) -> None:
    table = lakes.table("t", T.COMMITTING)
    process = lakes.process(table, rewrites=[S.SUCCESS], commit=S.CANCELED)
    lakes.name_process(table, process)

    recover(desk)

    planned = [t for t in lakes.tasks_of(process).values() if t.status is S.PLANNED]
    assert [t.kind for t in planned] == [TaskKind.COMMIT]


@pytest.mark.req("T1")
@pytest.mark.parametrize("status", [T.IDLE, T.PENDING])
def test_a_process_that_its_table_does_not_name_is_closed(
    desk: LeaderHarness, lakes: LakeRows, status: TableStatus
) -> None:
    table = lakes.table("t", status)
    process = lakes.process(table, rewrites=[S.PLANNED])

    recover(desk)

    assert lakes.read_process(process).status is P.CLOSED
    assert lakes.tasks_of(process)[f"{process}-0"].status is S.CANCELED
    assert lakes.read(table).status is status


@pytest.mark.req("T1")
def test_a_process_whose_table_is_gone_is_closed(desk: LeaderHarness, lakes: LakeRows) -> None:
    process = lakes.process("table-nowhere", rewrites=[S.ACKED])

    recover(desk)

    assert lakes.read_process(process).status is P.CLOSED


@pytest.mark.req("T1")
def test_the_plan_task_of_a_reset_table_is_canceled(desk: LeaderHarness, lakes: LakeRows) -> None:
    table = lakes.table("t", T.PLANNING, task_id="plan-1")
    lakes.task("plan-1", TaskKind.PLAN, S.ACKED, OfTable(table))

    recover(desk)

    assert desk.task("plan-1").status is S.CANCELED
    assert lakes.read(table).task_id is None


@pytest.mark.req("T1")
def test_settling_goes_on_through_any_number_of_restarts(
    desk: LeaderHarness, lakes: LakeRows
) -> None:
    table, process = cell(lakes, P.RUNNING, T.COMMITTING)
    recover(desk)
    since = lakes.read_process(process or "").settling_since_ms
    desk.clock.advance(30)

    recover(desk)

    assert lakes.read_process(process or "").settling_since_ms == since
    assert lakes.read(table).status is T.IDLE


@pytest.mark.req("T1")
def test_only_what_needs_a_decision_is_looked_at(
    desk: LeaderHarness, lakes: LakeRows, store: Engine
) -> None:
    for number in range(50):
        lakes.table(f"idle-{number}")
    busy = lakes.table("busy", T.PLANNING)

    assert RecoveryPass(desk.clock).keys(store) == [busy]


def test_every_ended_process_is_left_as_it_ended() -> None:
    assert {P.SUCCESS, P.FAILED, P.CLOSED, P.KILLED} == PROCESS_ENDED
