"""A job goes only to workers that have its plug-ins, and says so when there is none."""

from __future__ import annotations

import pytest

from headrace.coordinator.jobs.admission import FRONT_MAX
from headrace.coordinator.jobs.reconciler import SETTLE_ALONE_DEADLINE_S, JobReconciler
from headrace.coordinator.workforce import Workforce
from headrace.model.jobs.needs import text_of
from headrace.model.jobs.spec import JobSpec
from headrace.model.jobs.status import JobStatus, PipelineStatus, ScheduleStrategy
from headrace.model.task import Lane, TaskKind
from headrace.store.core.engine import reading
from headrace.store.core.transactions import fenced
from headrace.store.tasks import tasks, workers
from tests.coordinator.leader_harness import LeaderHarness
from tests.coordinator.specs import failed, planned, spec

FAKE, CONSOLE, MEMORY = ("source", "FakeSource"), ("sink", "Console"), ("sink", "InMemory")
ALL = (FAKE, CONSOLE, MEMORY)
NO_MEMORY = (
    "a worker with sink InMemory; group 'default' has none among its 1 worker: `pip install` "
    "the package that brings it where a worker of the group runs, then restart that worker"
)


def in_memory(*, pipelines: int = 1) -> JobSpec:
    """A job like the others, that needs another sink."""
    base = spec(pipelines=pipelines)
    changed = [
        each.model_copy(
            update={"sinks": (each.sinks[0].model_copy(update={"plugin": "InMemory"}),)}
        )
        for each in base.pipelines
    ]
    return base.model_copy(update={"pipelines": tuple(changed)})


def noop_that_needs(desk: LeaderHarness, need: str) -> str:
    task_id = desk.ids.new()
    with fenced(desk.store, desk.term) as conn:
        tasks.plan(
            conn,
            task_id=task_id,
            kind=TaskKind.NOOP,
            lane=Lane.SLOT,
            group="default",
            now_ms=desk.clock.wall_ms(),
            needs=text_of([need]),
        )
    return task_id


@pytest.mark.req("L4")
def test_a_job_is_given_to_a_worker_that_has_all_its_plugins_and_to_no_other(
    desk: LeaderHarness,
) -> None:
    desk.register("without", slots=5, plugins=[FAKE, CONSOLE])
    desk.register("with", slots=1, plugins=ALL)
    job = desk.submit(in_memory())
    desk.passes()

    without, able = desk.answer(desk.say("without"), desk.say("with"))

    assert without.assignments == ()
    assert [a.claim.task for a in able.assignments] == [desk.tasks(job)[0].id]


def test_a_worker_that_does_not_say_what_it_has_has_what_came_with_protocol_4(
    desk: LeaderHarness,
) -> None:
    desk.register("old")
    desk.submit(in_memory())
    desk.passes()

    assert len(desk.sync("old").assignments) == 1


def test_a_job_for_which_no_worker_has_a_plugin_says_which_and_holds_up_no_other(
    desk: LeaderHarness,
) -> None:
    desk.register("w1", plugins=[FAKE, CONSOLE])
    lacking = desk.submit(in_memory())
    other = desk.submit()
    desk.passes()

    assert (desk.status(lacking), desk.status(other)) == (JobStatus.PENDING, JobStatus.SCHEDULED)
    assert desk.job(lacking).waits_for == NO_MEMORY

    desk.register("w2", plugins=ALL)
    desk.passes()
    assert desk.status(lacking) is JobStatus.SCHEDULED
    assert desk.job(lacking).waits_for is None


def test_a_line_of_jobs_that_nobody_can_run_is_passed_by_however_long_it_is(
    desk: LeaderHarness,
) -> None:
    desk.register("w1", plugins=[FAKE, CONSOLE])
    for _ in range(2 * FRONT_MAX):
        desk.submit(in_memory())
    last = desk.submit()

    desk.passes()

    assert desk.status(last) is JobStatus.SCHEDULED


def test_only_the_slots_of_workers_that_can_run_it_count(desk: LeaderHarness) -> None:
    desk.register("without", slots=5, plugins=[FAKE, CONSOLE])
    desk.register("with", slots=1, plugins=ALL)
    large = desk.submit(in_memory(pipelines=2))
    desk.passes()

    assert desk.job(large).waits_for == (
        "2 slots at once on workers with sink InMemory; group 'default' has 1 in all: add workers "
        "to the group, or cancel the job and submit it with fewer pipelines"
    )
    first, second = desk.submit(in_memory()), desk.submit(in_memory())
    desk.passes()
    assert desk.status(first) is JobStatus.SCHEDULED
    assert desk.job(second).waits_for == (
        "a free slot on workers with sink InMemory in group 'default'; it has 0 of 1"
    )


def test_what_others_run_takes_nothing_away_from_those_who_can_run_it(
    desk: LeaderHarness,
) -> None:
    desk.register("without", slots=1, plugins=[FAKE, CONSOLE])
    desk.given(worker="without")
    desk.register("with", slots=1, plugins=ALL)

    job = desk.submit(in_memory())
    desk.passes()

    assert desk.status(job) is JobStatus.SCHEDULED


def test_a_task_that_nobody_can_run_any_more_takes_no_slot_from_others(
    desk: LeaderHarness,
) -> None:
    desk.register("with", slots=1, plugins=ALL)
    stuck = desk.submit(in_memory())
    desk.passes()
    desk.register("without", slots=1, plugins=[FAKE, CONSOLE])
    with fenced(desk.store, desk.term) as conn:
        workers.unregister(conn, "with")

    other = desk.submit()
    desk.passes()

    assert desk.status(other) is JobStatus.SCHEDULED
    [given] = desk.sync("without").assignments
    assert given.claim.task == desk.tasks(other)[0].id
    assert desk.pipeline_status(stuck) is PipelineStatus.SCHEDULED


def test_many_tasks_that_a_worker_can_not_run_hide_none_that_it_can(desk: LeaderHarness) -> None:
    desk.register("w1", slots=1, plugins=[FAKE])
    for number in range(60):
        noop_that_needs(desk, f"sink Unknown{number % 4}")
    last = noop_that_needs(desk, "source FakeSource")

    assert [a.claim.task for a in desk.sync("w1").assignments] == [last]


def test_a_job_that_is_to_end_says_what_the_worker_lacks_that_should_settle_it(
    desk: LeaderHarness,
) -> None:
    desk.register("with", plugins=ALL)
    job, claim = desk.given(in_memory(), worker="with")
    desk.report("with", planned(claim), holds=[claim])
    desk.register("without", plugins=[FAKE, CONSOLE])
    desk.report("with", failed(claim, retry=False))
    with fenced(desk.store, desk.term) as conn:
        workers.unregister(conn, "with")

    desk.passes()

    assert desk.status(job) is JobStatus.FAILING
    assert desk.sync("without").assignments == ()
    assert desk.job(job).waits_for == NO_MEMORY
    desk.clock.advance(SETTLE_ALONE_DEADLINE_S)
    desk.sync("without")  # it lives
    desk.passes()
    assert desk.status(job) is JobStatus.FAILED


def test_where_no_job_may_wait_it_is_refused_with_the_plugin(desk: LeaderHarness) -> None:
    desk.jobs = JobReconciler(
        desk.clock, desk.ids, wake_worker=desk.rung.append, schedule=ScheduleStrategy.REJECT
    )
    desk.register("w1", plugins=[FAKE, CONSOLE])
    job = desk.submit(in_memory())
    desk.passes()

    assert desk.status(job) in {JobStatus.FAILING, JobStatus.FAILED}
    assert f"needs {NO_MEMORY}. This coordinator lets no job wait" in (desk.job(job).error or "")


def test_tables_leave_no_slot_free_for_a_job_that_no_worker_can_run(desk: LeaderHarness) -> None:
    desk.register("w1", plugins=[FAKE, CONSOLE])
    desk.submit(in_memory())
    desk.passes()
    with reading(desk.store) as conn:
        assert not Workforce.read(conn).any_fits(conn, "default")


@pytest.mark.both_stores
def test_the_room_of_a_group_is_counted_by_what_its_workers_have(desk: LeaderHarness) -> None:
    desk.register("without", slots=3, plugins=[FAKE, CONSOLE])
    desk.register("with", slots=2, plugins=ALL)
    job = desk.submit(in_memory())
    desk.passes()
    needs = desk.tasks(job)[0].needs
    with reading(desk.store) as conn:
        workforce = Workforce.read(conn)
        able, everybody = (workforce.room(conn, "default", n) for n in (needs, None))
    assert (able.slots, able.free) == (2, 1)
    assert (everybody.slots, everybody.free) == (5, 4)
