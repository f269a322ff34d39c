"""A worker in Kubernetes is a Deployment, made once, and healed by nobody but the cluster."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
from urllib3.exceptions import MaxRetryError

from headrace.containers.container import ContainerSetting, Launch, LaunchState
from headrace.containers.kubernetes.api import OfficialClient
from headrace.containers.kubernetes.deployment import KubernetesDeployments
from headrace.containers.kubernetes.manifest import Json, deployment_name
from headrace.errors import BadSetting, ExtraMissing, Refused, Unavailable
from tests.containers.kubernetes.fake_kubernetes import FakeKubernetes, refusal
from tests.containers.launches import TOKEN, launch_of

IMAGE = {"image": "registry.example/headrace:1", "token-secret": "headrace-token"}


def given(api: FakeKubernetes, **properties: str) -> KubernetesDeployments:
    made = ContainerSetting("k8s", {**IMAGE, **properties}, "containers.conf:3", Path(), TOKEN)
    return KubernetesDeployments(made, api)


def only_container(api: FakeKubernetes, launch: Launch) -> Json:
    spec = api.deployments["default", deployment_name(launch)]["spec"]
    assert spec["replicas"] == 1
    [container] = spec["template"]["spec"]["containers"]
    return container


def test_what_the_pod_is_told() -> None:
    api, launch = FakeKubernetes(), launch_of(2, **{"spark-conf.spark.sql.shuffle.partitions": "9"})
    container = given(
        api,
        **{
            "cpu.factor": "0.5",
            "imagePullSecrets": "a, b",
            "export.TZ": "UTC",
            "warehouse": "s3:w",
        },
    )
    container.start(launch)
    made = only_container(api, launch)
    pod = api.deployments["default", "headrace-r1-2"]["spec"]["template"]["spec"]

    line = [*made["command"], *made["args"]]
    assert line[:4] == ["headrace", "worker", "--coordinator", "http://a:7300,http://b:7300"]
    for name, value in {
        "--resource-id": "r1",
        "--launch": "2",
        "--slots": "3",
        "--group": "g1",
        "--spark-master": "local[3]",
        "--warehouse": "s3:w",
    }.items():
        assert line[line.index(name) + 1] == value
    assert "--launch-dir" not in line
    assert "spark.driver.memory=409m" in line  # 0.8 of what was asked for
    assert "spark.sql.shuffle.partitions=9" in line
    assert made["resources"]["limits"] == {"cpu": "1500m", "memory": "512Mi"}
    assert made["imagePullPolicy"] == "IfNotPresent"
    assert pod["imagePullSecrets"] == [{"name": "a"}, {"name": "b"}]
    assert {"name": "TZ", "value": "UTC"} in made["env"]


def test_the_token_comes_from_a_secret_and_stands_nowhere() -> None:
    api, launch = FakeKubernetes(), launch_of()
    given(api).start(launch)

    source = {"secretKeyRef": {"name": "headrace-token", "key": "token"}}
    assert {"name": "HEADRACE_TOKEN", "valueFrom": source} in only_container(api, launch)["env"]
    assert TOKEN not in json.dumps(list(api.deployments.values()))
    with pytest.raises(BadSetting, match="kubectl create secret generic headrace-token"):
        given(api, **{"token-secret": ""})


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("spark-conf.spark.hadoop.fs.s3a.secret.key", "x"),
        ("export.AWS_SECRET_ACCESS_KEY", "x"),
        ("export.AZURE_STORAGE_KEY", "x"),
        ("export.HEADRACE_TOKEN", "x"),
        ("spark-conf.spark.sql.catalog.c.uri", "jdbc:postgresql://u:x@db/y"),
        ("export.DATABASE_URL", "postgresql://db/y?password=x"),
        ("warehouse", "s3a://u:x@bucket/y"),
    ],
)
def test_a_secret_would_stand_in_the_deployment_and_is_refused(name: str, value: str) -> None:
    api = FakeKubernetes()
    told = f"property '{name}' holds a secret.* for all to read; .* from a Secret, in podTemplate"

    for asked in (
        lambda: given(api, **{name: value}),
        lambda: given(api).check("g", {name: value}, memory_mb=0),
        lambda: given(api).start(launch_of(1, **{name: value})),
    ):
        with pytest.raises(BadSetting, match=told):
            asked()
    assert not api.deployments


def test_memory_goes_by_threads_when_none_is_asked_for() -> None:
    api = FakeKubernetes()
    launch = Launch("r1", 1, "g1", 4, 0, ("http://a:7300",))
    given(api, memory="2048").start(launch)

    assert only_container(api, launch)["resources"]["requests"]["memory"] == "8192Mi"


def test_a_pod_template_is_the_ground_and_ours_lies_over_it(tmp_path: Path) -> None:
    template = tmp_path / "pod.yaml"
    template.write_text(
        """
        apiVersion: v1
        kind: PodTemplate
        template:
          metadata: {labels: {team: lake}}
          spec:
            nodeSelector: {disk: ssd}
            containers:
              - name: headrace
                image: ignored
                env: [{name: KEPT, value: "1"}]
                volumeMounts: [{name: v, mountPath: /v}]
              - name: sidecar
                image: s
        """
    )
    api, launch = FakeKubernetes(), launch_of()
    given(api, podTemplate=str(template), **{"export.A": "2"}).start(launch)

    pod = api.deployments["default", "headrace-r1-1"]["spec"]["template"]
    ours, sidecar = pod["spec"]["containers"]
    assert pod["metadata"]["labels"]["team"] == "lake"
    assert pod["spec"]["nodeSelector"] == {"disk": "ssd"}
    assert (ours["image"], sidecar["name"]) == (IMAGE["image"], "sidecar")
    assert [each["name"] for each in ours["env"]] == ["KEPT", "A", "HEADRACE_TOKEN"]
    assert ours["volumeMounts"] == [{"name": "v", "mountPath": "/v"}]


def test_stopped_it_is_gone_and_stopping_again_is_no_error() -> None:
    api, launch = FakeKubernetes(), launch_of()
    container = given(api)
    container.start(launch)
    assert container.status(launch).state is LaunchState.RUNNING

    container.stop(launch, grace_s=1)
    container.stop(launch, grace_s=1)

    assert not api.deployments
    assert not api.pods
    gone = container.status(launch)
    assert gone.state is LaunchState.UNKNOWN
    assert gone.said == "there is no Deployment headrace-r1-1 in namespace default"


def test_a_pod_that_has_not_begun_has_no_log() -> None:
    api, launch = FakeKubernetes(), launch_of()
    container = given(api)
    assert container.logs(launch, lines=5) == []
    container.start(launch)

    assert container.logs(launch, lines=5) == []


def test_a_name_that_somebody_else_took_is_told() -> None:
    api, launch = FakeKubernetes(), launch_of()
    given(api).start(launch)
    api.deployments["default", "headrace-r1-1"]["metadata"]["labels"] = {"app": "other"}

    with pytest.raises(Refused, match="exists and is not ours; delete or rename it"):
        given(api).start(launch)


def test_one_that_is_being_deleted_is_not_taken_for_started() -> None:
    api, launch = FakeKubernetes(), launch_of()
    container = given(api)
    container.start(launch)
    api.deployments["default", "headrace-r1-1"]["metadata"]["finalizers"] = ["somebody's"]
    container.stop(launch, grace_s=0)

    with pytest.raises(Unavailable, match="is being deleted"):
        container.start(launch)


@pytest.mark.parametrize(
    ("down", "raised", "told"),
    [
        (
            refusal(403, "Forbidden", "deployments.apps is forbidden: User x cannot create"),
            Refused,
            r"refused with 403: deployments.apps is forbidden: .*; give its user .* \(RBAC\)",
        ),
        (refusal(503, "ServiceUnavailable", "etcd is away"), Unavailable, "etcd is away"),
        (MaxRetryError(None, "/apis", OSError("no route")), Unavailable, "no route"),  # pyright: ignore[reportArgumentType]
    ],
    ids=["forbidden", "unavailable", "no answer"],
)
def test_a_cluster_that_says_no_and_one_that_says_nothing_are_told_apart(
    down: Exception, raised: type[Exception], told: str
) -> None:
    api, launch = FakeKubernetes(), launch_of()
    container = given(api)
    api.down = down

    for asked in (
        lambda: container.start(launch),
        lambda: container.stop(launch, grace_s=0),
        lambda: container.logs(launch, lines=1),
    ):
        with pytest.raises(raised, match=told):
            asked()


def test_a_namespace_that_does_not_exist_is_told() -> None:
    with pytest.raises(Refused, match=r"404: namespaces \"lake\" not found; see that the namesp"):
        given(FakeKubernetes(), namespace="lake").start(launch_of())


@pytest.mark.parametrize("resource", ["Upper_Case", "a" * 63, "x.y", "0" * 32])
def test_any_resource_has_a_name_that_kubernetes_takes(resource: str) -> None:
    api = FakeKubernetes()
    one, other = launch_of(99, resource=resource), launch_of(99, resource=resource.lower() + "-")

    given(api).start(one)
    given(api).start(other)

    assert len(api.deployments) == 2


def test_without_the_client_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "kubernetes.client", None)

    with pytest.raises(ExtraMissing, match=r"^here: .* pip install 'headrace\[kubernetes\]'$"):
        OfficialClient(None, place="here")


def test_without_a_cluster_the_way_out_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(BadSetting, match="set kube-config-path to a kubeconfig"):
        OfficialClient(tmp_path / "none", place="here")
    monkeypatch.setenv("HOME", str(tmp_path))
    with pytest.raises(BadSetting, match="Service host/port is not set"):
        OfficialClient(None, place="here")
