"""The root: help for everybody, and an exit code for every branch of the error tree."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from headrace import __version__
from headrace.cli import exits, main
from headrace.errors import (
    CoordinatorUnavailable,
    JavaMissing,
    JobFailed,
    LaunchOver,
    LeaderFenced,
    Refused,
    StoreUnavailable,
)
from tests.cli.machine import environment, headrace

COMMANDS = (
    ("run",),
    ("import",),
    ("up",),
    ("job",),
    ("job", "list"),
    ("job", "show"),
    ("job", "cancel"),
    ("job", "savepoint"),
    ("job", "checkpoints"),
    ("connectors",),
    *(("connectors", name) for name in ("list", "show")),
    ("catalog",),
    *(("catalog", name) for name in ("add", "list", "show", "set", "remove")),
    ("table",),
    *(("table", name) for name in ("list", "show", "explain", "history", "plan", "optimize")),
    *(("table", name) for name in ("cancel", "pause", "resume", "block", "unblock")),
    ("group",),
    *(("group", name) for name in ("create", "list", "show", "set", "scale", "delete")),
    ("workers",),
    ("coordinator",),
    ("worker",),
    *(("worker", name) for name in ("list", "show", "drain", "logs", "release")),
    ("inspect",),
    ("store",),
    *(("store", name) for name in ("change-key", "forget-secrets")),
    ("doctor",),
)


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_each_command_explains_itself(
    command: tuple[str, ...], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["headrace", *command, "--help"])
    with pytest.raises(SystemExit) as left:
        main.main()
    said = capsys.readouterr()

    assert (left.value.code, said.err) == (0, "")
    assert said.out.startswith(f"Usage: headrace {' '.join(command)} ")
    assert "--with-parent" not in said.out


def test_help_is_given_where_nothing_else_was_imported(tmp_path: Path) -> None:
    done = headrace("job", "list", "--help", cwd=tmp_path)

    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("Usage: headrace job list ")


def test_the_commands_tested_are_all_there_are(tmp_path: Path) -> None:
    shown = headrace("--help", cwd=tmp_path).stdout.partition("Commands:")[2]

    assert set(re.findall(r"^  (\w+) ", shown, re.MULTILINE)) == {name for name, *_ in COMMANDS}


def test_the_version_is_shown(tmp_path: Path) -> None:
    assert headrace("--version", cwd=tmp_path).stdout == f"headrace {__version__}\n"


def leaving(
    error: BaseException, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> tuple[object, str]:
    def fail(*, prog_name: str) -> None:
        assert prog_name == "headrace"
        raise error

    monkeypatch.setattr(main, "app", fail)
    monkeypatch.setattr(sys, "argv", ["headrace"])
    with pytest.raises(SystemExit) as left:
        main.main()
    return left.value.code, capsys.readouterr().err


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (Refused("no"), 2),
        (JavaMissing("no"), 2),
        (LaunchOver("no"), 72),
        (JobFailed("no"), 1),
        (StoreUnavailable("no"), 75),
        (CoordinatorUnavailable("no"), 75),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, Exception) else str(value),
)
def test_an_error_of_ours_is_one_line_and_its_branch_decides_the_code(
    error: Exception,
    code: int,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert leaving(error, monkeypatch, capsys) == (code, "headrace: no\n")


@pytest.mark.parametrize("make", [lambda: KeyError("x"), lambda: LeaderFenced(1, 2)])
def test_anything_else_is_a_bug_and_says_where_its_traceback_lies(
    make: Callable[[], Exception],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    code, said = leaving(make(), monkeypatch, capsys)

    assert code == exits.BUG
    assert said.startswith("headrace: this is a bug in headrace: ")
    assert said.count("\n") == 1
    (report,) = tmp_path.glob("headrace-bug-*.log")
    assert str(report) in said
    assert "Traceback" in report.read_text()


def test_an_interrupt_leaves_with_130(tmp_path: Path) -> None:
    code = (
        "import headrace.cli.context as asking, headrace.cli.main as main, sys\n"
        "def stop(*_): raise KeyboardInterrupt\n"
        "asking.CommandCall.client = property(stop)\n"
        "sys.argv = ['headrace', 'workers']; main.main()"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=tmp_path,
        env=environment(),
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert (done.returncode, done.stderr) == (130, "")
