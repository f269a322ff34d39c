"""However many jobs are due, each has its turn, and none of them costs the others theirs (L6)."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from sqlalchemy import Connection

from headrace.coordinator.jobs import admission, passes
from headrace.coordinator.jobs.passes import BUDGET_S
from headrace.coordinator.jobs.reconciler import (
    SETTLE_ALONE_DEADLINE_S,
    STOPPING_LOOK_MS,
    JobReconciler,
    Look,
)
from headrace.model.jobs.status import JobStatus, PipelineStatus
from headrace.store.core.transactions import fenced
from headrace.store.jobs import queue
from headrace.store.jobs.queue import QueuedJob
from tests.coordinator.jobs.many import (
    OTHER,
    add,
    add_running,
    add_settling,
    counted_statements,
    slow_steps,
)
from tests.coordinator.leader_harness import LeaderHarness

FEW, MANY = 2, 40
PAGE, PAGES = 5, 8
# So the first of all pages is due again before the last had its look.
PAGE_S = 2 * STOPPING_LOOK_MS / 1000 / PAGES


@pytest.fixture(autouse=True)
def small_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(passes, "PAGE_MAX", PAGE)


def slow_looks(
    desk: LeaderHarness, patched: pytest.MonkeyPatch, *, locked: str | None = None
) -> list[str]:
    """A look at a page takes `PAGE_S`, and leaves out who is locked; who was looked at, in turn."""
    seen: list[str] = []
    really = JobReconciler.look

    def look(self: JobReconciler, conn: Connection, ids: Sequence[str]) -> Look:
        desk.clock.advance(PAGE_S)
        seen.extend(ids)
        return really(self, conn, [id_ for id_ in ids if id_ != locked])

    patched.setattr(JobReconciler, "look", look)
    return seen


@pytest.mark.req("L6")
def test_a_command_does_not_wait_behind_jobs_that_are_stopping(
    desk: LeaderHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    add_settling(desk, PAGES * PAGE)
    [job] = add_running(desk, 0, 1)
    slow_looks(desk, monkeypatch)
    for _ in range(2 * PAGES):
        desk.job_passes.run(everything=True)

    desk.commands.cancel(job)
    desk.job_passes.run(everything=False)

    assert desk.status(job) is not JobStatus.RUNNING


@pytest.mark.req("L6")
def test_a_stopping_job_that_was_left_out_of_a_look_has_its_next_one_in_the_next_round(
    desk: LeaderHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its time lies behind that of all others, which are due again and again."""
    first, *_ = add_settling(desk, PAGES * PAGE, due_at_ms=desk.clock.wall_ms() - 1)
    seen = slow_looks(desk, monkeypatch, locked=first)

    for _ in range(3 * (PAGES + 1)):
        desk.job_passes.run(everything=False)

    assert seen.count(first) >= 3


@pytest.mark.req("L6")
@pytest.mark.parametrize("for_s", [0.0, SETTLE_ALONE_DEADLINE_S])
def test_a_look_at_a_page_of_stopping_jobs_costs_as_many_statements_as_one_at_few(
    desk: LeaderHarness, for_s: float
) -> None:
    """They wait for a worker to settle them: is there one, what is open, is it too late?"""
    ids = add_settling(desk, MANY)
    with fenced(desk.store, desk.term) as conn:
        assert not desk.jobs.look(conn, ids).need_step
    desk.clock.advance(for_s)
    taken: list[int] = []
    for count in (FEW, MANY):
        with counted_statements() as statements, fenced(desk.store, desk.term) as conn:
            assert not desk.jobs.look(conn, ids[:count]).need_step
        taken.append(len(statements))

    assert taken[0] == taken[1]


@pytest.mark.req("L6")
def test_a_sweep_ends_in_time_within_a_page_and_goes_on_there(
    desk: LeaderHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All of them are told a place that they no longer have."""
    monkeypatch.setattr(passes, "PAGE_MAX", MANY)
    ids = [f"waits-{n:03}" for n in range(MANY)]
    add(desk, ids, JobStatus.PENDING, PipelineStatus.CREATED, waits_for="its turn: long ago")
    desk.register("w1", slots=1, group=OTHER)
    desk.plan_noops(1, group=OTHER)
    monkeypatch.setattr(admission, "FRONT_MAX", 1)  # so that the lines take no part in it
    slow_steps(desk, monkeypatch, BUDGET_S / 4)

    done: list[str] = []
    for _ in range(MANY):
        began_s = desk.clock.monotonic_s()
        done += desk.job_passes.run(everything=True).done
        assert desk.clock.monotonic_s() - began_s <= 2 * BUDGET_S

    assert done == ids, "each of them once"
    assert "its turn: long ago" not in {desk.job(job).waits_for for job in ids}


@pytest.mark.req("L6")
def test_lines_are_read_in_time_and_the_next_pass_goes_on_with_the_next_group(
    desk: LeaderHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody in them has a turn; reading them takes as long."""
    groups = [f"group-{n}" for n in range(PAGES)]
    for group in groups:
        add(desk, [group], JobStatus.PENDING, PipelineStatus.CREATED, group_name=group, due_at_ms=0)
    desk.passes()
    really, read = queue.front, list[str]()

    def front(conn: Connection, group: str, *, most: int) -> Sequence[QueuedJob]:
        desk.clock.advance(BUDGET_S / 2)
        read.append(group)
        return really(conn, group, most=most)

    monkeypatch.setattr(queue, "front", front)
    for _ in range(PAGES):
        began = len(read)
        desk.job_passes.run(everything=True)
        assert len(read) - began <= 2

    assert read == groups * 2
