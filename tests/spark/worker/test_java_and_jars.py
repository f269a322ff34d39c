"""A Java that fits and jars that are whole, or one clear line that says what to do."""

from __future__ import annotations

import fcntl
import hashlib
import shutil
from pathlib import Path

import pytest

from headrace.errors import JarsUnavailable, JavaMissing
from headrace.spark import installation as fetching
from headrace.spark.installation import Jar, JavaInstallation, find_java, resolve_jars

CONTENT = b"not really a jar"
JAR = Jar("org.example", "thing", "1.0", hashlib.sha256(CONTENT).hexdigest())


def quiet(_line: str) -> None:
    """For tests that don't ask what was said."""


def fake_java(home: Path, says: str) -> Path:
    executable = home / "bin" / "java"
    executable.parent.mkdir(parents=True)
    executable.write_text(f"#!/bin/sh\ncat >&2 <<'END'\n{says}\nEND\n")
    executable.chmod(0o755)
    return home


@pytest.mark.parametrize(
    ("says", "major"),
    [('openjdk version "17.0.15" 2025-04-15', 17), ('java version "21" 2023-09-19 LTS', 21)],
)
def test_java_17_and_21_are_taken(tmp_path: Path, says: str, major: int) -> None:
    assert find_java(fake_java(tmp_path, says)).major == major


@pytest.mark.parametrize(
    ("says", "said"),
    [
        ('openjdk version "11.0.2" 2019-01-15', r"is Java 11\.0\.2; install a JDK or JRE 17 or 21"),
        ('java version "1.8.0_292"', r"is Java 1\.8\.0_292"),
        ("Segmentation fault", "did not say its version but 'Segmentation fault'"),
    ],
)
def test_another_java_is_refused_with_its_version_and_place(
    tmp_path: Path, says: str, said: str
) -> None:
    with pytest.raises(JavaMissing, match=said) as refused:
        find_java(fake_java(tmp_path, says))
    assert str(tmp_path) in str(refused.value)


def test_a_java_home_without_java_is_refused(tmp_path: Path) -> None:
    with pytest.raises(JavaMissing, match="does not exist; install a JDK"):
        find_java(tmp_path)


def test_no_java_at_all_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(JavaMissing, match="JAVA_HOME is not set and there is no java on PATH"):
        find_java()


@pytest.fixture
def java(tmp_path: Path) -> JavaInstallation:
    """A "Java" that plays Ivy: it puts CONTENT where Ivy would put the jar."""
    home = tmp_path / "java"
    executable = home / "bin" / "java"
    executable.parent.mkdir(parents=True)
    executable.write_text(
        "#!/bin/sh\n"
        'for last; do :; done; folder=$(dirname "$last")\n'
        'mkdir -p "$folder"; printf "not really a jar" > "$folder/thing-1.0.jar"\n'
    )
    executable.chmod(0o755)
    return JavaInstallation(executable, "17", 17)


def test_a_jar_is_fetched_once_and_said_once(tmp_path: Path, java: JavaInstallation) -> None:
    said: list[str] = []
    for _ in range(2):
        found = resolve_jars(tmp_path, java=java, say=said.append, jars=(JAR,))
        assert [path.read_bytes() for path in found] == [CONTENT]
    assert len(said) == 1
    assert said[0].startswith("fetching org.example:thing:1.0")


def test_a_jar_of_another_content_is_thrown_away(tmp_path: Path, java: JavaInstallation) -> None:
    other = Jar("org.example", "thing", "1.0", "00" * 32)
    with pytest.raises(JarsUnavailable, match=r"its SHA-256 is .* expected 0000"):
        resolve_jars(tmp_path, java=java, say=quiet, jars=(other,))
    assert list((tmp_path / "jars").glob("*.jar*")) == []


def test_a_jar_that_was_cut_short_is_fetched_again(tmp_path: Path, java: JavaInstallation) -> None:
    (path,) = resolve_jars(tmp_path, java=java, say=quiet, jars=(JAR,))
    path.write_bytes(CONTENT[:3])
    said: list[str] = []
    (again,) = resolve_jars(tmp_path, java=java, say=said.append, jars=(JAR,))
    assert again.read_bytes() == CONTENT
    assert said


def test_a_jar_that_a_user_put_there_is_checked_and_taken(
    tmp_path: Path, java: JavaInstallation
) -> None:
    (tmp_path / "jars").mkdir()
    (tmp_path / "jars" / JAR.file_name).write_bytes(CONTENT)
    said: list[str] = []
    resolve_jars(tmp_path, java=java, say=said.append, jars=(JAR,))
    assert said == []


def test_a_jar_that_does_not_come_names_itself_the_reason_and_the_way_out(tmp_path: Path) -> None:
    broken = fake_java(tmp_path / "java", "module not found: org.example#thing;1.0")
    with pytest.raises(JarsUnavailable) as refused:
        resolve_jars(
            tmp_path,
            java=JavaInstallation(broken / "bin" / "java", "17", 17),
            say=quiet,
            jars=(JAR,),
        )
    text = str(refused.value)
    assert "org.example:thing:1.0 could not be fetched: module not found" in text
    assert f"put the jar yourself at {tmp_path / 'jars' / JAR.file_name}" in text


def test_a_fetch_under_way_elsewhere_is_waited_for_not_repeated(
    tmp_path: Path, java: JavaInstallation, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fetching, "LOCK_TIMEOUT_S", 0)
    resolve_jars(tmp_path, java=java, say=quiet, jars=(JAR,))
    shutil.rmtree(tmp_path / "jars")
    (tmp_path / "jars").mkdir()
    with (tmp_path / "jars" / ".lock").open("w") as held:
        fcntl.flock(held.fileno(), fcntl.LOCK_EX | fcntl.LOCK_NB)
        with pytest.raises(JarsUnavailable, match="another start has held"):
            resolve_jars(tmp_path, java=java, say=quiet, jars=(JAR,))
