"""Mistakes in files of the user are told with the file, and what was expected in it."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from headrace.containers.container import ContainerSetting
from headrace.containers.kubernetes import api, manifest
from headrace.containers.kubernetes.api import OfficialClient
from headrace.containers.kubernetes.deployment import KubernetesDeployments
from headrace.errors import BadSetting, Unavailable
from tests.containers.kubernetes.fake_kubernetes import FakeKubernetes
from tests.containers.kubernetes.server import KUBE_CONFIG
from tests.containers.launches import launch_of


def kube_config(cluster: str = "{server: 'http://h'}", user: str = "{}") -> str:
    return f"""
        current-context: c
        clusters: [{{name: c, cluster: {cluster}}}]
        contexts: [{{name: c, context: {{cluster: c, user: c}}}}]
        users: [{{name: c, user: {user}}}]
    """


@pytest.mark.parametrize(
    ("written", "said"),
    [
        ("a: [", "can not be read as YAML: line 1, column 5: .*"),
        (b"\x80\x00\xff", "can not be read as YAML: invalid start byte.*"),
        ("a: 2026-99-99", "can not be read as YAML: month must be in 1..12"),
        ("hello", "is text; expected a mapping with clusters, contexts, users and current-context"),
        ("[1]", "is a list; expected a mapping with clusters.*"),
        ("", "is nothing; expected a mapping with clusters.*"),
        ("clusters: x", ": clusters is text; expected a list of mappings, each with a name"),
        ("users: [x]", ": users has text as item 1; expected a list of mappings.*"),
        ("users: [{user: {}}]", ": users has a mapping without a name as item 1; expected .*"),
        (kube_config(cluster="h"), ": cluster 'c' of clusters is text; expected a mapping"),
        (kube_config(user=""), ": user 'c' of users is nothing; expected a mapping"),
    ],
)
def test_what_is_no_kubeconfig_is_told_as_such(
    tmp_path: Path, written: str | bytes, said: str
) -> None:
    path = tmp_path / "kube.config"
    path.write_bytes(written if isinstance(written, bytes) else written.encode())

    with pytest.raises(BadSetting, match=rf"^f:1: kubeconfig \S+config:? ?{said}; set kube-conf"):
        OfficialClient(path, place="f:1")


@pytest.mark.parametrize(
    "written",
    [
        kube_config(cluster="{server: 5}"),
        kube_config(cluster="{server: 'https://h', certificate-authority-data: 7}"),
        kube_config(cluster="{server: 'https://h', certificate-authority-data: abc}"),
        kube_config(cluster="{server: }"),
        "{clusters: null, contexts: null, users: null}",
    ],
)
def test_what_the_client_can_not_take_from_a_kubeconfig_is_told_too(
    tmp_path: Path, written: str
) -> None:
    path = tmp_path / "kube.config"
    path.write_text(written)

    with pytest.raises(BadSetting, match=r"f:1: .* reached: kubeconfig \S+kube.config: .*kubectl"):
        OfficialClient(path, place="f:1")


def test_a_mistake_in_a_kubeconfig_tells_none_of_its_secrets(tmp_path: Path) -> None:
    path = tmp_path / "kube.config"
    for written in (
        "users: [{name: c, user: {token: hunter2}, }]]",
        kube_config(cluster="{server: , token: hunter2}"),
    ):
        path.write_text(written)
        with pytest.raises(BadSetting) as refused:
            OfficialClient(path, place="f:1")
        assert "hunter2" not in str(refused.value)


@pytest.mark.parametrize(
    ("written", "said"),
    [
        ("a: [", "can not be read as YAML: line 1, column 5: .*"),
        ("text", "is text; expected a mapping with metadata and spec"),
        ("template:", ": template is nothing; expected a mapping"),
        ("template: [1]", ": template is a list; expected a mapping"),
        ("template: {}", ": template has neither metadata nor spec; expected a mapping .*"),
        ("containers: []", "has neither metadata nor spec; expected a mapping .*"),
        ("metadata: [1]", ": metadata is a list; expected a mapping"),
        ("metadata: {labels: team}", ": labels of metadata is text; expected a mapping"),
        ("spec: text", ": spec is text; expected a mapping"),
        ("spec:", ": spec is nothing; expected a mapping"),
        ("spec: {containers: {a: b}}", ": containers of spec is a mapping; expected a list .*"),
        ("spec: {containers: [a]}", ": containers of spec has text as item 1; expected a list .*"),
        ("spec: {containers: [{image: i}]}", ": containers of spec has a mapping without a .*"),
        ("spec: {containers: [{name: c, env: {A: b}}]}", ": env of container 'c' is a mapping; .*"),
        ("spec: {imagePullSecrets: [a]}", ": imagePullSecrets of spec has text as item 1; .*"),
    ],
)
def test_what_is_no_pod_template_is_told_as_such(tmp_path: Path, written: str, said: str) -> None:
    path = tmp_path / "pod.yaml"
    path.write_text(written)
    setting = ContainerSetting("k8s", {"image": "i", "podTemplate": str(path)}, "f:1", Path())

    told = rf"^f:1: container 'k8s': podTemplate \S+yaml:? ?{said}; mend the file, or leave"
    with pytest.raises(BadSetting, match=told):
        KubernetesDeployments(setting, FakeKubernetes())


def test_a_file_that_is_too_large_is_not_read_in_part(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(manifest, "FILE_BYTES_MAX", 20)
    path = tmp_path / "pod.yaml"
    path.write_text("spec: {}" + " " * 12)
    assert manifest.pod_template(path, place="f:1") == {"spec": {}}
    path.write_text("spec: {}" + " " * 13)

    with pytest.raises(BadSetting, match="is too large; expected at most 20 bytes"):
        manifest.pod_template(path, place="f:1")


@pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning")  # those of its pool
def test_a_server_that_never_answers_is_asked_once_and_no_longer_than_the_limit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(api, "REQUEST_TIMEOUT_S", 0.2)
    path = tmp_path / "kube.config"
    with socket.create_server(("127.0.0.1", 0)) as silent:
        path.write_text(KUBE_CONFIG % silent.getsockname()[1])
        properties = {"image": "i", "kube-config-path": str(path)}
        container = KubernetesDeployments(ContainerSetting("k8s", properties, "f:1", Path()))

        with pytest.raises(Unavailable, match="Read timed out"):
            container.status(launch_of())

        silent.settimeout(0)
        silent.accept()[0].close()
        with pytest.raises(BlockingIOError):
            silent.accept()
