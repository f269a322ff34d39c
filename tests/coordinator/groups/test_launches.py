"""One launch at a time, started by one leader at a time, whoever dies in between (R8)."""

from __future__ import annotations

import pytest

from headrace.coordinator.groups.snapshot import START_MAX_MS
from headrace.errors import LaunchTaken, Refused
from headrace.model.groups import LaunchStep
from headrace.seams import arm, disarm_all
from headrace.store.core.engine import writing
from headrace.store.groups import resources
from tests.coordinator.groups.group_harness import GRACE_S, FakeContainer, GroupHarness, lost


@pytest.mark.req("R8")
def test_a_leader_that_is_no_longer_trusted_starts_nothing(
    care: GroupHarness, place: FakeContainer
) -> None:
    care.resource()
    care.trusted = False

    care.look()

    assert place.asked == []
    assert care.there().step is LaunchStep.INTENDED


class Died(BaseException):
    """The leader is killed."""


@pytest.mark.req("R8")
@pytest.mark.parametrize("at", ["before launch", "launched, before it is recorded"])
def test_a_leader_killed_between_intent_and_record_leaves_one_worker(
    care: GroupHarness, place: FakeContainer, at: str
) -> None:
    care.resource()

    def die() -> None:
        raise Died

    arm(at, die)
    care.decide()
    care.launching.run()
    with pytest.raises(Died):
        care.launching.wait(120)
    assert care.there().step is LaunchStep.INTENDED
    disarm_all()

    care.take_over()
    care.look()

    assert place.started == [("r1", 1)]
    assert care.there().step is LaunchStep.STARTED


@pytest.mark.req("R8")
def test_an_answer_for_an_older_launch_changes_nothing(care: GroupHarness) -> None:
    care.resource()
    care.look()
    old = care.there()
    with writing(care.store) as conn:
        resources.intend(conn, old, attempts=1, now_ms=5)

    with writing(care.store) as conn:
        assert not resources.started(conn, old, {"pid": "7"}, now_ms=6)

    assert care.there().properties == old.properties


@pytest.mark.req("R8", "S1")
def test_a_start_that_is_answered_twice_is_recorded_once_and_goes_on(
    care: GroupHarness, place: FakeContainer
) -> None:
    care.resource()

    def answered_before() -> None:
        with writing(care.store) as conn:
            assert resources.started(conn, care.there(), {"pid": "7"}, now_ms=6)

    arm("launched, before it is recorded", answered_before)
    care.look()
    disarm_all()

    assert (care.there().step, care.there().properties["pid"]) == (LaunchStep.STARTED, "7")
    assert place.stopped == []


@pytest.mark.req("R8")
def test_a_worker_of_an_older_launch_is_refused(care: GroupHarness) -> None:
    lost(care)
    care.looks(seconds=GRACE_S + 10)
    assert care.there().launch == 2

    with pytest.raises(Refused, match="launch 2 is the current one"):
        care.register("r1", 1)
    care.register("r1", 2)
    with pytest.raises(LaunchTaken, match="worker w-r1-2 is registered for that"):
        care.register("r1", 2, worker="a second one")
    care.die("w-r1-2")
    care.register("r1", 2, worker="a second one")


@pytest.mark.req("R2", "R4")
def test_a_start_that_waits_for_its_turn_is_no_attempt_that_failed(
    care: GroupHarness, place: FakeContainer
) -> None:
    lost(care)
    care.desk.clock.advance(GRACE_S)
    care.decide()
    for _ in range(2):
        care.desk.clock.advance(GRACE_S / 2)
        care.decide()
    assert (care.there().launch, care.there().attempts) == (2, 1)

    care.ask()
    care.looks(seconds=GRACE_S - 10)

    assert place.started[-1] == ("r1", 2), "its grace period counts from its start"
    care.looks(seconds=20)
    assert place.started[-1] == ("r1", 3)


@pytest.mark.req("R1")
def test_a_start_that_its_container_never_answers_is_replaced(care: GroupHarness) -> None:
    lost(care)
    care.desk.clock.advance(GRACE_S)
    care.decide()

    care.desk.clock.advance(START_MAX_MS / 1000 + GRACE_S)
    care.decide()

    assert (care.there().launch, care.there().attempts) == (3, 2)
