"""What is set by hand and can't be used is told before anything starts, and secrets never are."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest
from pydantic import SecretStr, ValidationError

from headrace.cli.context import Context
from headrace.cli.store import store_url
from headrace.config import Settings
from headrace.errors import BadSetting
from headrace.logs import is_secret
from headrace.seams import arm_from, armed, disarm_all
from tests.cli.machine import environment, headrace, one_line_of

LOOPBACK = ("--bind", "127.0.0.1:0")
FORMS = "write it as sqlite:///path/to/store.db or postgresql://user@host:5432/database"


@pytest.mark.parametrize("token", ["", "two words", "tab\there", "schlüssel", "line\n"])
def test_a_token_that_can_not_stand_in_a_header_is_refused_and_not_repeated(
    token: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HEADRACE_TOKEN", token)

    with pytest.raises(ValidationError) as refused:
        Settings()

    assert not token or token not in str(refused.value)


def test_a_bad_token_is_told_with_its_variable(tmp_path: Path) -> None:
    env = environment(HEADRACE_TOKEN="hush hush")
    done = headrace("workers", cwd=tmp_path, env=env)

    assert done.returncode == 2
    assert "HEADRACE_TOKEN can not be used: " in one_line_of(done)
    assert "no spaces" in done.stderr
    assert "hush" not in done.stderr


@pytest.mark.processes
@pytest.mark.parametrize(
    ("arguments", "extra", "says"),
    [
        (("--store", "postgresql://u:hush@h:abc/db"), {}, f"URL can not be read; {FORMS}"),
        ((), {"HEADRACE_STORE": "postgresql://u:hush@h:abc/db"}, "URL can not be read"),
        ((), {}, "no store was named; give --store URL, or set HEADRACE_STORE"),
        (("--store", "sqlite:///s.db", "--advertise", "a:7070"), {}, "--advertise takes a URL"),
        (("--store", "sqlite:///s.db"), {"HEADRACE_SEAMS": "x=explode"}, "'x=explode' is not of"),
    ],
)
def test_a_coordinator_that_can_not_start_says_why_in_one_line(
    tmp_path: Path, arguments: tuple[str, ...], extra: dict[str, str], says: str
) -> None:
    done = headrace("coordinator", *LOOPBACK, *arguments, cwd=tmp_path, env=environment(**extra))

    assert done.returncode == 2
    assert says in one_line_of(done)
    assert "hush" not in done.stderr
    assert not (tmp_path / "s.db").exists()


def test_the_store_of_the_option_wins_over_that_of_the_environment() -> None:
    settings = Settings(store=SecretStr("sqlite:///env.db"))

    assert store_url(None, settings) == "sqlite:///env.db"
    assert store_url("sqlite:///given.db", settings) == "sqlite:///given.db"
    assert store_url(None, Settings(store=None)) is None


def test_a_home_is_made_for_its_owner_only(tmp_path: Path) -> None:
    home = tmp_path / "deep" / "home"

    Context().make_home(Settings(home=home))

    assert stat.S_IMODE(home.stat().st_mode) == 0o700


def test_a_home_that_can_not_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")

    for home in (tmp_path / "file", tmp_path / "file" / "home"):
        with pytest.raises(BadSetting, match=f"--home {home} can not be made: .*another folder"):
            Context().make_home(Settings(home=home))


@pytest.mark.parametrize("text", ["x", "x=boom", "=kill", "x=kill@often", "x=kill@-1"])
def test_a_seam_that_can_not_be_read_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is not of the form NAME=kill"):
        arm_from(text)


def test_seams_are_armed_in_every_form() -> None:
    try:
        arm_from("a = kill; b=stop@3 ;; c=kill@1")
        assert armed() == {"a", "b", "c"}
    finally:
        disarm_all()
    assert armed() == frozenset()


@pytest.mark.parametrize(
    "name",
    ["PASSWD", "ssl.passphrase", "api_key", "apiKey", "azure.account.key", "fs.sas", "adls.sas.x"],
)
def test_a_name_that_sounds_secret_is_taken_as_one(name: str) -> None:
    assert is_secret(name)


@pytest.mark.parametrize("name", ["primary_key", "disaster", "table", "partition-keys"])
def test_a_name_that_does_not_is_not(name: str) -> None:
    assert not is_secret(name)
