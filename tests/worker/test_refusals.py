"""What a worker does when something refuses: the leader, a thread, an older attempt that stays."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from headrace.containers.container import DRIVER_MEMORY
from headrace.containers.launch_claims import WorkerLaunch
from headrace.errors import LaunchOver, Refused, Unauthorized
from headrace.model.task import Claim
from headrace.protocol.messages import TaskEnded
from headrace.worker import sync_loop
from headrace.worker.execution import Execution
from headrace.worker.sync_loop import memory_mb, registration_of
from tests.worker.leader import BOUND_S, Leader, Worker, assignment, at_work, eventually, given

FIRST, SECOND, THIRD = (Claim("t", attempt) for attempt in (1, 2, 3))


def held(leader: Leader, claim: Claim) -> None:
    eventually(lambda: claim in {held.claim for held in leader.syncs()[-1].holds})


def test_a_worker_that_is_refused_gives_everything_back_before_it_ends(
    leader: Leader, worker: Worker
) -> None:
    given(leader, worker, FIRST)
    leader.refuses["sync"] = (422, "the message can't be read")

    eventually(lambda: worker.errors)

    assert isinstance(worker.errors.pop(), Refused)
    assert len(leader.goodbyes()) == 1
    assert not worker.work.running


@pytest.mark.req("R8")
def test_a_worker_whose_launch_was_replaced_ends_with_the_reason_of_the_leader(
    leader: Leader, tmp_path: Path
) -> None:
    leader.refuses_as = "LaunchOver"
    leader.refuses["register"] = (422, "launch 2 is the current one; it ends")
    late = Worker(leader, tmp_path)

    late.start()
    eventually(lambda: late.errors)

    [error] = late.errors
    assert isinstance(error, LaunchOver)
    assert "launch 2 is the current one; it ends" in str(error)
    assert leader.goodbyes() == [], "nobody knows it"


@pytest.fixture
def taken(leader: Leader, monkeypatch: pytest.MonkeyPatch) -> Leader:
    """Another worker is registered for the launch of those who come."""
    monkeypatch.setattr(sync_loop, "TURN_PAUSE_S", 0.01)
    leader.refuses_as = "LaunchTaken"
    leader.refuses["register"] = (422, "worker w0 is registered for that")
    return leader


@pytest.mark.req("R6")
def test_a_worker_that_came_up_anew_waits_until_its_forerunner_is_known_to_be_gone(
    taken: Leader, tmp_path: Path
) -> None:
    with at_work(taken, tmp_path) as worker:
        eventually(lambda: taken.refused.count("register") > 2)
        assert worker.errors == []
        del taken.refuses["register"]
        eventually(taken.registers)


@pytest.mark.req("R8")
def test_a_worker_ends_when_the_other_one_of_its_launch_stays(
    taken: Leader, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sync_loop, "TURN_MAX_S", 0.5)
    late = Worker(taken, tmp_path)

    late.start()
    eventually(lambda: late.errors)

    [error] = late.errors
    assert isinstance(error, LaunchOver)
    assert taken.refused.count("register") > 2


@pytest.mark.req("R8")
def test_a_worker_that_is_the_only_process_of_its_launch_ends_at_once(
    taken: Leader, tmp_path: Path
) -> None:
    """Another machine started the same launch, and nobody waits there for a pod."""
    second = Worker(taken, tmp_path, may_replace_earlier_process=False)

    second.start()
    eventually(lambda: second.errors)

    assert isinstance(second.errors.pop(), LaunchOver)
    assert taken.refused.count("register") == 1


@pytest.mark.req("R8")
def test_a_worker_that_lost_its_place_after_its_first_minutes_ends_at_once(
    leader: Leader, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sync_loop, "TURN_MAX_S", 0.0)
    silent = Worker(leader, tmp_path)
    silent.start()
    eventually(leader.syncs)
    leader.refuses_as = "LaunchTaken"
    leader.refuses["register"] = (422, "worker w0 is registered for that")
    leader.registered = False

    eventually(lambda: silent.errors)

    assert isinstance(silent.errors.pop(), LaunchOver)
    assert leader.refused.count("register") == 1


def test_a_worker_says_what_it_was_started_for() -> None:
    launch, memory = WorkerLaunch("r1", 3), memory_mb({DRIVER_MEMORY: "4g"})

    introduced = registration_of("w", "g", 2, "app", launch, memory_mb=memory)

    assert (introduced.resource, introduced.launch, introduced.memory_mb) == ("r1", 3, 4096)
    assert registration_of("w", "g", 2, "app", None, memory_mb=0).resource is None


@pytest.mark.parametrize(
    ("text", "expected"), [("512m", 512), ("2048", 2048), ("1T", 1024**2), ("2048k", 2), ("x", 0)]
)
def test_memory_is_read_as_spark_writes_it(text: str, expected: int) -> None:
    assert memory_mb({DRIVER_MEMORY: text}) == expected
    assert memory_mb({}) == 0


def test_a_worker_whose_goodbye_is_refused_too_says_the_first_refusal(
    leader: Leader, worker: Worker
) -> None:
    given(leader, worker, FIRST)
    leader.refuses |= dict.fromkeys(("sync", "goodbye", "wait"), (401, "no"))

    eventually(lambda: worker.errors)

    assert isinstance(worker.errors.pop(), Unauthorized)
    assert leader.refused.count("goodbye") == 1


def test_a_sync_that_was_overtaken_is_followed_by_the_next_one(
    leader: Leader, worker: Worker
) -> None:
    given(leader, worker, FIRST)
    leader.refuses_as = "SyncOvertaken"
    leader.refuses["sync"] = (409, "in whatever words")
    eventually(lambda: leader.refused.count("sync") > 1)
    del leader.refuses["sync"]

    leader.rounds()
    assert worker.errors == []


def test_a_leader_that_was_fenced_does_not_end_a_worker(leader: Leader, worker: Worker) -> None:
    """It lost the lead between the question and its write; the next leader will answer."""
    given(leader, worker, FIRST)
    leader.refuses_as = "LeaderFenced"
    leader.refuses["sync"] = (409, "leader term 5 ended; the store is at term 6")
    eventually(lambda: leader.refused.count("sync") > 1)
    del leader.refuses["sync"]

    leader.rounds()
    assert worker.errors == []


@pytest.mark.parametrize("status", [403, 413, 415])
def test_a_worker_that_is_not_even_listened_to_ends_with_the_reason(
    leader: Leader, tmp_path: Path, status: int
) -> None:
    leader.refuses["register"] = (status, "that's no way to speak")
    worker = Worker(leader, tmp_path)
    worker.start()
    eventually(lambda: worker.errors)
    worker.stop()

    [error] = worker.errors
    assert isinstance(error, Refused)
    assert str(error) == "http://a:1: that's no way to speak"
    assert leader.refused == ["register"]


def test_a_wait_that_is_refused_is_tried_again(leader: Leader, worker: Worker) -> None:
    eventually(leader.syncs)
    leader.refuses["wait"] = (422, "who are you")

    eventually(lambda: leader.refused.count("wait") > 2)


def test_a_goodbye_is_tried_again_while_a_coordinator_starts(
    leader: Leader, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sync_loop, "GOODBYE_TIMEOUT_S", BOUND_S)
    with at_work(leader, tmp_path) as worker:
        given(leader, worker, FIRST)
        leader.refuses["goodbye"] = (503, "starting")
        worker.sync_loop.stop()
        eventually(lambda: leader.refused.count("goodbye") > 3)
        del leader.refuses["goodbye"]

    assert len(leader.goodbyes()) == 1


def test_a_goodbye_that_nobody_hears_takes_no_longer_than_its_limit(
    leader: Leader, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sync_loop, "GOODBYE_TIMEOUT_S", 0.5)
    with at_work(leader, tmp_path):
        eventually(leader.syncs)
        leader.refuses["goodbye"] = (503, "gone")

    assert 0 < leader.refused.count("goodbye") < 10  # the pauses grow, and at_work saw it end


def test_a_task_whose_thread_can_not_be_started_has_failed_and_the_host_goes_on(
    leader: Leader, worker: Worker, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_thread(_: Execution) -> None:
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patched:
        patched.setattr(Execution, "start", no_thread)
        leader.give = [assignment()]
        eventually(lambda: leader.ends() == [(FIRST, "FAILED")])

    ends = [report for sync in leader.syncs() for report in sync.reports]
    assert isinstance(ends[0], TaskEnded)
    assert ends[0].retry
    assert ends[0].error == "RuntimeError: can't start new thread"
    given(leader, worker, SECOND)


def test_an_execution_is_started_without_asking_spark(leader: Leader, worker: Worker) -> None:
    """pyspark's own thread asks the JVM, which may be dead or paused, where it is started."""
    given(leader, worker, FIRST)

    [thread] = [thread for thread in threading.enumerate() if thread.name == "t.1"]
    assert type(thread) is threading.Thread


def test_a_stop_reaches_an_attempt_that_waits_for_an_older_one(
    leader: Leader, worker: Worker
) -> None:
    worker.work.deaf.set()
    given(leader, worker, FIRST)
    leader.give = [assignment(attempt=2)]
    held(leader, SECOND)
    leader.stop = [SECOND]

    eventually(lambda: leader.ends() == [(SECOND, "CANCELED")])
    assert worker.work.started == ["t.1"]


def test_a_third_attempt_waits_for_the_first_also_when_the_second_was_stopped(
    leader: Leader, worker: Worker
) -> None:
    worker.work.deaf.set()
    given(leader, worker, FIRST)
    leader.give = [assignment(attempt=2)]
    held(leader, SECOND)
    leader.stop, leader.give = [SECOND], [assignment(attempt=3)]
    held(leader, THIRD)
    eventually(lambda: leader.ends() == [(SECOND, "CANCELED")])
    leader.rounds(3)
    assert worker.work.started == ["t.1"]

    worker.work.deaf.clear()

    eventually(lambda: worker.work.started == ["t.1", "t.3"])
    assert worker.work.overlaps == 0
