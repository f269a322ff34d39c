"""The one command, as a newcomer types it: from a job file to a lake table, twice."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.spark.standalone import QUICK_JVM

ROOT = Path(__file__).parents[2]
RUN_MAX_S = 900.0
ROWS = 2 * 20_000

pytestmark = pytest.mark.timeout(2 * RUN_MAX_S + 60)


def run(job: Path, cwd: Path) -> dict[str, Any]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("HEADRACE_")}
    done = subprocess.run(
        [sys.executable, "-m", "headrace", "--output", "json", "run", str(job)],
        cwd=cwd,
        env={**kept, "JAVA_TOOL_OPTIONS": QUICK_JVM},
        capture_output=True,
        text=True,
        timeout=RUN_MAX_S,
        check=False,
        stdin=subprocess.DEVNULL,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def _shows(view: dict[str, Any]) -> None:
    """The command that the summary names, run as it stands: it is about the table that was made."""
    [output] = view["outputs"]
    assert output["table"] == "headrace.demo.events"
    assert Path(output["location"].removeprefix("file:")).is_dir()
    python, *rest = shlex.split(output["pyiceberg"])
    assert python == "python"
    shown = subprocess.run(
        [sys.executable, *rest],
        capture_output=True,
        text=True,
        timeout=RUN_MAX_S,
        check=False,
        stdin=subprocess.DEVNULL,
    )
    assert shown.returncode == 0, shown.stderr
    assert shown.stdout.startswith("pyarrow.Table\n")
    assert "id: int64" in shown.stdout


def test_the_demo_run_twice_shows_the_rows_of_both_runs(tmp_path: Path) -> None:
    demo = (ROOT / "examples" / "demo.conf").read_text()
    assert "row.num = 500000" in demo
    job = tmp_path / "demo.conf"
    job.write_text(demo.replace("row.num = 500000", f"row.num = {ROWS // 2}"))

    first, second = run(job, tmp_path), run(job, tmp_path)

    assert [view["status"] for view in (first, second)] == ["FINISHED", "FINISHED"]
    facts = [view["pipelines"][0]["commits"]["Iceberg-1"] for view in (first, second)]
    assert [fact["rows"] for fact in facts] == [ROWS, ROWS]
    assert [fact["total_rows"] for fact in facts] == [ROWS, 2 * ROWS]
    assert facts[0]["snapshot"] != facts[1]["snapshot"]
    _shows(second)
    assert not list((tmp_path / ".headrace" / "outbox").iterdir()), "nothing is left behind"
