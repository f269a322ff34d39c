"""The official client says over HTTP what the container means."""

from __future__ import annotations

from pathlib import Path

import pytest

from headrace.containers.container import ContainerSetting, LaunchState
from headrace.containers.kubernetes.deployment import KubernetesDeployments
from headrace.errors import Refused
from tests.containers.kubernetes.fake_kubernetes import FakeKubernetes, refusal
from tests.containers.kubernetes.server import served
from tests.containers.launches import launch_of


def given(kube_config: Path) -> KubernetesDeployments:
    properties = {"image": "i", "kube-config-path": str(kube_config)}
    return KubernetesDeployments(ContainerSetting("k8s", properties, "f:1", Path()))


# The client leaves the sockets of its pool to the garbage collector.
@pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning")
def test_a_launch_from_its_start_to_its_end(tmp_path: Path) -> None:
    api, launch = FakeKubernetes(), launch_of()
    with served(api, tmp_path) as kube_config:
        container = given(kube_config)
        assert container.start(launch) == container.start(launch)
        assert len(api.deployments) == 1

        status = container.status(launch)
        assert (status.state, status.said) == (
            LaunchState.RUNNING,
            "pod headrace-r1-1-5d4f8-x2x4z is Running",
        )
        assert container.logs(launch, lines=2) == []
        api.logs["headrace-r1-1-5d4f8-x2x4z", False] = "one\ntwo ä\nthree"
        assert container.logs(launch, lines=2) == ["two ä", "three"]

        container.stop(launch, grace_s=5)
        container.stop(launch, grace_s=5)
        assert not api.deployments
        assert container.status(launch).state is LaunchState.UNKNOWN
        api.down = refusal(403, "Forbidden", "not you")
        with pytest.raises(Refused, match=r"403: not you; .*RBAC"):
            container.start(launch)
