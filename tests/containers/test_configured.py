"""Containers have names, kinds and properties; what is wrong with them is told with its place."""

from __future__ import annotations

import subprocess
import sys
from importlib import metadata
from pathlib import Path

import pytest

from headrace.config import Settings
from headrace.containers import kinds
from headrace.containers.configured import Containers, configured
from headrace.containers.container import ContainerSetting, Supports
from headrace.containers.external import External
from headrace.errors import BadSetting, NotFound
from tests.containers.kubernetes.fake_kubernetes import FakeKubernetes
from tests.containers.launches import ROOT

HERE = "a text"


class Nowhere:
    """No container at all."""

    def __init__(self, setting: ContainerSetting) -> None:
        self.name = setting.name


def broken(_: ContainerSetting) -> None:
    raise RuntimeError("its engine is cold")


def given(home: Path, text: str | None) -> Containers:
    if text is not None:
        (home / "containers.conf").write_text(text)
    return configured(Settings(home=home), token=None)


def with_entry_point(monkeypatch: pytest.MonkeyPatch, name: str, value: str) -> None:
    """One more than there are."""
    more = metadata.EntryPoint(name=name, value=value, group=kinds.GROUP)
    there = metadata.entry_points

    def found(*, group: str) -> list[metadata.EntryPoint]:
        return [*there(group=group), more]

    monkeypatch.setattr(kinds, "entry_points", found)


def test_without_a_file_there_are_local_and_external(tmp_path: Path) -> None:
    found = given(tmp_path, None)

    assert found.names == ["external", "local"]
    assert found.get("local").supports == Supports()
    assert isinstance(found.get("external"), External)


def test_containers_are_found_by_name_with_what_their_kinds_support(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SPARK_AT", "spark://h:7077")
    found = given(
        tmp_path,
        """
        containers {
          cluster {
            type = spark
            properties { master = ${SPARK_AT}, spark-conf.spark.executor.memory = 4g }
          }
          supervised { type = local, properties { supports-restart = false } }
          local { type = local, properties { export.JAVA_HOME = /opt/java } }
        }
        """,
    )

    assert found.names == ["cluster", "external", "local", "supervised"]
    assert found.get("cluster").name == "cluster"
    assert found.get("cluster").supports.restart
    assert not found.get("supervised").supports.restart


def test_one_that_is_not_configured_is_not_found_and_the_names_are_told(tmp_path: Path) -> None:
    found = given(tmp_path, None)

    with pytest.raises(NotFound, match=r"no container 'gone'; known containers: external, local"):
        found.get("gone")
    assert "gone" not in found


def test_headraces_own_kinds_come_through_the_same_door_and_load_nothing_in_vain() -> None:
    asked = (
        "import sys; from headrace.containers.kinds import installed_kinds; "
        "print(installed_kinds().names, [m for m in sys.modules if 'containers.' in m])"
    )
    done = subprocess.run([sys.executable, "-c", asked], capture_output=True, text=True, check=True)

    names, modules = done.stdout.strip().split("] [")
    assert names == "['external', 'kubernetes', 'local', 'spark'"
    assert "local" not in modules
    assert "kubernetes" not in modules


@pytest.mark.parametrize(
    ("name", "value", "problem"),
    [
        ("mine", "no.such.module:Kind", "No module named 'no'; install that package again"),
        ("mine", "tests.containers.test_configured:HERE", "it is no callable that takes a Cont"),
        ("mine", "tests.containers.test_configured:broken", "RuntimeError: its engine is cold"),
        ("mine", "tests.containers.test_configured:Nowhere", "a Nowhere without supports, check"),
        (
            "spark",
            "tests.containers.test_configured:Nowhere",
            r"its kind 'spark' is declared by 2 packages, headrace 0.* and of no name; uninstall",
        ),
    ],
)
def test_a_kind_that_can_not_be_used_is_told_with_its_package_and_breaks_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, value: str, problem: str
) -> None:
    with_entry_point(monkeypatch, name, value)
    assert given(tmp_path, None).names == ["external", "local"]

    with pytest.raises(BadSetting, match=problem) as raised:
        given(tmp_path, f"containers {{ c {{ type = {name}, properties {{ master = yarn }} }} }}")
    assert "containers.conf:1: container 'c': its kind" in str(raised.value)


def test_an_installation_without_entry_points_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def nothing(*, group: str) -> list[metadata.EntryPoint]:
        return []

    monkeypatch.setattr(kinds, "entry_points", nothing)

    with pytest.raises(BadSetting, match=r"kind 'local' is missing\. No plug-in .* --force-reinst"):
        given(tmp_path, None)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("containers { c { properties { } } }", r"1:14: container 'c' has no type; expected one"),
        ("containers { c { type = yarn } }", r"'yarn', which does not exist; expected one of ext"),
        ("containers { c { type = local, x = 1 } }", r"1:32: unknown key 'x' in container 'c'"),
        ("containers { c = 3 }", r"1:18: container 'c' must be an object { … }, and is 3"),
        ('containers { "a/b" { type = local } }', r"'a/b' can not be used as a name; expected 1"),
        ("containers { local { type = spark } }", r"'local' is always of type local, and not sp"),
        ("containers { c { type = local, properties { a = [] } } }", "'a' of .* must be a text"),
        ("containers { c { type = local, properties { mastr = a } } }", "did you mean 'master'"),
        ("containers { c { type = spark } }", r"conf:1: container 'c': property 'master' is miss"),
        (
            "containers { c { type = spark, properties { master = local } } }",
            r"'master' is 'local'; expected spark://HOST:PORT, yarn or k8s://URL",
        ),
        (
            "containers { c { type = spark, properties { deploy-mode = cluster, master = yarn } }}",
            r"'deploy-mode' is 'cluster'; expected client",
        ),
        (
            "containers { c { type = spark, properties { master = yarn, spark-home = /no } } }",
            r"'spark-home' is '/no', and there is no bin/spark-submit in it",
        ),
        (
            "containers { c { type = local, properties { supports-restart = perhaps } } }",
            r"'supports-restart' is 'perhaps'; expected true or false",
        ),
        ("containers { c { type = kubernetes } }", r"property 'image' is missing"),
        (
            "containers { c { type = kubernetes, properties { image = i, cpu.factor = -1 } } }",
            r"'cpu.factor' is '-1'; expected a number above 0, at most 1000",
        ),
        (
            "containers { c { type = kubernetes, properties { image = i, pullPolicy = Often } } }",
            r"'pullPolicy' is 'Often'; expected one of Always, IfNotPresent, Never",
        ),
        (
            "containers { c { type = kubernetes, properties { image = i, podTemplate = /no } } }",
            r"podTemplate /no can not be read",
        ),
        (
            'containers { c { type = local, properties { master = "${NOT_SET_ANYWHERE}" } } }',
            r"needs variable 'NOT_SET_ANYWHERE', which has no value",
        ),
        ("optimizers { }", r"expected one block, `containers { NAME { … } }`"),
        ("containers {", r"containers\.conf:1:\d+: "),
    ],
)
def test_what_is_wrong_is_told_with_its_place_and_what_was_expected(
    tmp_path: Path, text: str, problem: str
) -> None:
    with pytest.raises(BadSetting, match=problem) as raised:
        given(tmp_path, text)

    assert str(tmp_path / "containers.conf") in str(raised.value)


def test_a_file_that_a_setting_names_must_be_there(tmp_path: Path) -> None:
    settings = Settings(home=tmp_path, containers=tmp_path / "mine.conf")

    with pytest.raises(BadSetting, match=r"mine\.conf can not be read: No such file"):
        configured(settings, token=None)


def test_the_file_in_the_docs_can_be_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    page = (ROOT / "docs" / "reference" / "containers.md").read_text()
    example = page.split("```\n")[1]

    def no_cluster(_: Path | None, *, place: str) -> FakeKubernetes:
        return FakeKubernetes()

    monkeypatch.setattr("headrace.containers.kubernetes.deployment.OfficialClient", no_cluster)

    assert given(tmp_path, example).names == ["external", "lake-pods", "local", "on-yarn"]
