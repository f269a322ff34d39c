"""A group that is removed takes its workers along, also those that are well."""

from __future__ import annotations

import re
from dataclasses import dataclass
from logging import LogRecord
from pathlib import Path

import pytest

from headrace.api.group_views import resource_view
from headrace.containers.container import ContainerSetting, Launch, Launched, Supports, Withdrawn
from headrace.containers.kubernetes.deployment import KubernetesDeployments
from headrace.coordinator.context import CoordinatorSettings, GroupOptions
from headrace.coordinator.groups.commands import GroupCommands
from headrace.coordinator.groups.container_calls import ASK_PAUSE_S
from headrace.errors import BadSetting, LaunchOver, Unavailable
from headrace.model.groups import LaunchStep
from headrace.store.core.engine import reading, writing
from headrace.store.groups import groups, resources
from headrace.store.tasks import claims, workers
from tests.containers.kubernetes.fake_kubernetes import FakeKubernetes, refusal
from tests.coordinator.groups.group_harness import GRACE_S, GROUP, FakeContainer, GroupHarness
from tests.coordinator.leader_harness import LeaderHarness
from tests.stores import given_resource


@pytest.mark.req("R3")
def test_a_removed_group_ends_workers_that_are_registered(
    care: GroupHarness, place: FakeContainer
) -> None:
    care.resource()
    care.look()
    care.register("r1", 1)
    care.look()
    care.group(wanted_removed=1)

    for _ in range(3):  # released and drained, stopped, forgotten
        care.look()

    assert place.stopped == [("r1", 1)]
    with reading(care.store) as conn:
        assert groups.get(conn, GROUP) is None


@pytest.mark.parametrize("error", [Unavailable, OSError])
def test_a_stop_that_breaks_off_is_said_again_after_a_pause(
    care: GroupHarness,
    place: FakeContainer,
    monkeypatch: pytest.MonkeyPatch,
    error: type[Exception],
) -> None:
    asked: list[Launch] = []

    def broken(launch: Launch, *, grace_s: float) -> None:
        del grace_s
        asked.append(launch)
        raise error("no answer")

    care.resource()
    care.look()
    with monkeypatch.context() as away:
        away.setattr(FakeContainer, "stop", staticmethod(broken))
        care.group(wanted_removed=1)
        care.looks(seconds=ASK_PAUSE_S * 2, step_s=1)

    assert 2 <= len(asked) <= 3
    care.looks(seconds=ASK_PAUSE_S * 2, step_s=1)
    assert place.stopped == [("r1", 1)]


class Forbids(FakeKubernetes):
    """Whose owner did not give us the right to delete."""

    def delete_namespaced_deployment(self, name: str, namespace: str) -> None:
        raise refusal(403, "Forbidden", f"{name} in {namespace} may not be deleted by you")


def said_of(care: GroupHarness, caplog: pytest.LogCaptureFixture) -> tuple[str, list[LogRecord]]:
    """What comes next, as it is shown, and the warnings about stops."""
    options = CoordinatorSettings(
        store_url="", address="", groups=GroupOptions(containers=care.places)
    )
    with reading(care.store) as conn:
        told = resource_view(conn, care.there(), options, now_ms=care.desk.clock.wall_ms())
    return told.next, [each for each in caplog.records if each.getMessage() == "stop failed"]


@pytest.mark.req("R3")
@pytest.mark.parametrize("registered", [True, False])
def test_a_stop_that_is_refused_is_told_where_people_look_and_logged_once(
    desk: LeaderHarness, caplog: pytest.LogCaptureFixture, *, registered: bool
) -> None:
    setting = ContainerSetting("pods", {"image": "i"}, "c:1", Path("home"), None)
    care = GroupHarness(desk)
    care.places["pods"] = KubernetesDeployments(setting, Forbids())
    care.begin()
    care.group()
    care.resource(container="pods")
    care.look()
    if registered:
        care.register("r1", 1)
    care.group(wanted_removed=1)

    care.looks(seconds=ASK_PAUSE_S * 5)

    told, logged = said_of(care, caplog)
    assert re.search(r"could not be stopped: .* may not be deleted by you; .*\(RBAC\)", told)
    assert told.endswith("; tried again in a moment")
    assert [(each.levelname, each.exc_info) for each in logged] == [("WARNING", None)]


@pytest.mark.req("R3")
def test_how_a_worker_ended_is_not_taken_for_a_stop_that_was_refused(
    care: GroupHarness, caplog: pytest.LogCaptureFixture
) -> None:
    care.resource()
    care.look()
    with writing(care.store) as conn:
        given_resource(
            conn, "r1", error="exit code 137, Killed", error_kind="ENDED", wanted_released=1
        )

    told, _ = said_of(care, caplog)

    assert told == "container 'local' stops it, then its record goes"


def holds_one(*_: object) -> list[str]:
    return ["a task"]


def test_a_resource_whose_container_is_gone_is_released_once_its_worker_holds_nothing(
    desk: LeaderHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    care = GroupHarness(desk, FakeContainer("local"), FakeContainer("other"))
    care.group()
    care.resource(container="other")
    care.look()
    care.register("r1", 1)
    del care.places["other"]
    care.begin()
    with writing(care.store) as conn:
        resources.want_released(conn, "r1")
    with monkeypatch.context() as busy:
        busy.setattr(claims, "count_held_by", holds_one)
        care.looks(seconds=60)
        with reading(care.store) as conn:
            assert workers.of_resource(conn, "r1") is not None

    care.look()

    assert care.read() is None


@pytest.mark.req("R6")
def test_a_first_start_that_fails_in_a_container_that_heals_itself_is_asked_again(
    desk: LeaderHarness,
) -> None:
    place = FakeContainer(supports=Supports(restart=False), error=Unavailable("503"))
    care = GroupHarness(desk, place)
    care.group()
    care.resource()
    care.looks(seconds=GRACE_S * 2)
    assert (care.there().error, care.there().attempts, place.started) == ("503", 0, [])

    place.error = None
    care.looks(seconds=ASK_PAUSE_S * 2)

    assert place.started == [("r1", 1)]
    assert care.there().step is LaunchStep.STARTED


@dataclass(slots=True)
class Withdraws(FakeContainer):
    """The worker of the first launch does not begin in time, so that it never may any more."""

    def start(self, launch: Launch) -> Launched:
        if launch.number > 1:
            return FakeContainer.start(self, launch)
        self.asked.append(launch)
        if len(self.asked) == 1:
            raise Unavailable("it had not begun after 60 s")
        raise Withdrawn("launch 1 was stopped before its worker had begun")


@pytest.mark.req("R4", "R6")
def test_a_first_launch_that_was_withdrawn_is_followed_by_another_and_is_no_attempt(
    desk: LeaderHarness,
) -> None:
    place = Withdraws(supports=Supports(restart=False))
    care = GroupHarness(desk, place)
    care.group()
    care.resource()
    care.look()
    assert care.there().error == "it had not begun after 60 s"

    care.looks(seconds=ASK_PAUSE_S * 3)

    assert place.started == [("r1", 2)]
    assert (care.there().attempts, care.there().step) == (0, LaunchStep.STARTED)


@pytest.mark.req("R4")
def test_where_we_start_again_a_launch_that_was_withdrawn_is_an_attempt(
    desk: LeaderHarness, place: FakeContainer
) -> None:
    care = GroupHarness(desk, place)
    place.error = Withdrawn("launch 1 was stopped before its worker had begun")
    care.group()
    care.resource()

    care.looks(seconds=ASK_PAUSE_S * 3)

    assert (care.there().launch, care.there().step) == (1, LaunchStep.FAILED)


def test_a_worker_of_another_group_is_refused(care: GroupHarness) -> None:
    care.resource()
    care.look()

    with pytest.raises(LaunchOver, match="of group 'g', not 'other'"):
        care.register("r1", 1, group="other")


def test_a_resource_is_named_as_containers_can_name_it(care: GroupHarness) -> None:
    commands = GroupCommands(care.store, care.desk.clock, care.desk.ids, containers=care.places)

    with pytest.raises(BadSetting, match="1 to 63 letters"):
        commands.scale(GROUP, threads=1, key="r" * 64)
