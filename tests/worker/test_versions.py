"""The version that a worker speaks, and what it does about tasks that it does not know."""

from __future__ import annotations

from pathlib import Path

import pytest

from headrace.errors import ProtocolRefused
from headrace.model.task import Claim, Lane
from headrace.protocol.messages import PROTOCOL_VERSION, Assignment, Held, TaskGivenBack
from headrace.protocol.versions import SPOKEN
from headrace.worker.execution import Execution, NotForThisWorker
from headrace.worker.spoken_version import SpokenVersion
from tests.worker.leader import Leader, Worker, assignment, eventually

CLAIM = Claim("t", 1)
# As a coordinator of protocol 4 says it.
REFUSED_BY_4 = (
    "this coordinator speaks protocol version 4, the worker 5; run the same release of headrace "
    "on both"
)


def given_back(leader: Leader) -> list[TaskGivenBack]:
    found = {
        report.seq: report
        for said in leader.syncs()
        for report in said.reports
        if isinstance(report, TaskGivenBack)
    }
    return list(found.values())


@pytest.mark.parametrize(("kind", "lane"), [("BREW", "SLOT"), ("NOOP", "TAP")])
def test_a_task_of_an_unknown_kind_or_lane_is_given_back_with_the_reason(
    leader: Leader, worker: Worker, kind: str, lane: str
) -> None:
    leader.give = [
        Assignment(claim=CLAIM, kind=kind, lane=lane, payload={}),
        assignment("known"),
    ]

    eventually(lambda: given_back(leader))
    eventually(lambda: worker.work.started)

    [report] = given_back(leader)
    assert (report.claim, report.whole_kind) == (CLAIM, True)
    assert f"a {kind} task in lane {lane}" in report.reason
    assert worker.work.started == ["known.1"]
    assert leader.ends() == []


def test_what_is_given_back_is_held_until_that_is_acknowledged_and_said_again_when_asked(
    leader: Leader, worker: Worker
) -> None:
    leader.acknowledges = False
    unknown = Assignment(claim=CLAIM, kind="BREW", lane=Lane.SLOT, payload={})
    leader.give = [unknown]
    eventually(lambda: given_back(leader))
    leader.rounds()
    assert Held(claim=CLAIM) in leader.syncs()[-1].holds

    leader.acknowledges = True
    leader.rounds()
    assert leader.syncs()[-1].holds == ()
    leader.give = [unknown]  # a leader that forgot

    eventually(lambda: len(given_back(leader)) == 2)
    assert worker.errors == []


def test_a_run_may_find_out_that_the_task_is_not_for_this_worker(
    leader: Leader, worker: Worker
) -> None:
    def refuse(execution: Execution) -> None:
        raise NotForThisWorker(f"no jar for {execution.id}")

    worker.runs |= dict.fromkeys(worker.runs, refuse)
    leader.give = [assignment()]

    eventually(lambda: given_back(leader))

    [report] = given_back(leader)
    assert (report.reason, report.whole_kind) == ("no jar for t.1", False)


def test_a_coordinator_of_protocol_4_ends_a_worker_that_does_not_speak_it(
    leader: Leader, tmp_path: Path
) -> None:
    leader.refuses["register"] = (422, REFUSED_BY_4)
    late = Worker(leader, tmp_path)

    late.start()
    eventually(lambda: late.errors)

    [error] = late.errors
    assert isinstance(error, ProtocolRefused)
    assert str(error).startswith(
        f"this worker speaks protocol {PROTOCOL_VERSION}, and the coordinator 4: upgrade the "
        "coordinators first, all of them, then the workers. What it was told: "
    )
    assert REFUSED_BY_4 in str(error)


def test_a_worker_that_is_too_old_ends_with_the_way_out() -> None:
    spoken = SpokenVersion(SPOKEN)
    newer = ProtocolRefused("no", oldest=SPOKEN.newest + 1, newest=SPOKEN.newest + 2)

    with pytest.raises(ProtocolRefused, match="which is too old: upgrade it"):
        spoken.agree(newer)


def test_a_refusal_of_the_version_that_was_agreed_upon_ends_it() -> None:
    """Else the two would go on refusing each other for ever."""
    spoken = SpokenVersion(SPOKEN)
    same = ProtocolRefused("no", oldest=SPOKEN.oldest, newest=SPOKEN.newest)

    with pytest.raises(ProtocolRefused):
        spoken.agree(same)
