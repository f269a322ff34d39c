"""headrace doctor says what is wrong and how to mend it, and changes nothing."""

from __future__ import annotations

import json
import shutil
import socket
from pathlib import Path
from types import SimpleNamespace

import pytest
from pydantic import SecretStr

from headrace.cli.local.checks import DISK_FAIL_BYTES, DISK_WARN_BYTES, CheckResult, examine
from headrace.config import Settings
from tests.cli.machine import environment, headrace

SUBJECTS = (
    "python",
    "spark",
    "java",
    "jars",
    "class-data archive",
    "store",
    "port",
    "disk of home",
    "disk of cache",
    "headrace up",
)


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return Settings(
        token=SecretStr("t"), home=tmp_path / "home", cache_dir=tmp_path / "cache", seams=""
    )


def found(settings: Settings, subject: str, *, store_url: str | None = None) -> CheckResult:
    findings = examine(settings, store_url=store_url, fetch=False, say=lambda _: None)
    assert tuple(finding.subject for finding in findings) == SUBJECTS
    return next(finding for finding in findings if finding.subject == subject)


def test_a_fresh_machine_lacks_only_what_the_first_start_brings(settings: Settings) -> None:
    jars = found(settings, "jars")
    assert jars.verdict == "warn"
    assert "headrace doctor --fetch" in jars.text
    assert found(settings, "class-data archive").verdict == "warn"
    assert found(settings, "store").verdict == "ok"
    assert not settings.home.exists(), "looking changes nothing"


def test_a_missing_java_fails_with_the_way_out(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JAVA_HOME", "/no/such/jdk")

    finding = found(settings, "java")
    assert finding.verdict == "fail"
    assert "install a JDK" in finding.text


def test_a_store_is_shown_with_its_revision(settings: Settings, sqlite_url: str) -> None:
    finding = found(settings, "store", store_url=sqlite_url)

    assert finding.verdict == "ok"
    assert "at revision" in finding.text


def test_a_file_that_is_no_store_fails(settings: Settings, tmp_path: Path) -> None:
    (tmp_path / "notes").write_text("words " * 1000)
    finding = found(settings, "store", store_url=f"sqlite:///{tmp_path / 'notes'}")

    assert finding.verdict == "fail"
    assert "not a database" in finding.text


def test_a_store_that_is_away_fails_without_its_password(settings: Settings) -> None:
    finding = found(settings, "store", store_url="postgresql://me:hush@127.0.0.1:1/x")

    assert finding.verdict == "fail"
    assert "is not available" in finding.text
    assert "hush" not in finding.text


def test_a_store_url_that_can_not_be_read_fails_as_it_would_in_a_coordinator(
    settings: Settings,
) -> None:
    for url in ("postgresql://me:hush@h:abc/x", "nonsense"):
        finding = found(settings, "store", store_url=url)
        assert finding.verdict == "fail"
        assert finding.text.startswith("the store's URL can not be read; write it as sqlite:///")


def test_a_taken_port_is_a_warning_with_the_way_out(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        monkeypatch.setattr("headrace.cli.local.checks.DEFAULT_PORT", taken.getsockname()[1])
        finding = found(settings, "port")

    assert finding.verdict == "warn"
    assert "--port 0" in finding.text


@pytest.mark.parametrize(
    ("free", "verdict"),
    [(DISK_WARN_BYTES, "ok"), (DISK_WARN_BYTES - 1, "warn"), (DISK_FAIL_BYTES - 1, "fail")],
)
def test_a_full_disk_is_told_before_it_is_met(
    settings: Settings, monkeypatch: pytest.MonkeyPatch, free: int, verdict: str
) -> None:
    def usage(_: Path) -> SimpleNamespace:
        return SimpleNamespace(free=free)

    monkeypatch.setattr(shutil, "disk_usage", usage)

    assert found(settings, "disk of home").verdict == verdict


def test_the_command_leaves_with_2_when_something_fails(tmp_path: Path) -> None:
    env = environment(JAVA_HOME="/no/such/jdk", XDG_CACHE_HOME=str(tmp_path / "cache"))
    done = headrace("--output", "json", "doctor", cwd=tmp_path, env=env)

    assert done.returncode == 2
    verdicts = {finding["subject"]: finding["verdict"] for finding in json.loads(done.stdout)}
    assert tuple(verdicts) == SUBJECTS
    assert verdicts["java"] == "fail"
