"""How a Deployment does: why its pod does not run is told, and no answer is no answer."""

from __future__ import annotations

from pathlib import Path

import pytest
from urllib3.exceptions import MaxRetryError

from headrace.containers.container import ContainerSetting, LaunchState
from headrace.containers.kubernetes.deployment import KubernetesDeployments
from headrace.containers.kubernetes.manifest import Json
from headrace.errors import Unavailable
from tests.containers.kubernetes.fake_kubernetes import FakeKubernetes, refusal
from tests.containers.launches import launch_of


def given(api: FakeKubernetes) -> KubernetesDeployments:
    return KubernetesDeployments(ContainerSetting("k8s", {"image": "i"}, "f:1", Path()), api)


def said_of(status: Json, deployment: Json | None = None) -> str:
    """What is said of a pod in that status."""
    api, launch = FakeKubernetes(), launch_of()
    container = given(api)
    container.start(launch)
    if deployment is None:
        api.pod_of("headrace-r1-1")["status"] = status
    else:
        api.pods.clear()
        api.deployments["default", "headrace-r1-1"]["status"] = deployment
    found = container.status(launch)
    assert found.state is LaunchState.RUNNING, "the cluster goes on trying"
    return found.said


def test_a_pod_that_crashes_again_and_again_is_told_with_its_last_log() -> None:
    api, launch = FakeKubernetes(), launch_of()
    container = given(api)
    container.start(launch)
    pod = api.pod_of("headrace-r1-1")
    pod["status"]["containerStatuses"][0] |= {
        "restartCount": 4,
        "state": {"waiting": {"reason": "CrashLoopBackOff", "message": "back-off 40s"}},
        "lastState": {"terminated": {"exitCode": 137, "reason": "OOMKilled"}},
    }
    api.logs[pod["metadata"]["name"], True] = "one\ntwo\nthree"

    status = container.status(launch)

    assert status.state is LaunchState.RUNNING, "the cluster goes on trying"
    assert "headrace waits: CrashLoopBackOff back-off 40s" in status.said
    assert "ended with code 137 (OOMKilled), started again 4 times" in status.said
    assert container.logs(launch, lines=2) == ["two", "three"]


@pytest.mark.parametrize("where", ["containerStatuses", "initContainerStatuses"])
def test_an_image_that_can_not_be_had_is_told(where: str) -> None:
    waiting = {"reason": "ImagePullBackOff", "message": 'Back-off pulling image "i"'}

    said = said_of({"phase": "Pending", where: [{"name": "c", "state": {"waiting": waiting}}]})

    assert said.endswith('is Pending; c waits: ImagePullBackOff Back-off pulling image "i"')


def test_a_pod_that_no_node_has_room_for_is_told() -> None:
    message = "0/3 nodes are available: 3 Insufficient memory."
    conditions = [
        {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": message},
        {"type": "Initialized", "status": "True"},
        {"type": "Ready", "status": "False", "reason": "ContainersNotReady", "message": "not"},
    ]

    said = said_of({"phase": "Pending", "conditions": conditions})

    assert said.endswith(f"is Pending; no node takes it: Unschedulable {message}")


def test_a_pod_that_its_node_put_out_is_told() -> None:
    said = said_of({"phase": "Failed", "reason": "Evicted", "message": "low on memory"})

    assert said.endswith("is Failed: Evicted low on memory")


def test_why_there_is_no_pod_is_told() -> None:
    failure = {"type": "ReplicaFailure", "status": "True", "reason": "FailedCreate"}
    progress = {"type": "Progressing", "status": "True", "reason": "ReplicaSetUpdated"}

    told = said_of({}, {"conditions": [progress, {**failure, "message": "exceeded quota: q"}]})

    assert told == "it has no pod yet: FailedCreate exceeded quota: q"
    assert said_of({}, {"conditions": [progress]}) == "it has no pod yet"
    assert said_of({}, {}) == "it has no pod yet"


@pytest.mark.parametrize(
    ("down", "told"),
    [
        (refusal(403, "Forbidden", "not you"), r"refused with 403: not you; .*RBAC"),
        (refusal(503, "ServiceUnavailable", "etcd is away"), "etcd is away"),
        (MaxRetryError(None, "/apis", OSError("no route")), "no route"),  # pyright: ignore[reportArgumentType]
    ],
    ids=["forbidden", "unavailable", "no answer"],
)
def test_a_cluster_that_could_not_be_asked_says_nothing_about_the_launch(
    down: Exception, told: str
) -> None:
    api, launch = FakeKubernetes(), launch_of()
    container = given(api)
    container.start(launch)
    api.down = down

    with pytest.raises(Unavailable, match=f"^container 'k8s' could not ask for resource.*{told}"):
        container.status(launch)

    api.down = None
    assert container.status(launch).state is LaunchState.RUNNING
