"""The sync loop: what it runs follows from what leaders say, however badly they are heard."""

from __future__ import annotations

from pathlib import Path

import pytest

from headrace.errors import SparkDied
from headrace.model.task import Claim, FailureCause, Lane, TaskKind
from headrace.protocol.messages import TaskEnded
from headrace.worker import jvm_monitor as tending_module
from headrace.worker import sync_loop
from headrace.worker.execution import Execution
from tests.worker.leader import BOUND_S, Leader, Worker, assignment, at_work, eventually, given

FIRST, SECOND = Claim("t", 1), Claim("t", 2)


def test_a_task_is_run_and_its_end_is_said(leader: Leader, worker: Worker) -> None:
    given(leader, worker, FIRST)
    eventually(lambda: FIRST in {held.claim for held in leader.syncs()[-1].holds})
    assert leader.syncs()[-1].free[Lane.SLOT] == 1
    worker.work.may_end.set()

    eventually(lambda: leader.ends() == [(FIRST, "SUCCESS")])
    leader.rounds()
    assert leader.syncs()[-1].holds == ()
    assert leader.syncs()[-1].free == {Lane.SLOT: 2, Lane.CONTROL: 1}


@pytest.mark.req("D4")
def test_an_end_is_said_until_it_is_acknowledged_whoever_leads(
    leader: Leader, worker: Worker
) -> None:
    leader.acknowledges = False
    given(leader, worker, FIRST)
    worker.work.may_end.set()
    eventually(lambda: leader.ends() == [(FIRST, "SUCCESS")])
    leader.term, leader.number = 6, 0  # the first one died before its commit
    leader.rounds()
    # Unacknowledged, it is said again each time, and counts as held.
    assert [report.claim for report in leader.syncs()[-1].reports] == [FIRST]
    assert [held.claim for held in leader.syncs()[-1].holds] == [FIRST]

    leader.acknowledges = True
    leader.rounds(3)
    assert leader.syncs()[-1].reports == ()
    assert not list((worker.home / "w1").glob("*.json"))


def test_work_goes_on_while_no_coordinator_answers(leader: Leader, worker: Worker) -> None:
    given(leader, worker, FIRST)
    leader.away = True
    worker.work.may_end.set()
    eventually(lambda: list((worker.home / "w1").glob("*.json")))
    assert leader.ends() == []

    leader.away = False

    eventually(lambda: leader.ends() == [(FIRST, "SUCCESS")])
    assert worker.work.started == ["t.1"]
    assert leader.registers() == 1


def test_a_claim_is_never_started_twice(leader: Leader, worker: Worker) -> None:
    given(leader, worker, FIRST)
    leader.give = [assignment(), assignment()]
    leader.rounds()
    worker.work.may_end.set()
    eventually(lambda: leader.ends() == [(FIRST, "SUCCESS")])

    leader.give = [assignment()]
    leader.rounds(3)

    assert worker.work.started == ["t.1"]


def test_an_older_attempt_is_stopped_before_the_next_one_starts(
    leader: Leader, worker: Worker
) -> None:
    worker.work.deaf.set()
    given(leader, worker, FIRST)
    leader.give = [assignment(attempt=2)]
    eventually(lambda: SECOND in {held.claim for held in leader.syncs()[-1].holds})
    leader.rounds(3)
    assert worker.work.started == ["t.1"]
    eventually(lambda: worker.work.cancelled)  # again and again, until it has ended
    assert set(worker.work.cancelled) == {"t.1"}

    worker.work.deaf.clear()

    eventually(lambda: worker.work.started == ["t.1", "t.2"])
    assert worker.work.overlaps == 0


def test_a_task_that_is_told_to_stop_stops_and_says_so(leader: Leader, worker: Worker) -> None:
    worker.work.deaf.set()  # until Spark's job is cancelled under it
    given(leader, worker, FIRST)
    leader.stop = [FIRST, Claim("unknown", 1)]
    eventually(lambda: set(worker.work.cancelled) == {"t.1"})
    worker.work.deaf.clear()

    eventually(lambda: leader.ends() == [(FIRST, "CANCELED")])


def test_an_answer_of_an_older_term_is_ignored(leader: Leader, worker: Worker) -> None:
    given(leader, worker, FIRST)
    leader.rounds()
    seen = leader.syncs()[-1].seen
    leader.term = 4
    leader.stop = [FIRST]
    leader.give = [assignment("other")]
    worker.work.may_end.set()
    eventually(leader.ends)
    leader.rounds(3)

    assert leader.syncs()[-1].seen.term == seen.term == 5
    assert worker.work.started == ["t.1"]
    assert [report.claim for report in leader.syncs()[-1].reports] == [FIRST]  # not acknowledged
    leader.term = 6
    eventually(lambda: leader.syncs()[-1].reports == ())


def test_a_worker_that_is_not_known_stops_all_and_registers_anew(
    leader: Leader, worker: Worker
) -> None:
    given(leader, worker, FIRST, Claim("u", 1))
    leader.registered = False

    eventually(lambda: leader.registers() == 2)
    eventually(lambda: not worker.work.running)
    leader.rounds(2)

    assert leader.ends() == []  # they are somebody else's by now
    assert leader.syncs()[-1].holds == ()
    given(leader, worker, SECOND)


def test_a_second_attempt_after_being_unknown_waits_for_the_first(
    leader: Leader, worker: Worker
) -> None:
    worker.work.deaf.set()
    given(leader, worker, FIRST)
    leader.registered = False
    eventually(lambda: leader.registers() == 2)
    leader.give = [assignment(attempt=2)]
    leader.rounds(3)
    assert worker.work.started == ["t.1"]

    worker.work.deaf.clear()

    eventually(lambda: worker.work.started == ["t.1", "t.2"])
    assert worker.work.overlaps == 0


def test_every_sync_has_a_higher_number_and_says_what_was_seen(
    leader: Leader, worker: Worker
) -> None:
    leader.rounds(5)
    syncs = leader.syncs()
    numbers = [sync.sync for sync in syncs]

    assert numbers == sorted(set(numbers))
    assert [sync.seen.number for sync in syncs] == list(range(len(syncs)))


def test_stopping_abandons_silently_and_says_goodbye(leader: Leader, tmp_path: Path) -> None:
    with at_work(leader, tmp_path) as worker:
        given(leader, worker, FIRST)
    [goodbye] = leader.goodbyes()

    assert leader.ends() == []
    assert goodbye.reports == ()
    assert "t.1" in worker.work.started
    assert not worker.work.running
    assert list(tmp_path.iterdir()) == []


@pytest.mark.req("D4")
def test_an_end_that_was_not_said_goes_with_the_goodbye_and_leaves_no_file(
    leader: Leader, tmp_path: Path
) -> None:
    leader.acknowledges = False
    with at_work(leader, tmp_path) as worker:
        given(leader, worker, FIRST)
        worker.work.may_end.set()
        eventually(leader.ends)
    [goodbye] = leader.goodbyes()

    assert [report.claim for report in goodbye.reports] == [FIRST]
    assert list(tmp_path.iterdir()) == []


@pytest.mark.req("D4")
def test_an_end_that_even_the_goodbye_could_not_say_stays_on_disk(
    leader: Leader, tmp_path: Path
) -> None:
    leader.acknowledges = False
    with at_work(leader, tmp_path) as worker:
        given(leader, worker, FIRST)
        worker.work.may_end.set()
        eventually(leader.ends)
        leader.away = True

    assert leader.goodbyes() == []
    assert [path.name for path in (tmp_path / "w1").glob("*.json")] == ["1.json"]


def test_a_host_that_never_reached_anybody_stops_at_once(
    leader: Leader, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sync_loop, "GOODBYE_TIMEOUT_S", 10 * BOUND_S)
    leader.away = True
    with at_work(leader, tmp_path):  # which waits for its end no longer than BOUND_S
        pass

    assert leader.said == []
    assert list(tmp_path.iterdir()) == []


def test_work_wakes_a_host_that_would_sleep(
    leader: Leader, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sync_loop, "IDLE_SYNC_INTERVAL_S", 10 * BOUND_S)
    with at_work(leader, tmp_path) as worker:
        eventually(leader.syncs)
        given(leader, worker, FIRST)


def test_progress_is_said_with_the_application(leader: Leader, worker: Worker) -> None:
    given(leader, worker, FIRST)
    leader.rounds()
    [held] = leader.syncs()[-1].holds

    assert held.progress is not None
    assert (held.progress.step, held.progress.spark_application) == ("starting", "app")


def test_a_worker_whose_jvm_has_died_gives_its_tasks_back_and_ends(
    leader: Leader, worker: Worker
) -> None:
    given(leader, worker, FIRST)
    worker.work.alive = False

    eventually(leader.goodbyes)
    eventually(lambda: worker.errors)
    error = worker.errors.pop()
    assert isinstance(error, SparkDied)
    assert "JVM has died" in str(error)


@pytest.mark.parametrize("cause", [FailureCause.LOST, FailureCause.KILLED])
def test_a_goodbye_says_what_the_jvm_died_of(
    leader: Leader, worker: Worker, cause: FailureCause
) -> None:
    """Or an epoch that kills each JVM would be given to the next one for ever."""
    given(leader, worker, FIRST)
    worker.work.death, worker.work.alive = cause, False

    eventually(leader.goodbyes)
    assert leader.goodbyes()[0].cause is cause
    eventually(lambda: worker.errors)
    worker.errors.clear()


def test_what_fails_under_a_dead_jvm_was_lost_with_it_and_the_worker_takes_nothing_more(
    leader: Leader, worker: Worker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An execution meets the broken pipe before anybody has looked at the JVM."""
    monkeypatch.setattr(tending_module, "JVM_POLL_INTERVAL_S", BOUND_S)

    def broken(execution: Execution) -> None:
        worker.work.started.append(execution.id)
        worker.work.death, worker.work.alive = FailureCause.KILLED, False
        raise ConnectionResetError("the JVM does not answer")

    worker.runs[TaskKind.NOOP] = broken
    leader.give = [assignment()]

    eventually(leader.goodbyes)
    [goodbye] = leader.goodbyes()
    said = [r for sync in leader.syncs() for r in sync.reports] + list(goodbye.reports)
    assert goodbye.cause is FailureCause.KILLED
    for end in said:
        assert isinstance(end, TaskEnded)
        assert (end.outcome, end.cause, end.retry) == ("FAILED", FailureCause.KILLED, True)
        assert "was killed by SIGKILL, as the kernel does when memory runs out" in str(end.error)
    assert worker.work.started == ["t.1"]
    eventually(lambda: worker.errors)
    worker.errors.clear()


def test_a_worker_that_wants_to_leave_takes_no_more_tasks_after_a_while(
    leader: Leader, worker: Worker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Or a line that never ends would keep it from becoming idle."""
    monkeypatch.setattr(sync_loop, "TAKES_ON_S", 0.0)
    given(leader, worker, Claim("t", 1))
    worker.leaves_when_idle = lambda: True

    eventually(lambda: leader.syncs()[-1].free[Lane.SLOT] == 0)
    assert leader.syncs()[-1].free[Lane.CONTROL] > 0, "what settles and cleans up goes on"

    worker.work.may_end.set()
    eventually(lambda: worker.sync_loop.left_when_idle)
