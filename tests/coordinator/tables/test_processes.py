"""From a plan to a commit: each step is one transaction, and nothing sits between two of them."""

from __future__ import annotations

import pytest
from sqlalchemy import insert, update
from sqlalchemy.exc import IntegrityError

from headrace.api.table_views import process_view
from headrace.coordinator.tables.commits import CONFLICT_WAIT_MAX_MS
from headrace.errors import IllegalTransition
from headrace.model.tables.schedule import FILE_FAILURES_MAX
from headrace.model.tables.status import ProcessStatus, TableStatus
from headrace.model.task import TaskKind, TaskStatus
from headrace.protocol.tables import CommitResult
from headrace.store.core.engine import reading, writing
from headrace.store.core.transactions import fenced
from headrace.store.tables import lake_tables, processes, table_changes
from headrace.store.tables.schema import processes as process_rows
from headrace.store.tasks.schema import tasks as task_rows
from tests.coordinator.tables.lake_rows import PENDING, SNAPSHOT, a_plan, rewritten
from tests.coordinator.tables.process_harness import NEW_SNAPSHOT, WORKER, ProcessHarness
from tests.stores import given_table

T, P, S, K = TableStatus, ProcessStatus, TaskStatus, TaskKind


def sizes_after(bench: ProcessHarness, process: str) -> tuple[int | None, int | None]:
    """As people see them."""
    with reading(bench.desk.store) as conn:
        view = process_view(conn, bench.lakes.read_process(process))
    return view.files_after, view.bytes_after


def test_a_plan_becomes_a_process_with_its_tasks_and_the_tables_status(
    bench: ProcessHarness,
) -> None:
    bench.begin()
    assert bench.status().status is T.PLANNING

    bench.end(bench.take_one(K.PLAN), a_plan(tasks_wanted=3).model_dump(mode="json"))

    table = bench.status()
    assert table.status is T.MINOR_OPTIMIZING
    assert table.processes == 1
    process = bench.lakes.read_process(table.process_id or "")
    assert (process.status, process.number, process.snapshot) == (P.RUNNING, 1, SNAPSHOT)
    tasks = bench.lakes.tasks_of(process.id)
    assert [(t.kind, t.status, t.number) for t in tasks.values()] == [
        (K.REWRITE, S.PLANNED, place) for place in range(3)
    ]
    assert bench.take() == [], "nobody may claim them before their table's share allows it"


def test_a_store_that_forgot_some_processes_counts_on_from_what_the_table_knows(
    bench: ProcessHarness,
) -> None:
    process = bench.plan(spent=41)

    assert bench.lakes.read_process(process).number == 42
    assert bench.status().processes == 42


def test_a_plan_that_gains_nothing_makes_no_process(bench: ProcessHarness) -> None:
    bench.begin()

    bench.end(bench.take_one(K.PLAN), {"uuid": "u-1", "reason": "no rewrite gains anything"})

    assert bench.status().status is T.IDLE
    assert bench.status().pointer is not None, "or it would be planned again at once"
    assert bench.lakes.pending(bench.table) is None


@pytest.mark.req("T2")
def test_a_table_whose_planning_failed_waits_with_its_input_for_its_turn(
    bench: ProcessHarness,
) -> None:
    bench.begin()
    for _ in range(2):  # a retry
        bench.end(bench.take_one(K.PLAN), outcome="FAILED", error="the catalog is away")
        bench.desk.clock.advance(10)
    bench.look()

    table = bench.status()
    assert table.status is T.PENDING
    assert bench.lakes.pending(bench.table) == PENDING
    assert table.error == "the catalog is away"
    assert table.not_before_ms > bench.desk.clock.wall_ms()


@pytest.mark.req("T1")
def test_a_plan_that_comes_after_a_restart_changes_nothing(bench: ProcessHarness) -> None:
    bench.begin()
    given = bench.take_one(K.PLAN)
    bench.take()
    bench.restart()

    assert not bench.end(given, a_plan().model_dump(mode="json"))

    assert bench.status().status is T.IDLE
    assert bench.status().processes == 0


@pytest.mark.req("T3")
def test_the_last_rewrite_begins_the_commit_in_the_same_transaction(bench: ProcessHarness) -> None:
    process = bench.plan()
    first, second = bench.take()
    bench.end(first, rewritten(a_plan().tasks[0]))
    assert bench.status().status is T.MINOR_OPTIMIZING

    bench.end(second, rewritten(a_plan().tasks[1]))

    assert bench.status().status is T.COMMITTING
    given = bench.take_one(K.COMMIT)
    assert [b["number"] for b in given.payload["bins"]] == [0, 1, 2, 3]  # type: ignore[index,call-overload]
    assert len(given.payload["rewritten"]) == 4  # type: ignore[arg-type]
    assert bench.lakes.read_process(process).commit_task == given.claim.task


def test_a_commit_ends_the_process_and_moves_the_clocks_of_its_partitions(
    bench: ProcessHarness,
) -> None:
    process = bench.plan()
    bench.rewrite()
    bench.desk.clock.advance(5)

    bench.commit()

    table = bench.status()
    assert bench.lakes.read_process(process).status is P.SUCCESS
    assert (table.status, table.process_id) == (T.IDLE, None)
    assert table.optimized_snapshot == NEW_SNAPSHOT
    now_ms = bench.desk.clock.wall_ms()
    assert bench.lakes.column(bench.table, "clocks") == {"0/": [now_ms, None, None, now_ms]}
    assert table.due_at_ms <= now_ms
    assert table.pointer is None
    assert sizes_after(bench, process) == (0, 4), "as the rewrites say, each 0 files and a byte"


def test_bins_that_conflict_are_planned_again_and_what_they_staged_goes(
    bench: ProcessHarness,
) -> None:
    process = bench.plan()
    bench.rewrite()

    bench.commit(bins=(0, 1, 2), conflicts={"3": "a file is gone"})

    found = bench.lakes.read_process(process)
    assert found.status is P.SUCCESS
    assert found.leftovers
    assert bench.lakes.column(bench.table, "clocks") == {}, "its partitions are not done with"
    left = a_plan().tasks[1][1]
    assert sizes_after(bench, process) == (len(left.paths), 3 + left.bytes), "one is as it was"


def test_what_nobody_can_tell_of_a_commit_is_not_guessed(bench: ProcessHarness) -> None:
    process = bench.plan()
    bench.rewrite()

    bench.commit(already=True)

    assert sizes_after(bench, process) == (None, None)


def test_a_rewrite_whose_result_can_not_be_read_takes_no_landed_commit_back(
    bench: ProcessHarness,
) -> None:
    process = bench.plan()
    bench.rewrite()
    commit = bench.take_one(K.COMMIT)
    with writing(bench.desk.store) as conn:
        broken = {"rewritten": "garbage"}
        rewrites = (task_rows.c.process_id == process, task_rows.c.kind == K.REWRITE)
        conn.execute(update(task_rows).where(*rewrites).values(result=broken))

    told = CommitResult(outcome="COMMITTED", snapshot=NEW_SNAPSHOT)
    assert bench.end(commit, told.model_dump(mode="json"))

    assert bench.lakes.read_process(process).status is P.SUCCESS
    assert sizes_after(bench, process) == (None, None)


@pytest.mark.parametrize(
    ("outcome", "status", "leftovers"),
    [("CONFLICT", P.FAILED, False), ("ABORTED", P.FAILED, True), ("GONE", P.CLOSED, True)],
)
def test_a_commit_that_did_not_land_counts_nothing_as_optimized(
    bench: ProcessHarness, outcome: str, status: ProcessStatus, *, leftovers: bool
) -> None:
    process = bench.plan()
    bench.rewrite()

    bench.commit(outcome=outcome, snapshot=None)

    found, table = bench.lakes.read_process(process), bench.status()
    assert (found.status, found.leftovers) == (status, leftovers)
    assert (table.status, table.optimized_snapshot, table.pointer) == (T.IDLE, None, None)


def test_a_busy_table_does_not_rest_for_hours_because_others_were_faster(
    bench: ProcessHarness,
) -> None:
    with writing(bench.desk.store) as conn:
        given_table(conn, bench.table, failures=9)
    bench.plan()
    bench.rewrite()

    bench.commit(outcome="CONFLICT", snapshot=None)

    rests_ms = bench.status().not_before_ms - bench.desk.clock.wall_ms()
    assert rests_ms == CONFLICT_WAIT_MAX_MS


def test_a_second_process_of_a_table_is_refused_by_the_store(bench: ProcessHarness) -> None:
    process = bench.plan()
    with reading(bench.desk.store) as conn:
        row = dict(conn.execute(process_rows.select()).mappings().one())

    with pytest.raises(IntegrityError), writing(bench.desk.store) as conn:
        conn.execute(insert(process_rows).values({**row, "id": "second", "number": 2}))

    assert bench.lakes.read_process(process).status is P.RUNNING


@pytest.mark.req("T8")
def test_ordinary_code_can_not_take_a_table_out_of_a_running_process(bench: ProcessHarness) -> None:
    bench.plan()
    table = bench.status()

    with (
        fenced(bench.desk.store, bench.desk.term) as conn,
        pytest.raises(IllegalTransition),
    ):
        table_changes.rest(conn, table, now_ms=1)
    with (
        fenced(bench.desk.store, bench.desk.term) as conn,
        pytest.raises(IllegalTransition),
    ):
        table_changes.release(conn, table, P.RUNNING, now_ms=1)

    assert bench.status().status is T.MINOR_OPTIMIZING


@pytest.mark.req("T7")
def test_cancelling_a_process_stops_its_tasks_and_spends_its_token(bench: ProcessHarness) -> None:
    process = bench.plan()
    first, second = bench.take()
    with writing(bench.desk.store) as conn:
        assert processes.want_cancel(conn, process)

    bench.look()

    assert bench.lakes.read_process(process).status is P.KILLED
    assert bench.status().status is T.IDLE
    assert not bench.end(first, rewritten(a_plan().tasks[0])), "a late result changes nothing"
    answer = bench.desk.sync(WORKER, holds=[second.claim], free={})
    assert answer.stop == (second.claim,)
    assert bench.lakes.read_process(process).leftovers


@pytest.mark.req("T7")
@pytest.mark.parametrize("off", [{"enabled": 0}, {"wanted_paused": 1}])
def test_switching_optimizing_off_closes_the_process(
    bench: ProcessHarness, off: dict[str, int]
) -> None:
    process = bench.plan()
    with writing(bench.desk.store) as conn:
        given_table(conn, bench.table, **off)

    bench.look()

    assert bench.lakes.read_process(process).status is P.CLOSED
    assert bench.status().status is T.IDLE


@pytest.mark.req("T7")
def test_a_resumed_process_can_be_canceled_and_can_commit(bench: ProcessHarness) -> None:
    process = bench.plan()
    given = bench.take()
    bench.take()
    bench.restart()
    for each in given:
        place = int(each.claim.task.rpartition("-")[2])
        assert bench.end(each, rewritten(a_plan().tasks[place]))

    bench.commit()

    assert bench.lakes.read_process(process).status is P.SUCCESS
    assert bench.status().optimized_snapshot == NEW_SNAPSHOT


def test_a_commit_waits_for_whoever_blocks_the_table(bench: ProcessHarness) -> None:
    bench.plan()
    now_ms = bench.desk.clock.wall_ms()
    with writing(bench.desk.store) as conn:
        until_ms = now_ms + 5_000
        lake_tables.block(conn, bench.table, "load", reason="r", until_ms=until_ms, now_ms=now_ms)
    bench.rewrite()
    bench.look()
    assert bench.status().status is T.MINOR_OPTIMIZING

    bench.desk.clock.advance(6)
    bench.look()

    assert bench.status().status is T.COMMITTING


def test_files_that_fail_too_often_are_named_and_their_table_backs_off(
    bench: ProcessHarness,
) -> None:
    waits: list[int] = []
    for _ in range(FILE_FAILURES_MAX):
        bench.plan(tasks_wanted=1, retries=0)
        failed = [{"number": 1, "error": "not a Parquet file", "path": "f-1-2.parquet"}]
        made = rewritten(a_plan().tasks[0][:1])
        bench.end(bench.take_one(K.REWRITE), {**made, "failed": failed})
        table = bench.status()
        assert table.status is T.IDLE
        waits.append(table.not_before_ms - bench.desk.clock.wall_ms())
        bench.desk.clock.advance(60)
        with writing(bench.desk.store) as conn:
            table_changes.await_turn(conn, table, now_ms=1)

    assert bench.lakes.column(bench.table, "file_failures") == {"f-1-2.parquet": FILE_FAILURES_MAX}
    assert waits == sorted(set(waits)), "each time it rests longer"
    bench.begin()
    assert bench.take_one(K.PLAN).payload["left_out"] == ["f-1-2.parquet"]


def test_what_could_be_rewritten_is_committed_when_the_table_allows_it(
    bench: ProcessHarness,
) -> None:
    process = bench.plan(allow_partial_commit=True, retries=0)
    first, second = bench.take()
    bench.end(first, outcome="FAILED", error="the catalog is away")
    assert bench.status().status is T.MINOR_OPTIMIZING

    bench.end(second, rewritten(a_plan().tasks[1]))
    bench.commit()

    assert bench.lakes.read_process(process).status is P.SUCCESS
    assert bench.lakes.column(bench.table, "clocks") == {}
    assert bench.lakes.column(bench.table, "file_failures") == {}, "no file is to blame for that"


def test_files_whose_rewrite_takes_its_worker_along_each_time_are_blamed(
    bench: ProcessHarness,
) -> None:
    bench.plan(tasks_wanted=1, retries=0)
    bench.take_one(K.REWRITE)
    bench.take()  # it has said that it holds it
    bench.held.clear()

    bench.take()
    bench.look()

    failures: dict[str, int] = bench.lakes.column(bench.table, "file_failures")
    assert set(failures) == {f"f-{n}-{k}.parquet" for n in (0, 1) for k in range(3)}
