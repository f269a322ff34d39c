"""Jars come with all they need, once, whole, and are what they were; by Ivy itself, offline."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from headrace.errors import JarsUnavailable
from headrace.plugins.jars import JarCoordinates
from headrace.spark.installation import FETCH_PREFIX
from headrace.spark.jar_cache import JarCache, ResolvedJar, shipped_artifacts, shipped_version
from tests.spark.maven import Maven

ROOT, MIDDLE, LEAF = "org.toy:root:1.0", "org.toy:middle:2.1", "net.toy:leaf:0.3"
WANTED = (JarCoordinates(ROOT),)


def quiet(_line: str) -> None:
    """For tests that don't ask what was said."""


def filled_repository(folder: Path) -> Maven:
    made = Maven(folder)
    made.publish(ROOT, needs=[MIDDLE, "org.apache.commons:commons-lang3:3.1"])
    made.publish(MIDDLE, needs=[LEAF])
    made.publish(LEAF)
    return made


@pytest.fixture
def maven(tmp_path: Path) -> Maven:
    return filled_repository(tmp_path / "maven")


@pytest.fixture
def jars(tmp_path: Path, maven: Maven) -> JarCache:
    return JarCache(tmp_path / "cache", ivy_settings=maven.settings)


@pytest.fixture(scope="module")
def copied_from(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A cache that was filled on another machine."""
    folder = tmp_path_factory.mktemp("elsewhere")
    there = filled_repository(folder / "maven")
    JarCache(folder / "cache", ivy_settings=there.settings).resolve(WANTED, say=quiet)
    return folder / "cache"


@pytest.fixture
def filled(jars: JarCache, copied_from: Path, tmp_path: Path) -> JarCache:
    shutil.copytree(copied_from, tmp_path / "cache")
    return jars


def resolved(
    jars: JarCache, wanted: Sequence[JarCoordinates] = WANTED
) -> tuple[Sequence[ResolvedJar], Sequence[str]]:
    """What was resolved, and what was said."""
    said: list[str] = []
    return jars.resolve(wanted, say=said.append), said


def files_in(folder: Path) -> set[str]:
    return {path.name for path in folder.rglob("*") if path.is_file()}


def test_a_jar_comes_with_all_it_needs_but_what_spark_has_and_is_asked_for_once(
    jars: JarCache, maven: Maven, tmp_path: Path
) -> None:
    found, said = resolved(jars)

    assert {jar.coordinates for jar in found} == {ROOT, MIDDLE, LEAF}
    assert all(jar.path.is_file() for jar in found)
    assert said == [
        f"fetching {ROOT} with all they need (once, into {tmp_path / 'cache' / 'jars'})"
    ]
    maven.withdraw()
    other_process = JarCache(tmp_path / "cache", ivy_settings=maven.settings)
    assert resolved(other_process) == (found, [])


def test_a_jar_that_needs_no_other_comes_alone(jars: JarCache) -> None:
    found, _ = resolved(jars, [JarCoordinates(ROOT, transitive=False)])
    assert [jar.coordinates for jar in found] == [ROOT]


def test_what_is_named_is_not_replaced_by_a_newer_version_that_another_needs(
    jars: JarCache, maven: Maven
) -> None:
    maven.publish("net.toy:leaf:0.2")
    found, _ = resolved(jars, [JarCoordinates(ROOT), JarCoordinates("net.toy:leaf:0.2")])
    assert {jar.coordinates for jar in found} == {ROOT, MIDDLE, "net.toy:leaf:0.2"}


@pytest.mark.req("L4")
def test_a_jar_that_is_not_what_its_pin_says_is_thrown_away(jars: JarCache, tmp_path: Path) -> None:
    with pytest.raises(JarsUnavailable, match=rf"the SHA-256 of {ROOT} is .* expected 0000"):
        resolved(jars, [JarCoordinates(ROOT, sha256="00" * 32)])
    assert files_in(tmp_path / "cache") == {".lock"}


@pytest.mark.req("L4")
def test_a_pin_holds_also_for_a_jar_that_was_fetched_without_one(
    filled: JarCache, maven: Maven
) -> None:
    right = hashlib.sha256(maven.publish(ROOT, needs=[MIDDLE])).hexdigest()

    assert resolved(filled, [JarCoordinates(ROOT, sha256=right)])[1] == []
    with pytest.raises(JarsUnavailable, match=r"expected 0000.*; it is not used"):
        resolved(filled, [JarCoordinates(ROOT, sha256="00" * 32)])


@pytest.mark.req("L4")
def test_a_jar_that_was_changed_in_the_cache_is_fetched_again(filled: JarCache) -> None:
    found, _ = resolved(filled)
    before = found[0].path.read_bytes()
    found[0].path.write_bytes(before[:-1] + b"x")

    again, said = resolved(filled)

    assert len(said) == 1
    assert again[0].path.read_bytes() == before


@pytest.mark.req("L4")
def test_a_repository_that_sends_something_else_later_is_not_believed(
    filled: JarCache, maven: Maven
) -> None:
    found, _ = resolved(filled)
    leaf = next(jar.path for jar in found if jar.coordinates == LEAF)
    before = leaf.read_bytes()
    maven.publish(LEAF, content=b"something else")
    leaf.unlink()

    with pytest.raises(JarsUnavailable, match=f"{LEAF} is .*as it was first; delete .*\\.jar\\.ok"):
        resolved(filled)
    maven.publish(LEAF, content=before)
    assert resolved(filled)[0] == found


def test_a_jar_that_does_not_come_names_itself_the_reason_and_the_ways_out(
    jars: JarCache, maven: Maven, tmp_path: Path
) -> None:
    maven.publish("org.toy:broken:1", needs=["org.toy:nowhere:9"])
    with pytest.raises(JarsUnavailable) as refused:
        resolved(jars, [JarCoordinates("org.toy:broken:1")])

    text = str(refused.value)
    assert text.startswith("org.toy:broken:1 could not be fetched: ")
    assert "org.toy#nowhere;9: not found" in text
    assert "HEADRACE_IVY_SETTINGS" in text
    assert f"copy {tmp_path / 'cache' / 'jars'} from a machine that has them" in text
    assert files_in(tmp_path / "cache") == {".lock"}


def test_a_jar_that_a_user_put_there_is_taken_when_it_needs_no_other(
    jars: JarCache, maven: Maven, tmp_path: Path
) -> None:
    content = maven.publish(ROOT)
    maven.withdraw()
    wanted = JarCoordinates(ROOT, hashlib.sha256(content).hexdigest(), transitive=False)
    with pytest.raises(JarsUnavailable, match="put them yourself at ") as refused:
        resolved(jars, [wanted])

    place = tmp_path / "cache" / "jars" / "org.toy" / "root-1.0.jar"
    assert str(refused.value).endswith(str(place))
    place.parent.mkdir(parents=True)
    place.write_bytes(b"something else")
    with pytest.raises(JarsUnavailable, match="could not be fetched"):
        resolved(jars, [wanted])
    place.write_bytes(content)
    assert resolved(jars, [wanted]) == ((ResolvedJar("org.toy:root", "1.0", place),), [])


def test_a_list_that_cant_be_read_is_made_anew(filled: JarCache, tmp_path: Path) -> None:
    found, _ = resolved(filled)
    (listed,) = (tmp_path / "cache" / "jars" / "resolved").iterdir()
    assert json.loads(listed.read_text())["wanted"] == [ROOT]
    listed.write_text("{")
    again, said = resolved(filled)
    assert (again, len(said)) == (found, 1)


def test_what_waits_may_end_a_fetch_and_nothing_is_left(jars: JarCache, tmp_path: Path) -> None:
    class Stopped(Exception):
        pass

    def stop() -> None:
        raise Stopped

    with pytest.raises(Stopped):
        jars.resolve(WANTED, say=quiet, waiting=stop)
    assert files_in(tmp_path / "cache") == {".lock"}


KILLED = """
import os, signal, sys
from pathlib import Path
from headrace.plugins.jars import JarCoordinates
from headrace.spark import jar_cache

def die(*_):
    os.kill(os.getpid(), signal.SIGKILL)

cache, settings, step = sys.argv[1:]
setattr(jar_cache.JarCache, step, die)
made = jar_cache.JarCache(Path(cache), ivy_settings=Path(settings))
made.resolve([JarCoordinates({root!r})], say=print)
"""


@pytest.mark.parametrize("step", ["_fetched_in", "_write_list"])
def test_a_fetch_that_was_killed_leaves_nothing_that_counts(
    jars: JarCache, maven: Maven, tmp_path: Path, step: str
) -> None:
    command = [sys.executable, "-c", KILLED.format(root=ROOT)]
    command += [str(tmp_path / "cache"), str(maven.settings), step]
    died = subprocess.run(command, check=False, capture_output=True, env=dict(os.environ))
    assert died.returncode == -signal.SIGKILL
    folder = tmp_path / "cache" / "jars"
    worked_in = list(folder.glob(f"{FETCH_PREFIX}*"))
    assert bool(worked_in) == (step == "_fetched_in")  # the other died behind it
    assert not list(folder.glob("resolved/*.json"))

    found, said = resolved(jars)

    assert {jar.coordinates for jar in found} == {ROOT, MIDDLE, LEAF}
    assert len(said) == 1
    assert not list(folder.glob(f"{FETCH_PREFIX}*"))


def test_what_spark_brings_is_known_by_its_files() -> None:
    assert {"zstd-jni", "log4j-1.2-api", "spark-core_2.13", "postgresql"} <= shipped_artifacts()
    assert shipped_version(JarCoordinates("org.postgresql:postgresql:1")) == "42.7.14"
    lang = shipped_version(JarCoordinates("org.apache.commons:commons-lang3:1"))
    assert lang is not None
    assert lang[0].isdigit()
    assert shipped_version(JarCoordinates(ROOT)) is None
