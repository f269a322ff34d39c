"""What is asked of containers: one thing about a resource at a time, and no place holds up another.

A start can't be fenced: whatever is said beside it may come before it, and leave a worker that
nobody knows of (R8). And a start that nobody was asked for is no attempt (R4).
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from sqlalchemy import Connection

from headrace.containers.container import ContainerSetting
from headrace.containers.kubernetes.deployment import KubernetesDeployments
from headrace.containers.kubernetes.manifest import Json
from headrace.coordinator.groups.container_calls import ANSWER_MAX_S, CallKind
from headrace.coordinator.groups.launcher import LANDS_MAX_S, ContainerWork
from headrace.errors import Refused, Unavailable
from headrace.model.groups import LaunchStep
from headrace.store.core.engine import writing
from headrace.store.groups import resources
from headrace.store.groups.resources import Resource
from tests.cli.machine import wait_until
from tests.containers.kubernetes.fake_kubernetes import FakeKubernetes
from tests.coordinator.groups.group_harness import WAIT_S, FakeContainer, GroupHarness
from tests.coordinator.leader_harness import LeaderHarness

BESIDE_S = 0.5  # a question beside another is answered by then


class SlowCluster(FakeKubernetes):
    """Whose creations take until the gate is opened."""

    def __init__(self) -> None:
        super().__init__()
        self.gate, self.inside = threading.Event(), threading.Event()
        self.deletes = 0  # asked for

    def delete_namespaced_deployment(self, name: str, namespace: str) -> None:
        self.deletes += 1
        super().delete_namespaced_deployment(name, namespace)

    def create_namespaced_deployment(self, namespace: str, body: Json) -> Json:
        self.inside.set()
        assert self.gate.wait(WAIT_S), "the gate was never opened"
        return super().create_namespaced_deployment(namespace, body)


@pytest.fixture
def cluster() -> Iterator[SlowCluster]:
    made = SlowCluster()
    yield made
    made.gate.set()


@pytest.fixture
def pods(cluster: SlowCluster) -> KubernetesDeployments:
    setting = ContainerSetting("pods", {"image": "i"}, "c:1", Path("home"), None)
    return KubernetesDeployments(setting, cluster)


def starting(
    desk: LeaderHarness, cluster: SlowCluster, pods: KubernetesDeployments
) -> GroupHarness:
    """A leader whose start is under way."""
    care = GroupHarness(desk)
    care.places["pods"] = pods
    care.begin()
    care.group()
    care.look()  # what it finds at first may be asked for by the leader before
    care.resource(container="pods")
    care.decide()
    care.launching.run()
    assert cluster.inside.wait(WAIT_S)
    return care


def release(care: GroupHarness) -> None:
    with writing(care.store) as conn:
        resources.want_released(conn, "r1")


@pytest.mark.req("R8")
def test_a_release_while_its_start_is_under_way_leaves_nothing_without_a_record(
    desk: LeaderHarness, cluster: SlowCluster, pods: KubernetesDeployments
) -> None:
    care = starting(desk, cluster, pods)
    release(care)

    care.launching.run()
    with pytest.raises(TimeoutError):  # its start is all that is asked, and not answered
        care.launching.wait(BESIDE_S)
    assert cluster.deletes == 0
    cluster.gate.set()
    care.launching.wait(WAIT_S)
    care.looks(seconds=10, step_s=1)

    assert care.read() is None
    assert cluster.deployments == {}


@pytest.mark.req("R8")
def test_what_a_start_brings_up_after_it_was_given_up_is_ended(
    desk: LeaderHarness, cluster: SlowCluster, pods: KubernetesDeployments
) -> None:
    """A container that does not answer at all does not keep a resource for ever."""
    care = starting(desk, cluster, pods)
    release(care)
    desk.clock.advance(ANSWER_MAX_S + 1)
    care.launching.run()
    wait_until(lambda: care.read() is None, "it was stopped, and its record is gone")
    assert cluster.deployments == {}

    cluster.gate.set()

    wait_until(lambda: cluster.deletes == 2, "what came up late is deleted")
    assert cluster.deployments == {}


@pytest.mark.req("R8")
@pytest.mark.parametrize("released", [True, False])
def test_a_start_that_comes_up_when_another_leads_is_left_to_whoever_knows_of_it(
    desk: LeaderHarness, cluster: SlowCluster, pods: KubernetesDeployments, *, released: bool
) -> None:
    care = starting(desk, cluster, pods)
    former = care.launching
    care.take_over()
    if released:
        release(care)
        desk.clock.advance(1)
        with writing(care.store) as conn:  # as a successor does that was faster
            resources.drop(conn, care.there(), now_ms=desk.clock.wall_ms())

    cluster.gate.set()
    former.wait(WAIT_S)

    assert bool(cluster.deployments) is not released


@pytest.mark.req("R8")
def test_what_the_former_leader_may_have_asked_for_is_not_stopped_before_it_can_have_come_up(
    care: GroupHarness, place: FakeContainer
) -> None:
    care.resource()
    release(care)
    care.take_over()

    care.looks(seconds=LANDS_MAX_S - 10)
    assert (place.stopped, care.there().step) == ([], LaunchStep.INTENDED)
    care.looks(seconds=20)

    assert place.stopped == [("r1", 1)]
    assert care.read() is None


@pytest.mark.req("R8")
@pytest.mark.parametrize(("error", "comes_up"), [(Unavailable, True), (Refused, False)])
def test_a_start_that_broke_off_is_not_stopped_before_it_can_have_come_up(
    care: GroupHarness, place: FakeContainer, error: type[Exception], *, comes_up: bool
) -> None:
    care.look()
    care.resource()
    place.error = error("no answer")
    care.look()
    release(care)

    care.looks(seconds=LANDS_MAX_S - 10)
    assert (care.read() is not None) is comes_up
    care.looks(seconds=20)

    assert place.stopped == [("r1", 1)]
    assert care.read() is None


@pytest.mark.req("R8")
def test_a_stop_that_was_decided_before_its_start_broke_off_waits_for_what_may_come_up(
    desk: LeaderHarness, cluster: SlowCluster, pods: KubernetesDeployments
) -> None:
    care = starting(desk, cluster, pods)
    release(care)
    due = ContainerWork.calls_for

    def breaks_off_meanwhile(
        self: ContainerWork, conn: Connection, found: Sequence[Resource]
    ) -> list[tuple[Resource, CallKind]]:
        decided = due(self, conn, found)
        assert [what for _, what in decided] == [CallKind.STOP]
        self.note_unknown_start("r1")
        cluster.gate.set()
        care.launching.wait(WAIT_S)
        return decided

    def unheard(*_: object, **__: object) -> bool:
        return True

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(ContainerWork, "calls_for", breaks_off_meanwhile)
        patched.setattr(resources, "started", unheard)
        care.launching.run()
        care.launching.wait(WAIT_S)

    assert (cluster.deletes, care.read() is None) == (0, False)
    care.looks(seconds=LANDS_MAX_S + 10)
    assert (cluster.deployments, care.read()) == ({}, None)
