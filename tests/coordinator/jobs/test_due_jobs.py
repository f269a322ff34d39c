"""Jobs are looked at when something happened to them, and only then (L6)."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from random import Random
from typing import Any

import pytest
from sqlalchemy import Connection, select, update

from headrace.clock import JUMP_MIN_MS
from headrace.coordinator.jobs import passes
from headrace.coordinator.jobs.passes import BUDGET_S, PAGE_MAX, SWEEP_INTERVAL_S, UNMARKED
from headrace.coordinator.jobs.reconciler import (
    SETTLE_DEADLINE_S,
    STOPPING_LOOK_MS,
    JobReconciler,
)
from headrace.coordinator.leadership.leader import LeaderClock, begin_time, longest_pauses
from headrace.errors import Refused
from headrace.model.jobs.status import JOB_ENDED, JobStatus, PipelineStatus
from headrace.model.task import Claim, Lane, TaskKind
from headrace.protocol.messages import Report
from headrace.store.core.engine import reading, writing
from headrace.store.jobs import due_jobs, jobs
from headrace.store.jobs.schema import jobs as job_rows
from headrace.store.jobs.schema import pipelines as pipeline_rows
from tests.coordinator.jobs.many import add_running, counted_statements, slow_steps
from tests.coordinator.jobs.streaming import saved
from tests.coordinator.leader_harness import TIMEOUT_S, LeaderHarness
from tests.coordinator.leadership.clocked import OPTIONS
from tests.coordinator.specs import (
    completed,
    failed,
    planned,
    prepared,
    settled,
    spec,
    stopped,
    succeeded,
)

STEPS = 120
HOUR_MS = 3_600_000
PARTS = 6  # of a pass, each with a budget of its own
on_postgresql = pytest.mark.parametrize("store_url", ["postgresql"], indirect=True)


class RandomLife:
    """Workers, people and clocks do whatever they please; each step is one transaction or two."""

    def __init__(self, desk: LeaderHarness, seed: int) -> None:
        self.desk, self.random = desk, Random(seed)
        self.workers: list[str] = []
        self.jobs: list[str] = []
        self._names = iter(range(1000))

    def step(self) -> str:
        steps = (
            *(self.submit, self.register, self.sync, self.sync, self.sync, self.report),
            *(self.report, self.report, self.cancel, self.savepoint, self.wait, self.fall_silent),
            *(self.settle, self.settle, self.pass_, self.pass_, self.take_over, self.restore),
        )
        chosen = self.random.choice(steps)
        chosen()
        return chosen.__name__

    def submit(self) -> None:
        made = spec(pipelines=self.random.randint(1, 2), retry_times=self.random.randint(0, 2))
        self.jobs.append(self.desk.submit(made))

    def register(self) -> None:
        if len(self.workers) < 3:
            self.workers.append(f"w{next(self._names)}")
            self.desk.register(self.workers[-1], slots=self.random.randint(1, 2))

    def sync(self) -> None:
        if self.workers:
            worker = self.random.choice(self.workers)
            self.desk.sync(worker, holds=self.held_by(worker), free={Lane.SLOT: 2, Lane.CONTROL: 1})

    def held_by(self, worker: str) -> Sequence[Claim]:
        return [task.claim for task in self.assigned() if task.worker_id == worker]

    def assigned(self, kind: TaskKind | None = None) -> Sequence[Any]:
        kinds = [kind] if kind else [TaskKind.PIPELINE, TaskKind.SETTLE]
        found = [task for job in self.jobs for each in kinds for task in self.desk.tasks(job, each)]
        return [task for task in found if task.worker_id in self.workers]

    def report(self) -> None:
        if held := self.assigned(TaskKind.PIPELINE):
            task = self.random.choice(held)
            claim, epoch = task.claim, self.desk.pipeline(task.job_id, task.pipeline).epoch + 1
            ready = (f"FakeSource-{task.pipeline}",)
            said: Sequence[Report] = (
                *(planned(claim, epoch), prepared(claim, epoch, ready=ready)),
                *(completed(claim, epoch), completed(claim, epoch), succeeded(claim)),
                *(failed(claim), failed(claim, retry=False), stopped(claim), saved(claim)),
            )
            holds = self.held_by(task.worker_id)
            report = self.random.choice(said)
            self.desk.sync(task.worker_id, holds=holds, reports=[report], free={})

    def settle(self) -> None:
        if held := self.assigned(TaskKind.SETTLE):
            task = self.random.choice(held)
            open_epochs = [
                e for e, _, status in self.desk.epochs(task.job_id) if status == "PLANNED"
            ]
            said = self.random.choice([settled(task.claim, *open_epochs), failed(task.claim)])
            holds = self.held_by(task.worker_id)
            self.desk.sync(task.worker_id, holds=holds, reports=[said], free={})

    def cancel(self) -> None:
        if self.jobs:
            self.desk.commands.cancel(self.random.choice(self.jobs))

    def savepoint(self) -> None:
        self._ask(self.desk.commands.savepoint)

    def restore(self) -> None:
        key = f"again-{next(self._names)}"
        restore = self.desk.commands.restore
        self._ask(lambda job: restore(spec(), job_id=job, submission_key=key))

    def _ask(self, command: Callable[[str], object]) -> None:
        try:
            if self.jobs:
                command(self.random.choice(self.jobs))
        except Refused:
            pass  # people ask for what can't be

    def wait(self) -> None:
        self.desk.clock.advance(self.random.choice([0.5, 2.0, STOPPING_LOOK_MS / 1000, 40.0]))
        for worker in self.workers:
            self.desk.roster.note_sync(worker, 0)

    def fall_silent(self) -> None:
        if self.workers and self.random.random() < 0.3:
            lost = self.workers.pop(self.random.randrange(len(self.workers)))
            self.desk.clock.advance(TIMEOUT_S + 1)
            for worker in self.workers:
                self.desk.roster.note_sync(worker, 0)
            assert lost not in self.workers

    def pass_(self) -> None:
        self.desk.pass_()

    def take_over(self) -> None:
        if self.random.random() < 0.3:
            self.desk.take_over()


@pytest.mark.req("L6")
@pytest.mark.parametrize("seed", range(6))
def test_whatever_happens_to_a_job_marks_it(desk: LeaderHarness, seed: int) -> None:
    life = RandomLife(desk, seed)
    for _ in range(STEPS):
        done = life.step()
        assert not desk.unmarked(), done
    desk.passes()

    assert desk.metrics.registry.get_sample_value("headrace_jobs_unmarked_total") == 0
    assert any(desk.status(job) in JOB_ENDED for job in life.jobs)


def statements_of_a_pass(desk: LeaderHarness) -> list[str]:
    with counted_statements() as statements:
        desk.job_passes.run(everything=True)
    return statements


@pytest.mark.req("L6")
def test_jobs_to_which_nothing_happened_cost_a_pass_nothing(desk: LeaderHarness) -> None:
    add_running(desk, 0, 3)
    desk.passes()
    few = statements_of_a_pass(desk)

    add_running(desk, 3, 50)
    many = statements_of_a_pass(desk)

    assert many == few
    assert len(few) < 10


@pytest.mark.req("L6")
def test_a_pass_ends_in_time_however_many_jobs_are_due_and_the_next_one_goes_on(
    desk: LeaderHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So silent workers, which every full pass looks for first, wait for no more than that."""
    count = 2 * PAGE_MAX + 1
    add_running(desk, 0, count)
    desk.passes()
    with writing(desk.store) as conn:
        conn.execute(update(job_rows).values(wanted_cancel=1, due_at_ms=0))
    step_s = BUDGET_S / 4
    slow_steps(desk, monkeypatch, step_s)
    canceled: list[str] = []
    while len(set(canceled)) < count:
        began_s = desk.clock.monotonic_s()
        canceled += desk.job_passes.run(everything=True).done
        assert desk.clock.monotonic_s() - began_s <= PARTS * (BUDGET_S + step_s)
        assert len(canceled) < 3 * count, "each has its turn before any has its fourth"
    with reading(desk.store) as conn:
        assert not conn.scalar(select(job_rows.c.id).where(job_rows.c.status == JobStatus.RUNNING))


@pytest.mark.req("L6")
def test_a_job_that_nobody_marked_is_found_by_the_sweep_and_told(
    desk: LeaderHarness, caplog: pytest.LogCaptureFixture
) -> None:
    job, claim = desk.given()
    desk.report("w1", planned(claim), holds=[claim])
    desk.passes()
    with writing(desk.store) as conn:
        conn.execute(update(pipeline_rows).values(status=PipelineStatus.FINISHED))
    desk.job_passes.run(everything=True)
    assert desk.status(job) is JobStatus.RUNNING, "not every pass looks at it"

    desk.clock.advance(SWEEP_INTERVAL_S)
    with caplog.at_level(logging.WARNING):
        desk.job_passes.run(everything=True)
    desk.job_passes.run(everything=False)

    assert desk.status(job) is JobStatus.FINISHED
    assert [r.__dict__["job"] for r in caplog.records if r.getMessage() == UNMARKED] == [job]
    assert desk.metrics.registry.get_sample_value("headrace_jobs_unmarked_total") == 1


def test_a_sweep_takes_a_page_in_each_pass_and_a_new_leader_does_all_at_once(
    desk: LeaderHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    add_running(desk, 0, 3 * PAGE_MAX)
    read: list[int] = []
    really = due_jobs.quiet

    def quiet(conn: Connection, **asked: Any) -> Any:
        found = really(conn, **asked)
        read.append(len(found))
        return found

    monkeypatch.setattr(due_jobs, "quiet", quiet)
    desk.job_passes.run(everything=True)
    assert read == [PAGE_MAX] * 3 + [0]

    desk.clock.advance(SWEEP_INTERVAL_S)
    for _ in range(6):
        desk.job_passes.run(everything=True)
    assert read[4:] == [PAGE_MAX] * 3 + [0], "and then nothing, until the next is due"


@on_postgresql
def test_news_that_come_while_a_job_is_looked_at_are_not_lost(
    desk: LeaderHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    job, claim = desk.given()
    with writing(desk.store) as conn:
        due_jobs.mark(conn, [job])
    really, said = JobReconciler.need_step, [planned(claim)]

    def overtaken(self: JobReconciler, conn: Connection, some: Any) -> set[str]:
        found = really(self, conn, some)
        if said:
            desk.report("w1", said.pop(), holds=[claim])
        return found

    monkeypatch.setattr(JobReconciler, "need_step", overtaken)
    desk.job_passes.run(everything=False)
    assert not said
    desk.job_passes.run(everything=False)

    assert desk.status(job) is JobStatus.RUNNING


@on_postgresql
def test_a_job_that_is_being_changed_is_left_to_the_next_pass(desk: LeaderHarness) -> None:
    job, _ = desk.given()
    with writing(desk.store) as conn:
        assert jobs.want_cancel(conn, job)
        desk.job_passes.run(everything=False)  # does not wait for that transaction
        assert desk.status(job) is JobStatus.SCHEDULED
    desk.passes()

    assert desk.status(job) is JobStatus.CANCELING


def test_a_job_that_can_not_be_looked_at_stops_nobody(
    desk: LeaderHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    add_running(desk, 0, 3)
    with writing(desk.store) as conn:
        conn.execute(update(job_rows).values(wanted_cancel=1, due_at_ms=0))
    really = passes.JobReconciler.look

    def look(self: JobReconciler, conn: Connection, ids: Sequence[str]) -> Any:
        if "many-00001" in ids:
            raise RuntimeError("a bug of ours")
        return really(self, conn, ids)

    monkeypatch.setattr(passes.JobReconciler, "look", look)
    found = desk.job_passes.run(everything=False)

    assert found.failed == ["many-00001"]
    assert set(found.done) == {"many-00000", "many-00002"}


@pytest.mark.req("L5", "L6")
@pytest.mark.parametrize("jump_ms", [-24 * HOUR_MS, 24 * HOUR_MS])
def test_a_clock_that_is_set_puts_no_look_at_a_stopping_job_off(
    desk: LeaderHarness, jump_ms: int
) -> None:
    job, claim = desk.given()
    desk.report("w1", planned(claim), holds=[claim])
    desk.report("w1", prepared(claim), holds=[claim])
    desk.clock.advance(TIMEOUT_S + 1)
    desk.passes()
    assert desk.status(job) is JobStatus.FAILING
    former_ms = desk.clock.wall_ms()
    with reading(desk.store) as conn:
        due_ms = conn.scalar(select(job_rows.c.due_at_ms))
    assert due_ms is not None
    assert due_ms == former_ms + STOPPING_LOOK_MS

    desk.clock.set_wall(former_ms + jump_ms)
    desk.take_over()
    leader = LeaderClock(desk.clock)
    begin_time(desk.store, desk.term, leader, longest_pauses(OPTIONS), former_ms)

    with reading(desk.store) as conn:
        assert conn.scalar(select(job_rows.c.due_at_ms)) == due_ms + jump_ms
    desk.clock.advance(STOPPING_LOOK_MS / 1000)
    desk.passes()
    desk.clock.advance(SETTLE_DEADLINE_S)
    desk.passes()
    assert desk.status(job) is JobStatus.FAILED


@pytest.mark.parametrize(("back_ms", "late"), [(JUMP_MIN_MS, 0), (JUMP_MIN_MS + 1, 1)])
def test_a_small_step_of_the_clock_is_not_taken_for_a_mark_that_is_missing(
    desk: LeaderHarness, back_ms: int, late: int
) -> None:
    """`LeaderClock` follows it, and moves no due time for it."""
    job, _ = desk.given()
    desk.commands.cancel(job)
    desk.passes()

    desk.clock.set_wall(desk.clock.wall_ms() - back_ms)

    assert list(desk.unmarked()) == [job] * late


@pytest.mark.req("L5")
def test_a_new_leader_takes_no_look_for_later_than_it_can_be(desk: LeaderHarness) -> None:
    job, _ = desk.given()
    desk.commands.cancel(job)
    desk.passes()
    now_ms = desk.clock.wall_ms()
    with writing(desk.store) as conn:
        conn.execute(update(job_rows).values(due_at_ms=now_ms + 24 * HOUR_MS))
    desk.take_over()

    begin_time(desk.store, desk.term, LeaderClock(desk.clock), longest_pauses(OPTIONS))

    with reading(desk.store) as conn:
        due_ms = conn.scalar(select(job_rows.c.due_at_ms))
    assert due_ms is not None
    assert due_ms <= now_ms + 2 * STOPPING_LOOK_MS
