"""headrace table …: through the real commands, against fake coordinators."""

from __future__ import annotations

import json
from typing import Any

import pytest

from headrace.cli.tables import catalogs, commands, waits
from headrace.errors import NotFound
from tests.cli.jobs.test_jobs import always, invoke
from tests.cli.machine import error_body
from tests.cli.tables.lake import CATALOG, MINUTE, NAME, NOW, PROCESS, TABLE, Script, ended, said_to


@pytest.fixture(autouse=True)
def still_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(waits, "POLL_S", 0.001)
    for module in (catalogs, commands):
        monkeypatch.setattr(module, "now_ms", lambda: NOW)


def test_tables_are_listed_for_people_page_by_page() -> None:
    second = {**TABLE, "identifier": "lake.sales.z", "status": "IDLE", "pending": None}
    script = Script(
        {
            "GET /v1/tables": [
                {"tables": [TABLE], "after": NAME},
                {"tables": [second], "after": None},
            ]
        }
    )

    shown = said_to(script, "table", "list", "--catalog", "lake", "--status", "PENDING")

    assert shown[0].split() == [
        *("table", "status", "since", "health", "files", "size", "pending", "next")
    ]
    assert shown[2].split() == [
        *(NAME, "PENDING", "3", "min", "20", "s", "62", "1,240", "3.4", "GB"),
        *("MAJOR", "412", "→", "11", "files", "planned", "in", "its", "turn"),
    ]
    assert "looked at in" in shown[3]
    assert len(script.heard) == 2


def test_when_there_are_no_tables_catalogs_are_named() -> None:
    assert "`headrace catalog list`" in invoke(
        always(200, {"tables": [], "after": None}), "table", "list"
    )


def test_a_list_that_was_cut_says_so() -> None:
    shown = invoke(always(200, {"tables": [TABLE], "after": NAME}), "table", "list", "--limit", "1")

    assert "there may be more than these 1" in shown


def test_a_table_is_shown_with_all_that_matters() -> None:
    blocker = {"name": "load", "reason": "nightly", "created_at_ms": 1, "expires_at_ms": NOW}
    told = {
        **TABLE,
        "status": "MAJOR_OPTIMIZING",
        "process": PROCESS,
        "blockers": [blocker],
        "flaws": ["a flaw"],
        "failures": 2,
        "error": "disk full",
        "not_before_ms": NOW + 5 * MINUTE,
        "left_out": ["f1", "f2", "f3", "f4"],
    }

    shown = invoke(always(200, told), "table", "show", NAME)

    for part in (
        f"{NAME}: MAJOR_OPTIMIZING for 3 min 20 s",
        "1,240 files of 3.4 GB, 12,000,000 rows, 31 partitions",
        "2 of the slots of its group, as its group default says",
        "62 of 100",
        "MAJOR: 412 → 11 files, 1.2 GB → 1.1 GB, in 3 partitions, 2 delete files",
        "process 4 (MAJOR), 3 of 8 tasks done on w1",
        "2 times in a row, tried again in 5 min 0 s",
        "load until ",
        "f1, f2, f3 and 1 more",
        f"`headrace table explain {NAME}` says why, and what happens next",
    ):
        assert part in shown


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"paused": True}, "nothing: paused"),
        ({"enabled": False}, "nothing: switched off"),
        ({"failures": 1, "not_before_ms": NOW + 9 * MINUTE, "error": "x"}, "tried again in"),
        ({"status": "PLANNING"}, "rewritten"),
        ({"status": "COMMITTING"}, "done"),
        ({"status": "FULL_OPTIMIZING"}, "committed"),
        ({"status": "IDLE", "due_at_ms": 0}, "looked at now"),
        ({"pending": None, "wanted_type": "FULL"}, "FULL asked for"),
    ],
)
def test_a_list_says_what_happens_next(changed: dict[str, Any], said: str) -> None:
    body = {"tables": [{**TABLE, **changed}], "after": None}

    assert said in invoke(always(200, body), "table", "list")


def test_an_explanation_reads_from_the_headline_down() -> None:
    body = {
        "table": NAME,
        "headline": f"{NAME} is not being optimized: it is paused",
        "findings": [
            {
                "about": "switch",
                "verdict": "blocks",
                "said": "it is paused",
                "measured": None,
                "threshold": None,
                "property": None,
                "way_out": "resume it",
            },
            {
                "about": "rule",
                "verdict": "holds",
                "said": "MINOR in [day=1]: fragments: not fired",
                "measured": "3",
                "threshold": "12",
                "property": "self-optimizing.minor.trigger.file-count",
                "way_out": None,
            },
        ],
    }

    assert said_to(always(200, body), "table", "explain", NAME) == [
        f"{NAME} is not being optimized: it is paused",
        "blocks  switch  it is paused",
        "                → resume it",
        "holds   rule    MINOR in [day=1]: fragments: not fired (measured 3, threshold 12, "
        "self-optimizing.minor.trigger.file-count)",
    ]
    assert json.loads(invoke(always(200, body), "table", "explain", NAME, output="json")) == body


def test_history_is_listed_with_what_each_process_gained() -> None:
    body = {
        "processes": [
            {**PROCESS, "number": 6, "canceling": True},
            ended("FAILED", number=5, error="disk full"),
            ended(conflicts=2),
        ]
    }

    shown = said_to(always(200, body), "table", "history", NAME)

    assert "3 of 8 tasks done, being canceled" in shown[2]
    assert "disk full" in shown[3]
    for part in ("SUCCESS", "412 → 11", "1.2 GB → 1.1 GB", "2 min 0 s", "2 bins were changed"):
        assert part in shown[4]


@pytest.mark.parametrize(
    ("command", "changed", "said"),
    [
        ("cancel", True, "is being canceled"),
        ("cancel", False, "nothing runs for"),
        ("pause", True, "is paused; `headrace table resume"),
        ("pause", False, "was paused before"),
        ("resume", True, "is looked at now"),
        ("resume", False, "was not paused"),
        ("optimize", True, "is asked for, and begins when a worker is free"),
        ("optimize", False, "was asked for before"),
    ],
)
def test_a_command_says_what_it_did(command: str, changed: object, said: str) -> None:
    view = {**TABLE, "changed": changed, "wanted_type": "MAJOR"}
    script = Script({f"POST /v1/tables/{NAME}/{command}": [view]})

    assert said in invoke(script, "table", command, NAME)


def test_a_blocker_is_taken_and_ended() -> None:
    path = f"/v1/tables/{NAME}/blockers/load"
    blocker = {"name": "load", "reason": "r", "created_at_ms": 1, "expires_at_ms": NOW}
    script = Script({f"PUT {path}": [blocker], f"DELETE {path}": [{"table": NAME, "name": "load"}]})

    assert "is left alone until" in invoke(
        script, "table", "block", NAME, "load", "--reason", "nightly", "--seconds", "60"
    )
    assert "no longer blocks" in invoke(script, "table", "unblock", NAME, "load")
    late = invoke(
        always(200, {**blocker, "committing": 4}), "table", "block", NAME, "load", "--reason", "r"
    )
    assert "but process 4 had begun to commit before, and that may still land" in late
    assert script.heard[0] == ("PUT", path, {"reason": "nightly", "seconds": 60})


def test_an_unknown_table_is_named_with_the_near_one() -> None:
    body = error_body("NotFound", "there is no table 'x'; did you mean 'y'?")
    with pytest.raises(NotFound, match="did you mean 'y'"):
        invoke(always(404, body), "table", "show", "x")


@pytest.mark.parametrize(
    ("arguments", "body"),
    [
        (("catalog", "list"), {"catalogs": [CATALOG]}),
        (("table", "list"), {"tables": [TABLE], "after": None}),
        (("table", "history", NAME), {"processes": [PROCESS]}),
    ],
)
def test_lists_for_programs_have_all_that_a_coordinator_says(
    arguments: tuple[str, ...], body: dict[str, Any]
) -> None:
    [expected] = [found for found in body.values() if found is not None]

    assert json.loads(invoke(always(200, body), *arguments, "--output", "json")) == expected


@pytest.mark.parametrize(
    ("arguments", "body"),
    [
        (("catalog", "show", "lake"), CATALOG),
        (("catalog", "remove", "lake"), CATALOG),
        (("table", "show", NAME), TABLE),
        (("table", "pause", NAME), TABLE),
        (("table", "optimize", NAME), TABLE),
    ],
)
def test_answers_for_programs_have_all_that_a_coordinator_says(
    arguments: tuple[str, ...], body: dict[str, Any]
) -> None:
    newer = {**body, "added_by_a_newer_version": 7}

    assert json.loads(invoke(always(200, newer), *arguments, output="json")) == newer
