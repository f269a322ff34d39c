"""A task that is deployed again: active, it goes on; ended, its end is said again (D1, D2, D6)."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from headrace.model.task import Claim, Lane, TaskKind
from headrace.protocol.messages import Acknowledged, Assignment, TaskEnded
from headrace.worker import outbox as outbox_module
from headrace.worker.outbox import Outbox
from tests.worker.leader import Leader, Worker, assignment, eventually, given

FIRST, SECOND = Claim("t", 1), Claim("t", 2)
AGAIN = "task deployed again"


@pytest.fixture
def outbox(tmp_path: Path) -> Iterator[Outbox]:
    made = Outbox(tmp_path / "w1", posted=lambda: None)
    yield made
    made.close()


def deployment(task: str, attempt: int = 1, *, job: str = "job-1") -> Assignment:
    """A pipeline at (job, 1, 1)."""
    return Assignment(
        claim=Claim(task, attempt),
        kind=TaskKind.PIPELINE,
        lane=Lane.SLOT,
        payload={"job": job, "pipeline": {"number": 1}},
    )


def given_pipeline(leader: Leader, worker: Worker, made: Assignment) -> None:
    leader.give = [made]
    eventually(lambda: made.claim.execution in worker.work.started)


def heard(leader: Leader) -> None:
    """Until the worker has heard all that is to be given, and answered to it."""
    eventually(lambda: not leader.give)
    leader.rounds(2)


def said_ends(leader: Leader) -> list[TaskEnded]:
    """Each end by its number: the same one twice in a row is one that was not acknowledged."""
    found = {r.seq: r for s in leader.syncs() for r in s.reports if isinstance(r, TaskEnded)}
    return list(found.values())


def lines(caplog: pytest.LogCaptureFixture) -> list[logging.LogRecord]:
    return [record for record in caplog.records if record.getMessage().startswith(AGAIN)]


@pytest.mark.req("D1")
def test_an_active_task_deployed_again_by_leader_after_leader_is_not_touched(
    leader: Leader, worker: Worker
) -> None:
    given_pipeline(leader, worker, deployment("t"))
    threads = {thread for thread in threading.enumerate() if thread.name == "t.1"}
    for term in (6, 7, 8):
        leader.term, leader.number = term, 0
        leader.give = [deployment("t"), deployment("t")]
        heard(leader)
        assert [held.claim for held in leader.syncs()[-1].holds] == [FIRST], "said with success"

    assert worker.work.started == ["t.1"]
    assert worker.work.cancelled == []
    assert {t for t in threading.enumerate() if t.name == "t.1"} == threads
    assert leader.ends() == []
    worker.work.may_end.set()
    eventually(lambda: leader.ends() == [(FIRST, "SUCCESS")])


@pytest.mark.req("D2")
def test_a_location_that_has_ended_is_deployed_afresh(leader: Leader, worker: Worker) -> None:
    worker.work.may_end.set()
    given(leader, worker, FIRST)
    eventually(lambda: leader.ends() == [(FIRST, "SUCCESS")])

    given(leader, worker, SECOND)

    eventually(lambda: leader.ends() == [(FIRST, "SUCCESS"), (SECOND, "SUCCESS")])
    assert worker.work.started == ["t.1", "t.2"]


@pytest.mark.req("D2")
def test_an_execution_that_has_ended_is_not_run_again_and_its_end_is_said_again(
    leader: Leader, worker: Worker
) -> None:
    worker.work.may_end.set()
    given(leader, worker, FIRST)
    eventually(lambda: leader.ends() == [(FIRST, "SUCCESS")])
    leader.rounds(2)
    assert leader.syncs()[-1].reports == (), "it was acknowledged"

    # This leader's store was restored from before the end: it gives the same claim once more.
    leader.term, leader.number = 6, 0
    leader.give = [assignment(), assignment()]

    eventually(lambda: len(said_ends(leader)) == 2)
    heard(leader)
    first, again = said_ends(leader)
    assert again == first.model_copy(update={"seq": again.seq})
    assert again.result == {"done": "t.1"}
    assert worker.work.started == ["t.1"]


@pytest.mark.req("D2")
def test_an_end_that_nobody_has_acknowledged_is_not_said_twice_at_once(
    leader: Leader, worker: Worker
) -> None:
    leader.acknowledges = False
    worker.work.may_end.set()
    given(leader, worker, FIRST)
    eventually(lambda: leader.ends() == [(FIRST, "SUCCESS")])

    leader.give = [assignment()]
    heard(leader)

    assert len(said_ends(leader)) == 1
    assert worker.work.started == ["t.1"]


@pytest.mark.req("D2")
def test_an_execution_stopped_without_a_word_has_an_end_when_it_is_asked_for(
    leader: Leader, worker: Worker
) -> None:
    given(leader, worker, FIRST)
    leader.registered = False
    eventually(lambda: leader.registers() == 2)
    eventually(lambda: not worker.work.running)
    leader.rounds(2)
    assert leader.ends() == []

    leader.give = [assignment()]

    eventually(lambda: leader.ends() == [(FIRST, "CANCELED")])
    [end] = said_ends(leader)
    assert end.error is not None
    assert "did not know this worker" in end.error
    assert worker.work.started == ["t.1"]


@pytest.mark.req("D2")
def test_a_new_execution_at_a_location_stops_the_one_of_an_earlier_task_first(
    leader: Leader, worker: Worker
) -> None:
    """A restored job has new tasks; what is left of the old one at its place must go first."""
    worker.work.deaf.set()
    given_pipeline(leader, worker, deployment("old"))
    leader.give = [deployment("new"), deployment("elsewhere", job="job-2")]
    eventually(lambda: "elsewhere.1" in worker.work.started)
    leader.rounds(3)
    assert "new.1" not in worker.work.started
    eventually(lambda: set(worker.work.cancelled) == {"old.1"})

    worker.work.deaf.clear()

    eventually(lambda: "new.1" in worker.work.started)
    assert leader.ends() == [(Claim("old", 1), "CANCELED")]


@pytest.mark.req("D2")
def test_deploys_and_ends_in_the_same_instant_start_once_and_end_once(
    leader: Leader, worker: Worker
) -> None:
    """Fifty tasks that end at once, each deployed again at the moment at which it ends."""
    worker.work.may_end.set()
    claims = [Claim(f"t{n:02}", 1) for n in range(50)]
    for claim in claims:
        leader.give = [assignment(claim.task), assignment(claim.task)]
        eventually(lambda claim=claim: claim.execution in worker.work.started)
        leader.give = [assignment(claim.task)]
    eventually(lambda: {claim for claim, _ in leader.ends()} == set(claims))
    heard(leader)

    assert sorted(worker.work.started) == [claim.execution for claim in claims]
    assert sorted(leader.ends()) == [(claim, "SUCCESS") for claim in claims]
    assert leader.syncs()[-1].holds == ()


@pytest.mark.req("D2")
def test_the_ends_that_are_remembered_have_a_limit(
    outbox: Outbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(outbox_module, "ENDS_REMEMBERED_MAX", 3)
    for number in range(10):
        claim = Claim("t", number)
        outbox.post(
            lambda seq, claim=claim: TaskEnded(seq=seq, claim=claim, outcome="FAILED", error="x")
        )
    taken = [Acknowledged(seq=report.seq, held=True) for report in outbox.pending(100)]
    outbox.acknowledge(taken)

    outbox.report_end_again(Claim("t", 9))
    outbox.report_end_again(Claim("t", 0))

    kept, forgotten = outbox.pending(100)
    assert isinstance(kept, TaskEnded)
    assert isinstance(forgotten, TaskEnded)
    assert (kept.outcome, kept.error) == ("FAILED", "x")
    assert forgotten.outcome == "CANCELED"


@pytest.mark.req("D6")
def test_a_deploy_said_ten_times_is_one_line_that_names_all(
    leader: Leader, worker: Worker, caplog: pytest.LogCaptureFixture
) -> None:
    given_pipeline(leader, worker, deployment("t"))
    assert lines(caplog) == []
    for term in (6, 7):
        leader.term, leader.number = term, 0
        leader.give = [deployment("t")] * 10
        heard(leader)

    first, second = lines(caplog)
    assert first.levelno == second.levelno == logging.WARNING
    facts = vars(first)
    assert (facts["job"], facts["pipeline"], facts["task_group"]) == ("job-1", 1, 1)
    assert (facts["execution"], facts["worker"]) == ("t.1", "w1")
    assert [vars(line)["term"] for line in (first, second)] == [6, 7]
