"""Jobs that can't have all their slots stand in line, and are admitted in the order they came."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from sqlalchemy import Connection, update

from headrace.coordinator.jobs import admission
from headrace.coordinator.jobs.admission import EXACT_PLACES_MAX, FRONT_MAX
from headrace.coordinator.jobs.passes import SWEEP_INTERVAL_S
from headrace.model.jobs.status import JobStatus
from headrace.model.task import Claim
from headrace.store.core.engine import reading, writing
from headrace.store.jobs import jobs, queue
from headrace.store.jobs.queue import FittingJobs, Place, QueuedJob
from headrace.store.jobs.schema import jobs as job_rows
from tests.coordinator.jobs.streaming import restored, stopped_with_savepoint
from tests.coordinator.leader_harness import LeaderHarness
from tests.coordinator.specs import spec

DAY_MS = 24 * 3_600_000
PENDING, SCHEDULED = JobStatus.PENDING, JobStatus.SCHEDULED


def statuses(desk: LeaderHarness, *ids: str) -> list[JobStatus]:
    return [desk.status(job) for job in ids]


def accepted(desk: LeaderHarness, *ids: str, pipelines: int = 1, group: str = "default") -> None:
    """One after another, a moment apart."""
    for job in ids:
        desk.submit(spec(pipelines=pipelines), job_id=job, group=group)
        desk.clock.advance(0.001)


def busy(desk: LeaderHarness, *, slots: int, taken: int) -> Sequence[Claim]:
    """A group of which some slots are taken, each by a job."""
    desk.register("w1", slots=slots)
    accepted(desk, *(f"running-{n}" for n in range(taken)))
    desk.passes()
    claims = [a.claim for a in desk.sync("w1").assignments]
    desk.sync("w1", holds=claims, free={})
    desk.passes()
    assert len(claims) == taken
    return claims


def test_jobs_are_admitted_in_the_order_in_which_they_came_whatever_their_ids(
    desk: LeaderHarness,
) -> None:
    accepted(desk, "z", "m", "a")
    desk.register("w1", slots=2)

    desk.pass_()

    assert statuses(desk, "z", "m", "a") == [SCHEDULED, SCHEDULED, PENDING]


def test_jobs_of_one_moment_are_admitted_in_the_order_in_which_they_were_written(
    desk: LeaderHarness,
) -> None:
    for job in ("b", "a"):
        desk.submit(job_id=job)
    desk.register("w1", slots=1)

    desk.passes()

    assert statuses(desk, "b", "a") == [SCHEDULED, PENDING]


def test_jobs_that_came_at_once_through_several_nodes_are_admitted_by_their_ids(
    desk: LeaderHarness,
) -> None:
    for job in ("b", "a"):
        desk.submit(job_id=job)
    with writing(desk.store) as conn:
        conn.execute(update(job_rows).values(queue_number=1))
    desk.register("w1", slots=1)

    desk.passes()

    assert statuses(desk, "a", "b") == [SCHEDULED, PENDING]


@pytest.mark.req("L5")
def test_jobs_that_come_after_a_clock_was_set_back_do_not_go_before_those_that_wait(
    desk: LeaderHarness,
) -> None:
    stopped = stopped_with_savepoint(desk)
    accepted(desk, "waiting", "behind")
    desk.clock.set_wall(desk.clock.wall_ms() - DAY_MS)
    accepted(desk, "new")
    restored(desk, stopped)
    desk.take_over()

    with reading(desk.store) as conn:
        line = [each.job_id for each in queue.front(conn, "default", most=10)]
        told = jobs.get(conn, "waiting")
    assert line == ["waiting", "behind", "new", stopped]
    assert told is not None
    assert told.created_at_ms > desk.clock.wall_ms(), "people read when it came"


def test_one_pass_admits_all_that_fit(desk: LeaderHarness) -> None:
    names = [f"job-{n:02}" for n in range(20, 0, -1)]
    accepted(desk, *names)
    desk.register("w1", slots=20)

    desk.pass_()

    assert set(statuses(desk, *names)) == {SCHEDULED}


def test_small_jobs_do_not_starve_a_large_one(desk: LeaderHarness) -> None:
    busy(desk, slots=2, taken=1)
    accepted(desk, "large", pipelines=2)
    accepted(desk, "small-1", "small-2")

    desk.passes()

    assert statuses(desk, "large", "small-1", "small-2") == [PENDING, PENDING, PENDING]
    assert desk.job("large").waits_for == "2 free slots in group 'default'; it has 1 of 2"
    assert desk.job("small-1").waits_for == (
        "its turn: 1 job before it in group 'default', 'large' which needs 2 slots"
    )
    assert desk.job("small-2").waits_for == (
        "its turn: 2 jobs before it in group 'default', first 'large' which needs 2 slots"
    )


def test_when_slots_are_free_the_first_in_line_gets_them(desk: LeaderHarness) -> None:
    [claim] = busy(desk, slots=2, taken=1)
    accepted(desk, "large", pipelines=2)
    accepted(desk, "small")
    desk.passes()

    desk.finish("w1", claim)
    desk.passes()

    assert statuses(desk, "large", "small") == [SCHEDULED, PENDING]
    assert desk.job("small").waits_for == "a free slot in group 'default'; it has 0 of 2"
    first, second = (each.claim for each in desk.sync("w1").assignments)
    desk.finish("w1", first, holds=[second])
    desk.finish("w1", second)
    desk.passes()
    assert statuses(desk, "large", "small") == [JobStatus.FINISHED, SCHEDULED]


def test_a_job_that_needs_more_than_the_group_has_holds_nobody_up(desk: LeaderHarness) -> None:
    desk.register("w1", slots=2)
    accepted(desk, "huge", pipelines=5)
    accepted(desk, "small")

    desk.passes()

    assert statuses(desk, "huge", "small") == [PENDING, SCHEDULED]
    assert desk.job("huge").waits_for == (
        "5 slots at once; group 'default' has 2 in all: add workers to the group, or cancel the "
        "job and submit it with fewer pipelines"
    )


def test_a_job_that_has_become_possible_takes_its_place_in_line(desk: LeaderHarness) -> None:
    busy(desk, slots=2, taken=2)
    accepted(desk, "huge", pipelines=4)
    accepted(desk, "small")
    desk.passes()
    assert desk.job("small").waits_for == "a free slot in group 'default'; it has 0 of 2"

    desk.register("w2", slots=2)
    desk.passes()

    assert statuses(desk, "huge", "small") == [PENDING, PENDING]
    assert desk.job("huge").waits_for == "4 free slots in group 'default'; it has 2 of 4"
    assert desk.job("small").waits_for == (
        "its turn: 1 job before it in group 'default', 'huge' which needs 4 slots"
    )


def test_a_job_that_is_being_cancelled_holds_nobody_up(desk: LeaderHarness) -> None:
    busy(desk, slots=2, taken=1)
    accepted(desk, "large", pipelines=2)
    accepted(desk, "small")
    desk.passes()

    desk.commands.cancel("large")
    desk.pass_()

    assert statuses(desk, "large", "small") == [JobStatus.CANCELED, SCHEDULED]


def test_a_restored_job_stands_behind_those_that_came_before_its_restore(
    desk: LeaderHarness,
) -> None:
    desk.register("w1", slots=1)
    job = stopped_with_savepoint(desk)
    accepted(desk, "waiting")
    restored(desk, job)

    desk.passes()

    assert statuses(desk, "waiting", job) == [SCHEDULED, PENDING]


def test_each_group_has_its_own_line(desk: LeaderHarness) -> None:
    busy(desk, slots=2, taken=1)
    accepted(desk, "large", pipelines=2)
    accepted(desk, "elsewhere", group="other")
    desk.register("w2", slots=1, group="other")

    desk.passes()

    assert statuses(desk, "large", "elsewhere") == [PENDING, SCHEDULED]


def test_a_job_that_can_not_be_admitted_stops_nobody(
    desk: LeaderHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    accepted(desk, "broken", "sound")
    desk.register("w1", slots=1)
    really = jobs.spec_of

    def spec_of(conn: Connection, job_id: str) -> Any:
        if job_id == "broken":
            raise RuntimeError("the store plays tricks")
        return really(conn, job_id)

    monkeypatch.setattr(jobs, "spec_of", spec_of)

    assert "broken" in desk.pass_().failed
    assert desk.status("sound") is SCHEDULED


def test_far_back_in_line_a_job_is_told_a_round_number(desk: LeaderHarness) -> None:
    busy(desk, slots=1, taken=1)
    names = [f"job-{n:03}" for n in range(60)]
    accepted(desk, *names)

    desk.passes()

    told = [desk.job(name).waits_for for name in names]
    group = "in group 'default'"
    assert told[EXACT_PLACES_MAX] == (
        f"its turn: 20 jobs before it {group}, first 'job-000' which needs 1 slot"
    )
    assert told[21:31] == [f"its turn: more than 20 jobs before it {group}"] * 10
    assert told[51:] == [f"its turn: more than 50 jobs before it {group}"] * 9


def test_an_admission_costs_few_writes_however_many_wait(desk: LeaderHarness) -> None:
    [claim] = busy(desk, slots=1, taken=1)
    accepted(desk, *(f"job-{n:03}" for n in range(200)))
    desk.passes()

    desk.finish("w1", claim)
    done = [job for job in desk.pass_().done if job.startswith("job-")]

    assert "job-000" in done
    assert len(done) <= EXACT_PLACES_MAX + 1  # those at the front
    assert desk.pass_().done == [f"job-{EXACT_PLACES_MAX + 1:03}"]  # who has come to the front
    assert not desk.pass_().done


def test_a_pass_reads_only_the_front_of_a_line_however_many_wait(
    desk: LeaderHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    busy(desk, slots=1, taken=1)
    accepted(desk, *(f"job-{n:03}" for n in range(50)))
    desk.passes()
    read: list[int] = []
    really = queue.front

    def front(*asked: Any, **more: Any) -> Sequence[QueuedJob]:
        found = really(*asked, **more)
        read.append(len(found))
        return found

    monkeypatch.setattr(queue, "front", front)
    desk.pass_()

    assert read == [FRONT_MAX]


def test_a_round_number_is_brought_up_to_date_by_the_sweep(desk: LeaderHarness) -> None:
    [claim] = busy(desk, slots=1, taken=1)
    names = [f"job-{n:03}" for n in range(60)]
    accepted(desk, *names)
    desk.passes()
    desk.finish("w1", claim)
    desk.passes()
    assert (
        desk.job("job-051").waits_for == "its turn: more than 50 jobs before it in group 'default'"
    )

    desk.clock.advance(SWEEP_INTERVAL_S)
    desk.sync("w1", free={})
    desk.passes()

    assert (
        desk.job("job-051").waits_for == "its turn: more than 40 jobs before it in group 'default'"
    )


def test_far_behind_a_thousand_jobs_are_the_most_that_are_counted(
    desk: LeaderHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(admission, "PLACES_MAX", 30)
    busy(desk, slots=1, taken=1)
    names = [f"job-{n:03}" for n in range(60)]
    accepted(desk, *names)

    desk.passes()

    told = {desk.job(name).waits_for for name in names[31:]}
    assert told == {"its turn: more than 30 jobs before it in group 'default'"}


def test_a_front_of_jobs_that_are_all_too_large_hides_nobody(desk: LeaderHarness) -> None:
    desk.register("w1", slots=1)
    accepted(desk, *(f"huge-{n:02}" for n in range(FRONT_MAX + 1)), pipelines=2)
    accepted(desk, "small")

    desk.passes()

    assert statuses(desk, "huge-00", "small") == [PENDING, SCHEDULED]


class Searches:
    """Where in a line it was searched for jobs that fit: behind so many."""

    def __init__(self, patched: pytest.MonkeyPatch) -> None:
        self.after: list[int] = []
        self._really = queue.fitting
        patched.setattr(queue, "SCAN_MAX", FRONT_MAX)
        patched.setattr(queue, "fitting", self._fitting)

    def _fitting(self, *asked: Any, after: Place, **more: Any) -> FittingJobs:
        self.after.append(max(0, after[0]))
        return self._really(*asked, after=after, **more)


def test_the_line_of_a_group_without_workers_is_not_searched(
    desk: LeaderHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    searches = Searches(monkeypatch)
    accepted(desk, *(f"job-{n:02}" for n in range(2 * FRONT_MAX)))

    desk.passes()

    assert not searches.after
    assert desk.job("job-41").waits_for == "a free slot in group 'default'; it has 0 of 0"


def test_behind_jobs_that_are_too_large_a_pass_searches_so_far_and_the_next_one_goes_on(
    desk: LeaderHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    desk.register("w1", slots=1)
    accepted(desk, *(f"huge-{n:02}" for n in range(3 * FRONT_MAX)), pipelines=2)
    desk.passes()
    searches = Searches(monkeypatch)

    for _ in range(5):
        desk.pass_()
    assert searches.after == [0, FRONT_MAX, 2 * FRONT_MAX, 3 * FRONT_MAX, 3 * FRONT_MAX]
    accepted(desk, "small")
    desk.passes()

    assert desk.status("small") is SCHEDULED
    assert min(searches.after[5:]) == 3 * FRONT_MAX, "what is too large is not read again"
    desk.register("w2", slots=1)
    desk.pass_()
    assert desk.job("huge-00").waits_for == "2 free slots in group 'default'; it has 1 of 2"


def test_a_job_that_came_late_to_a_place_behind_which_it_was_searched_has_its_turn(
    desk: LeaderHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was written through another node, by a transaction that took longer."""
    desk.register("w1", slots=1)
    accepted(desk, *(f"huge-{n:02}" for n in range(3 * FRONT_MAX)), pipelines=2)
    Searches(monkeypatch)
    for _ in range(5):
        desk.pass_()
    accepted(desk, "small")
    with writing(desk.store) as conn:
        conn.execute(update(job_rows).where(job_rows.c.id == "small").values(queue_number=5))

    desk.passes()

    assert desk.status("small") is SCHEDULED


def test_a_front_of_jobs_that_can_not_be_admitted_hides_nobody(
    desk: LeaderHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    broken = [f"broken-{n:02}" for n in range(FRONT_MAX + 1)]
    accepted(desk, *broken, "sound")
    desk.register("w1", slots=1)
    really = jobs.spec_of

    def spec_of(conn: Connection, job_id: str) -> Any:
        if job_id in broken:
            raise RuntimeError("the store plays tricks")
        return really(conn, job_id)

    monkeypatch.setattr(jobs, "spec_of", spec_of)

    assert set(desk.pass_().failed) == set(broken)
    assert desk.status("sound") is SCHEDULED


def test_the_queue_is_the_same_for_the_next_leader(desk: LeaderHarness) -> None:
    busy(desk, slots=2, taken=1)
    accepted(desk, "large", pipelines=2)
    accepted(desk, "small")
    desk.passes()

    desk.take_over()

    assert not [job for job in desk.pass_().done if job in {"large", "small"}]
    with reading(desk.store) as conn:
        line = queue.front(conn, "default", most=10)
    assert [each.job_id for each in line] == ["large", "small"]
