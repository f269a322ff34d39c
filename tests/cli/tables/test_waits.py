"""headrace table plan, optimize --wait: until the answer is there, or the time is over."""

from __future__ import annotations

import json
from typing import Any

import pytest

from headrace.cli.tables import catalogs, commands, waits
from headrace.errors import BadSetting, JobFailed, Unavailable
from tests.cli.jobs.test_jobs import invoke
from tests.cli.tables.lake import NAME, NOW, PLAN, PROCESS, TABLE, Script, ended, said_to


@pytest.fixture(autouse=True)
def still_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(waits, "POLL_S", 0.001)
    for module in (catalogs, commands):
        monkeypatch.setattr(module, "now_ms", lambda: NOW)


def test_optimize_waits_until_its_process_has_ended() -> None:
    running = {**TABLE, "status": "MAJOR_OPTIMIZING", "process": PROCESS, "processes": 4}
    script = Script(
        {
            f"POST /v1/tables/{NAME}/optimize": [{**TABLE, "wanted_type": "FULL"}],
            f"GET /v1/tables/{NAME}": [
                {**TABLE, "wanted_type": "FULL"},
                {**TABLE, "status": "PLANNING", "wanted_type": "FULL"},
                running,
                {**running, "status": "COMMITTING"},
                {**TABLE, "status": "IDLE", "processes": 4},
            ],
            f"GET /v1/tables/{NAME}/processes": [
                {"processes": [PROCESS]},
                {"processes": [PROCESS]},
                {"processes": [ended()]},
            ],
        }
    )

    shown = invoke(script, "table", "optimize", NAME, "--type", "full", "--wait")

    assert script.heard[0][2] == {"type": "FULL"}
    assert shown == (
        f"{NAME}: process 4 (MAJOR) ended SUCCESS after 2 min 0 s, 412 → 11 files, "
        "1.2 GB → 1.1 GB; 2 partitions left for a further process\n"
    )


def test_optimize_of_a_table_that_gains_nothing_says_so() -> None:
    script = Script(
        {
            f"POST /v1/tables/{NAME}/optimize": [{**TABLE, "wanted_type": "MAJOR"}],
            f"GET /v1/tables/{NAME}": [{**TABLE, "status": "IDLE"}],
        }
    )

    shown = invoke(script, "table", "optimize", NAME, "--wait")
    assert shown == f"nothing to do: no rewrite of {NAME} would gain anything\n"
    shown = json.loads(invoke(script, "table", "optimize", NAME, "--wait", output="json"))
    assert (shown["process"], shown["table"]["status"]) == (None, "IDLE")


@pytest.mark.parametrize(
    ("after", "newest", "said"),
    [
        (
            {"processes": 4, "status": "IDLE"},
            ended("FAILED", error="disk full"),
            "ended FAILED after 2 min 0 s: disk full",
        ),
        (
            {"failures": 1, "error": "no metadata", "wanted_type": "MAJOR"},
            None,
            "could not be planned: no metadata",
        ),
    ],
    ids=["process", "plan"],
)
def test_optimize_that_ends_otherwise_fails_with_the_reason(
    after: dict[str, Any], newest: dict[str, Any] | None, said: str
) -> None:
    script = Script(
        {
            f"POST /v1/tables/{NAME}/optimize": [{**TABLE, "wanted_type": "MAJOR"}],
            f"GET /v1/tables/{NAME}": [{**TABLE, **after}],
            f"GET /v1/tables/{NAME}/processes": [{"processes": [newest]}],
        }
    )

    with pytest.raises(JobFailed, match=said):
        invoke(script, "table", "optimize", NAME, "--wait")


def test_a_wait_has_a_limit_and_says_where_to_look() -> None:
    waiting = {**TABLE, "wanted_type": "MAJOR"}
    script = Script(
        {
            f"POST /v1/tables/{NAME}/optimize": [waiting],
            f"GET /v1/tables/{NAME}": [waiting],
        }
    )

    with pytest.raises(Unavailable, match="within 1 s; it goes on, and `headrace table explain"):
        invoke(script, "table", "optimize", NAME, "--wait", "--timeout", "1")


def planned(**changed: Any) -> Script:
    done = {**PLAN, "status": "SUCCESS", "waits_for": None, **changed}
    return Script(
        {
            f"POST /v1/tables/{NAME}/plan": [PLAN],
            f"GET /v1/tables/{NAME}/plans/t9": [PLAN, {**PLAN, "status": "ACKED"}, done],
        }
    )


def test_a_plan_shows_what_would_be_rewritten_and_gained() -> None:
    gain = {
        "type": "MAJOR",
        "files_before": 412,
        "files_after": 11,
        "bytes_before": 1_200_000_000,
        "bytes_after": 1_100_000_000,
        "bytes_read": 1_250_000_000,
        "deletes_removed": 2,
        "partitions": {f"day={n}": 40 - n for n in range(12)},
        "tasks": 8,
        "partitions_left": 2,
        "left_out": ["bad.parquet"],
    }

    shown = said_to(planned(**gain), "table", "plan", NAME)

    assert shown[0] == (
        f"{NAME}: a MAJOR process would rewrite 412 files and 2 delete files into 11 files, "
        "1.2 GB → 1.1 GB, in 8 tasks"
    )
    assert shown[2].split() == ["partition", "day=0:", "40", "files"]
    assert any("and 2 partitions more" in line for line in shown)
    assert any("1 file that failed too often: bad.parquet" in line for line in shown)
    assert shown[-1] == "nothing was changed"


def test_a_plan_of_a_table_that_gains_nothing_says_why() -> None:
    script = planned(reason="no rule has fired")

    assert invoke(script, "table", "plan", NAME, "--type", "major") == (
        f"{NAME}: nothing to do: no rule has fired\n"
    )
    assert script.heard[0][2] == {"type": "MAJOR"}


def test_a_plan_that_fails_is_told_with_its_reason() -> None:
    with pytest.raises(JobFailed, match="can't be planned: no metadata"):
        invoke(planned(status="FAILED", error="no metadata"), "table", "plan", NAME)


def test_a_type_that_is_none_is_refused_with_those_there_are() -> None:
    with pytest.raises(BadSetting, match=r"take minor .*, major .* or full"):
        invoke(Script({}), "table", "optimize", NAME, "--type", "huge")
