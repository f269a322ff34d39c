"""headrace import: a table for people, JSON for programs, and an exit code that says the result."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from headrace.cli.main import app
from headrace.errors import NotFound

RUNS = "source { FakeSource { schema { fields { id = int } } } }\nsink { Console { } }\n"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "runs.conf").write_text(RUNS)
    (tmp_path / "differs.conf").write_text("env { flink.x = 1 }\n" + RUNS)
    return tmp_path


def test_all_would_run(folder: Path) -> None:
    done = CliRunner().invoke(app, ["import", str(folder)], catch_exceptions=False)

    assert done.exit_code == 0
    rows = [line.split(maxsplit=1) for line in done.output.splitlines() if ".conf" in line]
    assert rows[0][0] == "differs.conf"
    assert "runs, with differences" in rows[0][1]
    assert "1:7: option 'flink.x' of env has no effect yet" in rows[0][1]
    assert [cell.strip() for cell in rows[1]] == ["runs.conf", "runs"]
    assert "2 of 2 job files would run here (runs: 1; runs, with differences: 1)" in done.output


def test_what_keeps_the_others_is_told_and_the_exit_code_is_1(folder: Path) -> None:
    (folder / "lacks.conf").write_text(RUNS + "transform { Embedding { } }\n")
    (folder / "values.conf").write_text(RUNS.replace("Console {", "Console { parallelism = ${n}"))

    done = CliRunner().invoke(app, ["import", str(folder)], catch_exceptions=False)

    assert done.exit_code == 1
    assert "2 of 4 job files would run here" in done.output
    assert "not built: transform Embedding (1 file)" in done.output

    given = ["import", str(folder), "-i", "n=1", "--output", "json"]
    answer = json.loads(CliRunner().invoke(app, given, catch_exceptions=False).output)
    assert answer["counts"]["NEEDS_VALUES"] == 0
    assert answer["missing"] == [{"what": "transform Embedding", "files": 1}]
    (lacking,) = (each for each in answer["files"] if each["verdict"] == "NOT_BUILT")
    assert (lacking["path"], lacking["problems"][0]["line"]) == ("lacks.conf", 3)


def test_a_folder_without_jobs_is_refused(tmp_path: Path) -> None:
    with pytest.raises(NotFound):
        CliRunner().invoke(app, ["import", str(tmp_path)], catch_exceptions=False)
