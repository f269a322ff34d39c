"""What tests of the command line share: real commands, fake coordinators, jobs as they look."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from threading import Event

import httpx2
import psutil

from headrace.clock import SystemClock

COMMAND_MAX_S = 300.0
WAIT_MAX_S = 240.0
POLL_S = 0.05

JOB_FILE = """
env { job.mode = "BATCH" }
source { FakeSource { plugin_output = "t", row.num = 3, schema { fields { id = "int" } } } }
sink { Console { plugin_input = "t" } }
"""

Answer = Callable[[httpx2.Request], httpx2.Response]


def environment(**extra: str) -> dict[str, str]:
    """Ours without anything that changes what headrace does."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("HEADRACE_")}
    return {**kept, **extra}


def headrace(
    *arguments: str, cwd: Path, env: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """Run a real command to its end."""
    return subprocess.run(
        [sys.executable, "-m", "headrace", *arguments],
        cwd=cwd,
        env=env or environment(),
        capture_output=True,
        text=True,
        timeout=COMMAND_MAX_S,
        check=False,
        stdin=subprocess.DEVNULL,
    )


def one_line_of(done: subprocess.CompletedProcess[str]) -> str:
    """What a refused command said, which must be one line and no traceback."""
    assert "Traceback" not in done.stderr + done.stdout
    lines = [line for line in done.stderr.splitlines() if line.startswith("headrace: ")]
    assert len(lines) == 1, done.stderr
    assert done.stderr.rstrip().endswith(lines[0]), "it is the last thing said"
    return lines[0]


def wait_until(done: Callable[[], bool], what: str, *, limit_s: float = WAIT_MAX_S) -> None:
    clock = SystemClock()
    deadline_s = clock.monotonic_s() + limit_s
    while not done():
        assert clock.monotonic_s() < deadline_s, f"waited {limit_s} s: {what}"
        Event().wait(POLL_S)


def is_gone(pid: int) -> bool:
    """Ended; a zombie that nobody reaped yet has ended, too."""
    try:
        return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


def job_view(status: str = "RUNNING", **changed: object) -> dict[str, object]:
    view: dict[str, object] = {
        "id": "j1",
        "name": "demo",
        "status": status,
        "group": "default",
        "waits_for": None,
        "error": None,
        "created_at_ms": 1_700_000_000_000,
        "started_at_ms": 1_700_000_001_000,
        "ended_at_ms": None,
        "pipelines": [pipeline_view(status)],
        "savepoint": None,
        "notes": [],
        "run": 1,
        "cleaned": False,
        "cleanup": None,
        "history_until_ms": None,
    }
    return {**view, **changed}


def pipeline_view(status: str = "RUNNING", **changed: object) -> dict[str, object]:
    view: dict[str, object] = {
        "number": 1,
        "status": status,
        "epoch": 1,
        "rows_in": 1_000_000,
        "rows_out": 1_000_000,
        "read": {},
        "written": {},
        "commits": {
            "Iceberg-1": {
                "table": "demo.events",
                "snapshot": "4711",
                "rows": 1_000_000,
                "total_rows": 2_000_000,
            }
        },
        "error": None,
        "execution": "t1.1",
        "worker": "w1",
        "spark_application": "local-1",
        "progress": None,
        "attempt": None,
        "repeatable": None,
        "not_repeatable": None,
    }
    return {**view, **changed}


def error_body(kind: str, message: str) -> dict[str, object]:
    return {"error": {"kind": kind, "message": message}}


class Coordinators:
    """Fake coordinators by host name; a host that is not there refuses the connection."""

    def __init__(self, **answers: Answer) -> None:
        self._answers = answers
        self.asked: list[str] = []

    def transport(self) -> httpx2.MockTransport:
        return httpx2.MockTransport(self._answer)

    def _answer(self, request: httpx2.Request) -> httpx2.Response:
        self.asked.append(f"{request.url.host} {request.method} {request.url.path}")
        if request.url.host not in self._answers:
            raise httpx2.ConnectError("Connection refused", request=request)
        return self._answers[request.url.host](request)
