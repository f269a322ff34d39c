"""A status changes only along its map, where it is written, whoever asks for what (S1)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from enum import StrEnum
from itertools import product
from typing import Any, cast

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sqlalchemy import Connection, Engine, Table, select, update
from sqlalchemy.exc import IntegrityError

from headrace.errors import IllegalTransition
from headrace.model.jobs.epoch import (
    CLEANUP_TRANSITIONS,
    EPOCH_BEGINS,
    EPOCH_TRANSITIONS,
    OPEN,
    CleanupStep,
    EpochAt,
    EpochKind,
    EpochStatus,
)
from headrace.model.jobs.status import (
    JOB_ENDED,
    JOB_TRANSITIONS,
    PIPELINE_TRANSITIONS,
    RESTORABLE,
    JobStatus,
    PipelineStatus,
)
from headrace.model.task import ENDED, TRANSITIONS, Claim, Lane, TaskKind, TaskStatus
from headrace.store.core.engine import reading, writing
from headrace.store.jobs import cleanups, epochs, jobs, restore, schema
from headrace.store.tables import table_tasks
from headrace.store.tasks import claims, tasks
from headrace.store.tasks.schema import tasks as task_rows
from headrace.store.tasks.tasks import Task, TaskEnd
from tests.coordinator.specs import spec

NOW_MS = 1_000
JOB, OWNER, TASK = "j", "incarnation", "t"
AT = EpochAt(OWNER, 1, 1, "t.1")
WALKS = settings(
    max_examples=20,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)


@pytest.fixture
def filled(store: Engine) -> Engine:
    """A store with one job, and one of everything that belongs to it."""
    with writing(store) as conn:
        assert jobs.insert_job(
            conn,
            spec(),
            job_id=JOB,
            incarnation=OWNER,
            submission_key="k",
            group="g",
            now_ms=NOW_MS,
        )
        tasks.plan(
            conn,
            task_id=TASK,
            kind=TaskKind.PIPELINE,
            lane=Lane.SLOT,
            group="g",
            now_ms=NOW_MS,
            job_id=JOB,
            pipeline=1,
        )
        epochs.plan(conn, AT, job_id=JOB, slices={}, now_ms=NOW_MS)
        due = {"due_at_ms": NOW_MS, "targets_due_at_ms": NOW_MS, "now_ms": NOW_MS}
        assert cleanups.add(conn, _job(conn), **due)
    return store


def _job(conn: Connection) -> jobs.Job:
    job = jobs.get(conn, JOB)
    assert job is not None
    return job


def _task(conn: Connection) -> Task:
    task = tasks.get(conn, TASK)
    assert task is not None
    return task


def _cleanup(conn: Connection) -> cleanups.Cleanup:
    cleanup = cleanups.get(conn, OWNER)
    assert cleanup is not None
    return cleanup


def change_job(conn: Connection, target: JobStatus) -> None:
    jobs.change(conn, _job(conn), target, now_ms=NOW_MS)


def change_pipeline(conn: Connection, target: PipelineStatus) -> None:
    jobs.change_pipeline(conn, JOB, 1, target)


def change_task(conn: Connection, target: TaskStatus) -> None:
    """Every write there is that leads to `target`."""
    task = _task(conn)
    match target:
        case TaskStatus.PLANNED:
            tasks.give_back(conn, task)
        case TaskStatus.SCHEDULED:
            claims.assign(conn, [claims.Assign(task, "w1", 1)], term=1, now_ms=NOW_MS)
        case TaskStatus.ACKED:
            claims.acknowledge(conn, [task.claim])
        case TaskStatus.SUCCESS | TaskStatus.FAILED | TaskStatus.CANCELED:
            tasks.finish(conn, [TaskEnd(task.claim, target)], now_ms=NOW_MS)
    if target is TaskStatus.FAILED:
        tasks.fail_unclaimed(conn, TASK, error="nobody took it", now_ms=NOW_MS)
    if target is TaskStatus.CANCELED:
        tasks.cancel_unclaimed(conn, JOB, now_ms=NOW_MS)
        table_tasks.cancel(conn, [TASK], because="it is not wanted", now_ms=NOW_MS)


def change_epoch(conn: Connection, target: EpochStatus) -> None:
    match target:
        case EpochStatus.PLANNED:
            with suppress(IntegrityError), conn.begin_nested():  # its row is there
                epochs.plan(conn, AT, job_id=JOB, slices={}, now_ms=NOW_MS)
        case EpochStatus.PREPARED:
            epochs.prepare(conn, AT, handles={}, now_ms=NOW_MS)
        case EpochStatus.COMPLETED:
            epochs.complete(conn, AT, rows_in=1, rows_out=1, now_ms=NOW_MS)
        case EpochStatus.ABORTED:
            epochs.abort(conn, AT, now_ms=NOW_MS)


def change_cleanup(conn: Connection, target: CleanupStep) -> None:
    match target:
        case CleanupStep.STATE:
            due = {"due_at_ms": NOW_MS, "targets_due_at_ms": NOW_MS, "now_ms": NOW_MS}
            cleanups.add(conn, _job(conn), **due)
        case CleanupStep.TARGETS:
            cleanups.begin_targets(conn, _cleanup(conn), up_to=1, spec={})


@dataclass(frozen=True)
class Machine:
    """A state machine: its map, the table that holds it, and every write of it."""

    name: str
    transitions: Mapping[Any, frozenset[Any]]
    table: Table
    write: Callable[[Connection, Any], None]
    column: str = "status"
    ended: frozenset[Any] = frozenset()
    also: Mapping[str, object] | None = None  # what a constraint asks for, in every status

    @property
    def statuses(self) -> list[Any]:
        return list(self.transitions)

    def put(self, conn: Connection, status: StrEnum) -> None:
        """As if it had come here, by whatever way."""
        values: dict[str, object] = {self.column: status, **(self.also or {})}
        if "ended_at_ms" in self.table.c:
            values["ended_at_ms"] = NOW_MS if status in self.ended else None
        conn.execute(update(self.table).values(values))

    def row(self, conn: Connection) -> Mapping[str, object]:
        return dict(conn.execute(select(self.table)).mappings().one())

    def lands(self, conn: Connection, target: StrEnum) -> bool:
        """Write; say whether anything is different afterwards."""
        before = self.row(conn)
        with suppress(IllegalTransition):
            self.write(conn, target)
        after = self.row(conn)
        assert after == before or after[self.column] == target
        return after != before


MACHINES = [
    Machine("job", JOB_TRANSITIONS, schema.jobs, change_job, ended=JOB_ENDED),
    Machine("pipeline", PIPELINE_TRANSITIONS, schema.pipelines, change_pipeline),
    Machine("task", TRANSITIONS, task_rows, change_task, ended=ENDED, also={"worker_id": "w1"}),
    Machine(
        "epoch",
        EPOCH_TRANSITIONS,
        schema.epochs,
        change_epoch,
        ended=frozenset(EpochStatus) - OPEN,
    ),
    Machine("cleanup", CLEANUP_TRANSITIONS, schema.cleanups, change_cleanup, column="step"),
]
every_machine = pytest.mark.parametrize("machine", MACHINES, ids=lambda machine: machine.name)


@every_machine
def test_a_map_knows_every_status_and_leads_out_of_no_end(machine: Machine) -> None:
    kind = cast("type[StrEnum]", type(machine.statuses[0]))

    assert set(machine.statuses) == set(kind)
    assert all(not machine.transitions[status] for status in machine.ended)
    assert not [each for each in machine.statuses if each in machine.transitions[each]]


@pytest.mark.req("S1")
@every_machine
def test_a_write_lands_just_where_the_map_has_its_step(filled: Engine, machine: Machine) -> None:
    wrong: list[str] = []
    with writing(filled) as conn:
        for current, target in product(machine.statuses, repeat=2):
            with conn.begin_nested() as trial:
                machine.put(conn, current)
                landed = machine.lands(conn, target)
                trial.rollback()
            if landed != (target in machine.transitions[current]):
                wrong.append(f"{current} -> {target}: landed is {landed}")

    assert wrong == []


@pytest.mark.req("S1")
@every_machine
@WALKS
@given(data=st.data())
def test_whatever_is_written_in_a_row_a_status_goes_only_where_the_map_leads(
    filled: Engine, machine: Machine, data: st.DataObject
) -> None:
    statuses = st.sampled_from(machine.statuses)
    current = data.draw(statuses)
    with writing(filled) as conn, conn.begin_nested() as trial:
        machine.put(conn, current)
        for target in data.draw(st.lists(statuses, max_size=12)):
            if machine.lands(conn, target):
                assert target in machine.transitions[current]
                current = target
            assert machine.row(conn)[machine.column] == current
        trial.rollback()


@pytest.mark.req("S1")
def test_a_program_that_asks_for_a_step_that_is_none_is_told(filled: Engine) -> None:
    with writing(filled) as conn:
        with pytest.raises(IllegalTransition, match="job 'j' is CREATED and can not become FAILED"):
            jobs.change(conn, _job(conn), JobStatus.FAILED, now_ms=NOW_MS)
        with pytest.raises(IllegalTransition, match="task 't' is PLANNED and can not become PL"):
            tasks.give_back(conn, _task(conn))
        end = TaskEnd(Claim(TASK, 1), TaskStatus.PLANNED)
        with pytest.raises(IllegalTransition, match=r"'t\.1' is ACKED or SCHEDULED and can not"):
            tasks.finish(conn, [end], now_ms=NOW_MS)
        done = replace(_cleanup(conn), step=CleanupStep.TARGETS)
        with pytest.raises(IllegalTransition, match="is TARGETS and can not become TARGETS"):
            cleanups.begin_targets(conn, done, up_to=1, spec={})


@pytest.mark.req("S1")
def test_a_step_that_was_decided_by_a_status_of_before_does_not_land(filled: Engine) -> None:
    """That is late, and no mistake: nothing is raised."""
    with writing(filled) as conn:
        read_before = _job(conn)
        change_job(conn, JobStatus.CANCELING)
        assigned = replace(_task(conn), status=TaskStatus.SCHEDULED)

        assert not jobs.change(conn, read_before, JobStatus.PENDING, now_ms=NOW_MS)
        assert not jobs.note_waits_for(conn, read_before, "its turn")
        assert not tasks.give_back(conn, assigned)

    with reading(filled) as conn:
        assert (_job(conn).status, _job(conn).waits_for) == (JobStatus.CANCELING, None)
        assert _task(conn).status is TaskStatus.PLANNED


@pytest.mark.req("S1")
def test_the_late_end_of_an_attempt_does_not_end_a_task_that_waits_for_the_next(
    filled: Engine,
) -> None:
    """FAILED may follow PLANNED, but only for a task that nobody took."""
    with writing(filled) as conn:
        change_task(conn, TaskStatus.SCHEDULED)
        late = TaskEnd(_task(conn).claim, TaskStatus.FAILED)
        change_task(conn, TaskStatus.PLANNED)

        assert tasks.finish(conn, [late], now_ms=NOW_MS) == 0
        assert _task(conn).status is TaskStatus.PLANNED


@pytest.mark.req("S1")
@pytest.mark.parametrize("status", list(JobStatus))
def test_only_a_restore_begins_a_job_again_and_only_one_that_may_go_on(
    filled: Engine, status: JobStatus
) -> None:
    start = restore.Start(1, 7, {}, 0, 0, {}, {}, {}, None)
    with writing(filled) as conn:
        MACHINES[0].put(conn, status)
        ended = _job(conn)
        if status in RESTORABLE:
            assert begin_again(conn, ended, start)
            assert not begin_again(conn, ended, start), "it has begun, and is no longer so"
        else:
            with pytest.raises(IllegalTransition, match=f"is {status} and can not become CREATED"):
                begin_again(conn, ended, start)

    with reading(filled) as conn:
        begun = status in RESTORABLE
        assert _job(conn).status is (JobStatus.CREATED if begun else status)
        assert _job(conn).run == (2 if begun else 1)
        assert jobs.pipeline(conn, JOB, 1).epoch == (7 if begun else 0)


def begin_again(conn: Connection, job: jobs.Job, start: restore.Start) -> bool:
    return restore.begin_again(conn, job, spec(), [start], key="r", group="g", now_ms=NOW_MS)


@pytest.mark.parametrize("kind", list(EpochKind))
def test_an_epoch_without_slices_is_complete_as_soon_as_it_is_written(
    filled: Engine, kind: EpochKind
) -> None:
    at = replace(AT, epoch=2)
    with writing(filled) as conn:
        epochs.plan(conn, at, job_id=JOB, slices={}, now_ms=NOW_MS, kind=kind)
        written = epochs.get(conn, at)

    assert written is not None
    assert written.status is EPOCH_BEGINS[kind]
