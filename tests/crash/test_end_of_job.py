"""The end of a job, with real processes that are killed while it ends, and while it is cleaned up.

Whoever takes over goes on: the job's rows go once, nothing is left at its targets but its rows,
and its id is free for another job, which writes to the same targets (C2 to C7).
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence

import pytest

from headrace.client.views import JobView
from headrace.clock import SystemClock
from headrace.errors import Refused
from tests.crash.cluster import Cluster, until
from tests.crash.database import Database
from tests.crash.lives import GONE_MAX_S, LOOK_AT_STORE_S, SPLITS, Life, Lives
from tests.crash.seam_list import TARGETS_FORGOTTEN, Seam, seams_of_an_end
from tests.crash.traces import ended_runs, rows_left

pytestmark = [pytest.mark.crash, pytest.mark.timeout(1800)]

BEFORE_END = Seam("coordinator/jobs/reconciler.py", "before job ends")
IN_END = Seam("coordinator/jobs/reconciler.py", "job ended, in transaction")
BEFORE_DELETED = Seam("coordinator/jobs/cleanup.py", "before state is deleted")
IN_DELETED = Seam("coordinator/jobs/cleanup.py", "state deleted, in transaction")
BEFORE_ANSWER = Seam("coordinator/sync/writer.py", "sync committed, before answer")
SUBMITTED = Seam("coordinator/jobs/commands.py", "submitted, before answer")
RESTORED = Seam("coordinator/jobs/commands.py", "restored, before answer")
FILES_FORGET = Seam("connectors/files/sink.py", "before marks are forgotten")

Point = tuple[Seam, ...]  # passed one after another; the leader dies at the last
AS_THE_STATE_GOES: Sequence[Point] = [(BEFORE_DELETED,), (IN_DELETED,)]
AS_THE_TARGETS_DO: Sequence[Point] = [(TARGETS_FORGOTTEN,), (TARGETS_FORGOTTEN, BEFORE_ANSWER)]
OF_WORKERS = [seam for seam in seams_of_an_end() if not seam.is_met_by_a_coordinator]

FAILURE_TOLD_MAX_S = 600.0


@pytest.fixture
def lives(made: Cluster, database: Database) -> Lives:
    begun = Lives(made, database)
    begun.succession.start()
    return begun


@pytest.fixture(autouse=True)
def seconds(request: pytest.FixtureRequest, capsys: pytest.CaptureFixture[str]) -> Iterator[None]:
    began_s = time.monotonic()
    yield
    with capsys.disabled():
        print(f"\n{request.node.name}: {time.monotonic() - began_s:.0f} s", end="")  # noqa: T201  asked for


def begin_and_die_at(lives: Lives, *point: Seam) -> Life:
    """A job, and the leader who ends it, or cleans it up, and does not get there."""
    life = lives.next()
    lives.succession.arm(*point)
    life.submit()
    lives.succession.await_death(point[-1])
    return life


def awaiting_cleanup(lives: Lives, life: Life) -> int:
    """It has ended, and is not due to be cleaned up before this time."""
    view = lives.succession.await_end(life.id)
    assert view.cleanup is not None
    assert (view.cleaned, view.cleanup.step, view.cleanup.failures) == (False, "STATE", 0)
    assert view.cleanup.due_at_ms > SystemClock().wall_ms()
    assert {"jobs", "pipelines", "epochs", "cleanups"} <= rows_left(lives.made.store_url).keys()
    return view.cleanup.due_at_ms


def kill_leader_before(lives: Lives, due_at_ms: int) -> None:
    lives.succession.kill_leader()
    assert SystemClock().wall_ms() < due_at_ms, "it was not killed in time to prove anything"


@pytest.mark.req("C2", "C3", "C4", "C5", "C6", "C7")
def test_a_leader_killed_before_in_or_after_the_write_of_the_end_is_followed_by_one_that_cleans_up(
    lives: Lives,
) -> None:
    for point in (BEFORE_END, IN_END):
        lives.assert_ended(begin_and_die_at(lives, point))
    life = lives.next()
    life.submit()
    kill_leader_before(lives, awaiting_cleanup(lives, life))
    lives.assert_ended(life)

    lives.assert_nothing_left()
    lives.assert_ids_are_free()


@pytest.mark.req("C3", "C4", "C6", "C7")
@pytest.mark.matrix
def test_a_leader_killed_while_it_deletes_a_job_is_followed_by_one_that_does(
    lives: Lives,
) -> None:
    for point in AS_THE_STATE_GOES:
        lives.assert_ended(begin_and_die_at(lives, *point))

    lives.assert_nothing_left()
    lives.assert_ids_are_free()


@pytest.mark.req("C1", "C3", "C4")
@pytest.mark.matrix
def test_a_leader_killed_as_it_hears_that_the_targets_are_clean_leaves_nothing_to_do(
    lives: Lives,
) -> None:
    """Once with its transaction, and once when only the worker does not know of it."""
    heard, unanswered = AS_THE_TARGETS_DO
    lives.assert_ended(begin_and_die_at(lives, *heard))
    lives.assert_nothing_left()
    lives.assert_ended(begin_and_die_at(lives, *unanswered))
    assert not rows_left(lives.made.store_url), "it was recorded, and its worker hears it twice"

    lives.assert_nothing_left()
    lives.assert_ids_are_free()


@pytest.mark.req("C2", "C3", "C4", "C5", "C6", "C7")
@pytest.mark.matrix
def test_three_leaders_killed_in_a_row_clean_up_a_job_once(lives: Lives) -> None:
    succession = lives.succession
    life = begin_and_die_at(lives, BEFORE_END)
    due_at_ms = awaiting_cleanup(lives, life)
    with pytest.raises(Refused, match="awaits its cleanup"):
        succession.submit(life.text(life.first), key="too-soon", job_id=life.id)
    succession.arm(BEFORE_DELETED)
    kill_leader_before(lives, due_at_ms)
    succession.await_death(BEFORE_DELETED)
    lives.assert_ended(life)

    lives.assert_nothing_left()
    succession.arm(SUBMITTED)
    lives.assert_ids_are_free()
    succession.await_death(SUBMITTED)


@pytest.mark.req("C4")
def test_a_worker_killed_while_it_cleans_targets_is_told_as_a_failure_and_followed_by_another(
    lives: Lives,
) -> None:
    life = begin_and_die_at(lives, FILES_FORGET)
    assert life.targets.traces(), "it died in the middle"

    def failed() -> JobView | None:
        view = lives.succession.job(life.id)
        return view if view.cleanup and view.cleanup.failures else None

    view = until(failed, limit_s=FAILURE_TOLD_MAX_S, what="the failure is told", every_s=0.2)
    assert view.cleanup is not None
    assert (view.status, view.cleaned, view.cleanup.step) == ("FINISHED", True, "TARGETS")
    assert "worker" in (view.cleanup.error or "")
    assert lives.succession.running() == []

    lives.assert_nothing_left()
    lives.assert_ids_are_free()


@pytest.mark.req("C4")
@pytest.mark.matrix
@pytest.mark.timeout(600 * len(OF_WORKERS))
def test_workers_killed_at_each_step_of_cleaning_targets_are_followed_by_one_that_does(
    lives: Lives,
) -> None:
    for seam in OF_WORKERS:
        lives.assert_ended(begin_and_die_at(lives, seam))

    lives.assert_nothing_left()
    lives.assert_ids_are_free()


@pytest.mark.req("C2", "C6")
@pytest.mark.matrix
def test_a_savepoint_is_restored_after_its_rows_and_after_its_targets_are_cleaned(
    lives: Lives,
) -> None:
    succession, life = lives.succession, lives.next(epochs=SPLITS)
    life.submit()
    life.save(above=1)
    until(
        lambda: succession.job(life.id).cleaned,
        limit_s=GONE_MAX_S,
        what="its rows are gone",
        every_s=LOOK_AT_STORE_S,
    )
    assert life.targets.traces(), "its targets are not due yet"
    life.restore("second")
    life.save(above=life.epoch + 1)
    until(
        lambda: not rows_left(lives.made.store_url),
        limit_s=GONE_MAX_S,
        what="its targets are clean",
        every_s=LOOK_AT_STORE_S,
    )
    assert life.targets.traces() == []
    succession.arm(RESTORED)
    life.restore("third")
    succession.await_death(RESTORED)

    succession.await_end(life.id)
    runs = [(1, "SAVEPOINT_DONE"), (2, "SAVEPOINT_DONE"), (3, "FINISHED")]
    assert ended_runs(lives.made.store_url, life.id) == runs
    lives.assert_nothing_left()


def test_each_seam_of_an_end_is_met_by_a_test_here() -> None:
    points = [*AS_THE_STATE_GOES, *AS_THE_TARGETS_DO, (BEFORE_END, IN_END), OF_WORKERS]
    assert {seam for point in points for seam in point} >= set(seams_of_an_end())
    assert FILES_FORGET in OF_WORKERS
