"""A coordinator that is away: commands say which one, what was tried, and how it is known."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import httpx2
import pytest
from typer.testing import CliRunner, Result

from headrace.cli.context import Context
from headrace.cli.local import up_file
from headrace.cli.local.up_file import UpFile
from headrace.cli.main import app
from headrace.client import client
from headrace.errors import CoordinatorUnavailable

ADDRESS = "http://127.0.0.1:7300"
HINT = "start one with `headrace up`"


@pytest.fixture(autouse=True)
def short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client, "ROUND_PAUSE_S", 0.001)


def invoke(home: Path, *arguments: str) -> str:
    def refuse(_: httpx2.Request) -> httpx2.Response:
        raise httpx2.ConnectError("Connection refused")

    context = Context(transport=httpx2.MockTransport(refuse))
    command = [*arguments, "--home", str(home)]
    done: Result = CliRunner().invoke(app, command, obj=context)
    assert isinstance(done.exception, CoordinatorUnavailable)
    return str(done.exception)


def gone_pid() -> int:
    """Of a process that has ended."""
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    return ended.pid


COMMANDS = [("job", "list"), ("job", "show", "j1"), ("workers",), ("table", "list")]


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_one_that_was_named_and_is_away_is_told_with_what_was_tried(
    tmp_path: Path, command: tuple[str, ...]
) -> None:
    said = invoke(tmp_path, *command, "--coordinator", "http://a:1,http://b:2")

    assert said.startswith(
        "no coordinator answers: http://a:1 (Connection refused), http://b:2 (Connection refused), "
        "asked 3 times in 0."
    )
    assert said.endswith(
        "that is what --coordinator names; check the address, and that one runs there"
    )
    assert "headrace up" not in said


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_one_whose_up_runs_is_told_to_come_back(tmp_path: Path, command: tuple[str, ...]) -> None:
    with up_file.written(tmp_path, UpFile(address=ADDRESS, pid=os.getpid())):
        said = invoke(tmp_path, *command)

    assert f"{ADDRESS} (Connection refused)" in said
    assert f"process {os.getpid()}, up since 20" in said
    assert f"starts its coordinator again by itself: try again, or see {tmp_path}/logs/" in said
    assert HINT not in said


def test_one_whose_up_was_killed_is_told_so(tmp_path: Path) -> None:
    with up_file.written(tmp_path, UpFile(address=ADDRESS, pid=gone_pid())):
        said = invoke(tmp_path, "job", "list")

    assert "was killed; its jobs are kept, and go on when it is started again" in said
    assert HINT not in said


def test_a_process_that_is_younger_than_the_file_is_another_program(tmp_path: Path) -> None:
    with up_file.written(tmp_path, UpFile(address=ADDRESS, pid=os.getpid())):
        os.utime(tmp_path / up_file.NAME, (1, 1))
        said = invoke(tmp_path, "job", "list")

    assert "was killed" in said


def test_where_none_was_ever_started_the_way_to_one_is_told(tmp_path: Path) -> None:
    assert HINT in invoke(tmp_path, "job", "list")
