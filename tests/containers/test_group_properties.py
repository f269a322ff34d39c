"""What a group may tell its container, by the container's kind: told before anything is written."""

from __future__ import annotations

from pathlib import Path

import pytest

from headrace.containers.container import ContainerSetting, WorkerContainer
from headrace.containers.external import External
from headrace.containers.kubernetes.deployment import KubernetesDeployments
from headrace.containers.local import local_workers, spark_workers
from headrace.errors import BadSetting
from tests.containers.kubernetes.fake_kubernetes import FakeKubernetes


def container(kind: str, home: Path) -> WorkerContainer:
    properties = {
        "spark": {"master": "yarn"},
        "kubernetes": {"image": "headrace:1"},
    }.get(kind, {})
    setting = ContainerSetting("mine", properties, "containers.conf:3", home)
    match kind:
        case "local":
            return local_workers(setting)
        case "spark":
            return spark_workers(setting)
        case "kubernetes":
            return KubernetesDeployments(setting, FakeKubernetes())
        case _:
            return External(setting)


@pytest.mark.parametrize(
    ("kind", "properties", "said"),
    [
        (
            "kubernetes",
            {"imagee": "x"},
            r"group 'g': container 'mine': unknown property 'imagee'; did you mean 'image'\? The "
            "kind kubernetes knows image, namespace, .*, spark-conf.NAME$",
        ),
        ("local", {"zzz": "x"}, "'zzz'; the kind local knows master, warehouse, export.NAME"),
        ("external", {"export.A": "x"}, "unknown property 'export.A'; .*kind external knows"),
        ("kubernetes", {"cpu.factor": "many"}, "'cpu.factor' is 'many'; expected a number above 0"),
        ("kubernetes", {"pullPolicy": "never"}, "expected one of Always, IfNotPresent, Never"),
        ("kubernetes", {"image": ""}, "property 'image' is missing"),
        ("kubernetes", {"podTemplate": "x"}, "kind kubernetes as a whole.*at containers.conf:3"),
        ("local", {"supports-restart": "no"}, "'supports-restart' holds for a container of the"),
        ("spark", {"master": "local"}, "expected spark://HOST:PORT, yarn or k8s://URL"),
        ("spark", {"spark-home": "/no/such"}, "there is no bin/spark-submit in it"),
    ],
)
def test_a_property_that_the_kind_can_not_take_is_refused(
    tmp_path: Path, kind: str, properties: dict[str, str], said: str
) -> None:
    with pytest.raises(BadSetting, match=said):
        container(kind, tmp_path).check("g", properties, memory_mb=0)


@pytest.mark.parametrize(
    ("kind", "memory_mb", "said"),
    [
        ("local", 449, "memory is 449 MB, .* below 450 MB; expected at least 450"),
        ("external", 1, "memory is 1 MB"),
        ("kubernetes", 562, "expected at least 563"),  # of which 0.8 are heap
        ("kubernetes", 10_000_001, "expected at most 10000000"),
    ],
)
def test_memory_that_the_kind_can_not_give_or_start_with_is_refused(
    tmp_path: Path, kind: str, memory_mb: int, said: str
) -> None:
    with pytest.raises(BadSetting, match=said):
        container(kind, tmp_path).check("g", {}, memory_mb=memory_mb)


@pytest.mark.parametrize("kind", ["local", "spark", "kubernetes", "external"])
def test_what_a_kind_knows_is_taken(tmp_path: Path, kind: str) -> None:
    made = container(kind, tmp_path)

    made.check("g", {"spark-conf.spark.x": "1", "warehouse": "/w"}, memory_mb=1024)
    made.check("g", {"spark-conf.spark.driver.memory": "1g"}, memory_mb=1)
    made.check("g", {}, memory_mb=0)
