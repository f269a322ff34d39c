"""Workers that died come back, within bounds, started by one leader at a time (R1 to R8)."""

from __future__ import annotations

import logging

import pytest

from headrace.containers.container import Supports
from headrace.errors import HeadraceError
from headrace.model.groups import LaunchStep
from headrace.store.core.engine import reading, writing
from headrace.store.groups import resources
from headrace.store.tasks import workers
from headrace.store.tasks.schema import tasks as task_rows
from tests.coordinator.groups.group_harness import GRACE_S, GROUP, FakeContainer, GroupHarness, lost
from tests.coordinator.leader_harness import LeaderHarness


@pytest.mark.req("R1")
def test_a_resource_without_a_worker_is_started_again_after_its_grace_period(
    care: GroupHarness, place: FakeContainer
) -> None:
    lost(care)
    care.looks(seconds=GRACE_S - 10)
    assert place.started == [("r1", 1)]

    care.looks(seconds=20)

    assert place.started == [("r1", 1), ("r1", 2)]
    assert care.there().attempts == 1


@pytest.mark.req("R2")
def test_by_default_nothing_is_restarted_or_removed(
    desk: LeaderHarness, place: FakeContainer
) -> None:
    care = GroupHarness(desk, place, enabled=False)
    care.group()
    lost(care)

    care.looks(seconds=GRACE_S * 10, step_s=60)

    assert place.started == [("r1", 1)]
    assert care.there().attempts == 0


@pytest.mark.req("R2")
def test_a_slow_starter_is_not_started_twice(care: GroupHarness, place: FakeContainer) -> None:
    lost(care)
    care.looks(seconds=GRACE_S + 10)
    assert place.started[-1] == ("r1", 2)

    care.looks(seconds=GRACE_S - 30)
    care.register("r1", 2)
    care.looks(seconds=GRACE_S * 2, step_s=60)

    assert len(place.started) == 2
    assert place.stopped == [("r1", 1)], "what hangs must not go on beside its successor"


@pytest.mark.req("R2")
def test_attempts_start_again_at_0_once_the_worker_has_registered(
    care: GroupHarness, place: FakeContainer
) -> None:
    lost(care)
    care.looks(seconds=GRACE_S * 3)
    launch = care.there().launch
    assert care.there().attempts == launch - 1 > 1

    care.register("r1", launch)
    care.look()

    assert care.there().attempts == 0
    assert care.there().orphaned_since_ms is None


@pytest.mark.req("R2")
def test_counts_survive_a_change_of_leader(care: GroupHarness, place: FakeContainer) -> None:
    lost(care)
    care.looks(seconds=GRACE_S * 2 + 20)
    before = care.there()
    assert before.attempts == 2

    care.take_over()
    care.look()

    assert care.there() == before
    assert len(place.started) == 3


@pytest.mark.req("R3")
def test_after_all_its_attempts_it_is_removed(desk: LeaderHarness, place: FakeContainer) -> None:
    care = GroupHarness(desk, place, max_retries=2)
    care.group()
    lost(care)

    care.looks(seconds=GRACE_S * 4, step_s=20)

    assert care.read() is None
    assert place.started == [("r1", 1), ("r1", 2), ("r1", 3)]
    assert place.stopped[-1] == ("r1", 3), "whatever is left of it is ended"


@pytest.mark.req("R3")
def test_a_worker_row_that_is_left_goes_first(care: GroupHarness) -> None:
    lost(care)
    care.register("r1", 1, worker="left")
    with writing(care.store) as conn:
        resources.want_released(conn, "r1")

    care.look()
    care.look()

    assert care.read() is None
    with reading(care.store) as conn:
        assert not workers.is_registered(conn, "left")


@pytest.mark.req("R4")
def test_what_a_restart_found_out_is_kept_and_the_first_start_is_not_overwritten(
    care: GroupHarness, place: FakeContainer
) -> None:
    lost(care)
    first = care.there()
    assert first.properties == {"spark-conf.spark.x": "1", "pid": "1001"}

    place.found = {"application": "app-2"}
    care.looks(seconds=GRACE_S + 10)

    again = care.there()
    assert again.properties == {
        "spark-conf.spark.x": "1",
        "pid": "1002",
        "application": "app-2",
    }
    assert again.started_at_ms == first.started_at_ms
    assert again.launched_at_ms != first.launched_at_ms
    assert care.all() == [again], "alone, and listed by its group"


@pytest.mark.req("R4")
def test_a_start_that_raises_counts_as_an_attempt(care: GroupHarness, place: FakeContainer) -> None:
    lost(care)
    place.error = HeadraceError("no room on this machine")

    care.looks(seconds=GRACE_S + 10)

    found = care.there()
    assert (found.attempts, found.step) == (1, LaunchStep.FAILED)
    assert found.error == "no room on this machine"
    care.looks(seconds=GRACE_S - 30)
    assert care.there().attempts == 1, "its grace period counts from that start"


@pytest.mark.req("R4")
def test_a_resource_whose_worker_registers_between_check_and_removal_stays(
    desk: LeaderHarness, place: FakeContainer
) -> None:
    care = GroupHarness(desk, place, max_retries=1)
    care.group()
    lost(care)
    care.looks(seconds=GRACE_S + 10)
    desk.clock.advance(GRACE_S)

    care.register("r1", 2)
    care.look()
    care.look()

    assert care.there().attempts == 0
    assert ("r1", 2) not in place.stopped


@pytest.mark.req("R6")
def test_a_container_that_heals_itself_is_left_alone_and_told_once(
    desk: LeaderHarness, caplog: pytest.LogCaptureFixture
) -> None:
    place = FakeContainer(supports=Supports(restart=False))
    care = GroupHarness(desk, place, max_retries=1)
    care.group()
    lost(care)

    with caplog.at_level(logging.WARNING):
        care.looks(seconds=GRACE_S * 5, step_s=30)

    assert place.started == [("r1", 1)]
    assert (care.there().attempts, place.stopped) == (0, [])
    told = [r for r in caplog.records if r.getMessage() == "resource left alone"]
    assert len(told) == 1


@pytest.mark.req("R7")
def test_a_resource_of_a_container_that_is_gone_is_isolated_and_others_are_handled(
    care: GroupHarness, place: FakeContainer, caplog: pytest.LogCaptureFixture
) -> None:
    lost(care)
    care.resource("r0", container="gone")
    care.resource("r2", container="gone")

    care.looks(seconds=GRACE_S * 2, step_s=30)

    assert ("r1", 2) in place.started
    assert {care.there(name).attempts for name in ("r0", "r2")} == {0}
    told = [r for r in caplog.records if r.getMessage() == "resource left alone"]
    assert len(told) == 2


def test_how_the_worker_of_an_orphan_ended_is_told(care: GroupHarness) -> None:
    lost(care)

    care.looks(seconds=20)

    assert care.there().error == "exit code 137, Killed"


def test_a_released_resource_is_stopped_and_goes(care: GroupHarness, place: FakeContainer) -> None:
    care.resource()
    care.look()
    with writing(care.store) as conn:
        resources.want_released(conn, "r1")

    care.look()

    assert care.read() is None
    assert place.stopped == [("r1", 1)]


def test_a_worker_that_is_released_finishes_what_it_has(
    care: GroupHarness, place: FakeContainer
) -> None:
    care.resource()
    care.look()
    care.register("r1", 1, worker="w1")
    care.desk.plan_noops(1, group=GROUP)
    claim = care.desk.claimed("w1")
    with writing(care.store) as conn:
        resources.want_released(conn, "r1")
    care.look()
    care.look()
    assert place.stopped == []
    assert care.desk.sync("w1", holds=[claim]).assignments == ()

    care.desk.plan_noops(1, group=GROUP)
    assert care.desk.sync("w1", holds=[claim]).assignments == (), "nothing more is given to it"
    with writing(care.store) as conn:
        conn.execute(task_rows.delete())
    care.look()

    assert place.stopped == [("r1", 1)]
    assert care.read() is None


def test_a_start_that_goes_well_warns_of_nothing_and_a_worker_lost_later_does(
    care: GroupHarness, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO):
        care.resource("r1")
        care.look()
        care.register("r1", 1)
        care.looks(seconds=GRACE_S + 10)
    assert [r.getMessage() for r in caplog.records if r.levelno >= logging.WARNING] == []

    with caplog.at_level(logging.INFO):
        care.die("w-r1-1")
        care.look()
    warned = [r.getMessage() for r in caplog.records if r.levelno >= logging.WARNING]
    assert warned == ["resource has no worker"]
