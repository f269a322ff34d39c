"""The JVM of a worker is killed under it; the machine goes on with another one."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest

from tests.cli.machine import environment, is_gone
from tests.crash.cluster import until
from tests.spark.standalone import QUICK_JVM

pytestmark = [pytest.mark.crash, pytest.mark.timeout(1800)]

SPARK_START_MAX_S = 600.0
STOP_MAX_S = 300.0


@contextmanager
def up(folder: Path) -> Generator[subprocess.Popen[bytes]]:
    command = (sys.executable, "-m", "headrace", "--output", "json", "up", "--port", "0")
    with (folder / "out").open("wb") as out, (folder / "err").open("wb") as err:
        process = subprocess.Popen(
            command,
            cwd=folder,
            env=environment(JAVA_TOOL_OPTIONS=QUICK_JVM),
            stdout=out,
            stderr=err,
        )
    try:
        yield process
    finally:
        if process.poll() is None:
            process.kill()
        process.wait(STOP_MAX_S)


def jvm_of(process: subprocess.Popen[bytes]) -> psutil.Process | None:
    """The one that is up, so that it has a Python worker of ours as its parent."""
    for child in psutil.Process(process.pid).children(recursive=True):
        if not is_gone(child.pid) and child.name() == "java":
            return child
    return None


def test_a_killed_jvm_is_replaced_and_the_machine_stays_up(tmp_path: Path) -> None:
    with up(tmp_path) as process:
        until(
            lambda: (tmp_path / "out").read_text() or process.poll() is not None,
            limit_s=SPARK_START_MAX_S,
            what="it is up",
        )
        first = jvm_of(process)
        assert first is not None, (tmp_path / "err").read_text()
        worker = json.loads((tmp_path / "out").read_text())["children"]["worker"]
        first.kill()
        log = tmp_path / ".headrace" / "logs" / "worker.log"

        until(
            lambda: log.read_text().count("registered") >= 2 or process.poll() is not None,
            limit_s=SPARK_START_MAX_S,
            what="another worker has registered",
        )

        assert process.poll() is None, (tmp_path / "err").read_text()
        assert is_gone(worker)
        assert jvm_of(process) not in {None, first}
        process.send_signal(signal.SIGTERM)
        assert process.wait(STOP_MAX_S) == 0, (tmp_path / "err").read_text()
    assert "this is a bug" not in log.read_text()
    [gone] = [line for line in log.read_text().splitlines() if "JVM is gone" in line]
    assert "KILLED" in gone, gone
