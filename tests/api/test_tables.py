"""/v1/tables: how tables stand and what may be asked, through the application."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from typing import Any

import pytest
from fastapi.testclient import TestClient
from prometheus_client.parser import text_string_to_metric_families
from sqlalchemy import Engine, update

from headrace.client.tables import DryPlanView
from headrace.model.tables.plan import Gain
from headrace.model.tables.status import ProcessStatus, TableStatus
from headrace.model.task import TaskStatus
from headrace.protocol.tables import Planned, PlannedBin
from headrace.store.core import leases
from headrace.store.core.engine import writing
from headrace.store.tasks.schema import tasks as task_rows
from tests.api.conftest import CLOCK, served
from tests.api.test_jobs import error_of
from tests.coordinator.tables.lake_rows import LakeRows
from tests.coordinator.tables.snapshots import PENDING, SUMMARY

NAME = "headrace.db.t"
GAIN = Gain(
    files_before=40,
    files_after=2,
    deletes_removed=3,
    bytes_before=900,
    bytes_after=800,
    bytes_read=1000,
    benefit=2.5,
)


@pytest.fixture
def lakes(store: Engine) -> LakeRows:
    return LakeRows(store, now_ms=CLOCK.wall_ms())


@pytest.fixture
def follower(store: Engine, store_url: str) -> Iterator[TestClient]:
    """Of a coordinator that doesn't lead: rows stay as a test wrote them."""
    with writing(store) as conn:
        assert leases.take(conn, None, holder="leader", address="http://leader:7300")
    with served(store_url) as client:
        yield client


def test_tables_are_listed_by_pages_and_filters(follower: TestClient, lakes: LakeRows) -> None:
    for number in range(5):
        lakes.table(f"t{number}", TableStatus.PENDING if number % 2 else TableStatus.IDLE)

    def names(query: str) -> list[str]:
        return [t["identifier"] for t in follower.get(f"/v1/tables?{query}").json()["tables"]]

    page = follower.get("/v1/tables?most=3").json()
    assert [t["identifier"] for t in page["tables"]] == [f"headrace.db.t{n}" for n in range(3)]
    assert names(f"most=3&after={page['after']}") == ["headrace.db.t3", "headrace.db.t4"]
    assert names("status=pending") == ["headrace.db.t1", "headrace.db.t3"]
    assert names("status=optimizing") == []
    assert len(names("catalog=headrace")) == 5
    said = error_of(follower.get("/v1/tables?status=PENDNG"), 422)["message"]
    assert said == "status 'PENDNG' is none that a table has; did you mean 'PENDING'?"
    assert error_of(follower.get("/v1/tables?catalog=nope"), 404)["kind"] == "NotFound"
    assert error_of(follower.get("/v1/tables?most=1001"), 422)["kind"] == "Refused"


def test_a_table_is_shown_with_all_that_is_known_of_it(
    follower: TestClient, lakes: LakeRows
) -> None:
    table = lakes.table(
        status=TableStatus.MINOR_OPTIMIZING,
        summary=SUMMARY.model_dump(mode="json"),
        pending=PENDING.model_dump(mode="json"),
        flaws=["a flaw"],
        file_failures={"bad.parquet": 3},
        processes=1,
    )
    process = lakes.process(
        table,
        rewrites=[TaskStatus.SUCCESS, TaskStatus.ACKED, TaskStatus.PLANNED],
        plan={"gain": {**asdict(GAIN), "of a newer worker": 1}, "left": 4},
    )
    lakes.name_process(table, process)
    follower.put(f"/v1/tables/{NAME}/blockers/load", json={"reason": "r", "seconds": 60})

    shown = follower.get(f"/v1/tables/{NAME}").json()

    assert (shown["status"], shown["health"], shown["files"]) == ("MINOR_OPTIMIZING", 97, 1240)
    assert shown["pending"]["files_after"] == 11
    assert (shown["flaws"], shown["left_out"]) == (["a flaw"], ["bad.parquet"])
    assert [each["name"] for each in shown["blockers"]] == ["load"]
    running = shown["process"]
    assert (running["tasks"], running["tasks_done"], running["workers"]) == (3, 1, ["w1"])
    assert (running["files_before"], running["files_planned"]) == (40, 2)
    assert running["files_after"] is None, "nothing is replaced yet"
    assert (running["snapshot"], running["partitions_left"]) == ("11", 4)


def test_history_outlives_a_table(follower: TestClient, lakes: LakeRows) -> None:
    table = lakes.table()
    lakes.process(table, ProcessStatus.FAILED, error="disk full")
    done = lakes.process(
        table, ProcessStatus.SUCCESS, result={"snapshot": 99, "conflicts": {"1": "x"}}
    )
    lakes.process("gone-table", ProcessStatus.SUCCESS, identifier="headrace.db.gone", number=7)

    [last, first] = follower.get(f"/v1/tables/{NAME}/processes").json()["processes"]
    assert (first["number"], first["status"], first["error"]) == (1, "FAILED", "disk full")
    assert (last["committed_snapshot"], last["conflicts"]) == ("99", 1)
    assert follower.get(f"/v1/tables/{NAME}/processes/2").json() == last
    assert follower.get(f"/v1/tables/{NAME}/processes/{done}").json() == last
    gone = "/v1/tables/headrace.db.gone/processes"
    assert [p["number"] for p in follower.get(gone).json()["processes"]] == [7]
    assert follower.get(f"{gone}/7").json()["number"] == 7
    for path in (f"/v1/tables/{NAME}/processes/9", f"/v1/tables/{NAME}/processes/x"):
        assert "headrace table history" in error_of(follower.get(path), 404)["message"]


def test_a_table_is_explained(follower: TestClient, lakes: LakeRows) -> None:
    lakes.table(wanted_paused=1, summary=SUMMARY.model_dump(mode="json"))

    told = follower.get(f"/v1/tables/{NAME}/explain").json()

    assert told["headline"] == f"{NAME} is not being optimized: it is paused"
    assert {"about": "switch", "verdict": "blocks", "said": "it is paused"}.items() <= next(
        each for each in told["findings"] if each["verdict"] == "blocks"
    ).items()


def test_commands_say_whether_they_changed_anything(follower: TestClient, lakes: LakeRows) -> None:
    lakes.table()

    def ask(what: str, **body: Any) -> tuple[bool, bool, str | None]:
        told = follower.post(f"/v1/tables/{NAME}/{what}", json=body or None).json()
        return told["changed"], told["paused"], told["wanted_type"]

    assert ask("optimize") == (True, False, "MAJOR")
    assert ask("optimize", type="FULL") == (True, False, "FULL")
    assert ask("optimize", type="MINOR") == (False, False, "FULL")
    assert ask("cancel") == (True, False, None)
    assert ask("pause") == (True, True, None)
    assert ask("pause") == (False, True, None)
    refused = follower.post(f"/v1/tables/{NAME}/optimize")
    assert "is paused; `headrace table resume" in error_of(refused, 422)["message"]
    assert ask("resume") == (True, False, None)
    wrong = follower.post(f"/v1/tables/{NAME}/optimize", json={"type": "HUGE"})
    assert "body.type" in error_of(wrong, 422)["message"]


def test_a_dry_plan_is_asked_for_and_polled(
    follower: TestClient, lakes: LakeRows, store: Engine
) -> None:
    lakes.table()
    asked = follower.post(f"/v1/tables/{NAME}/plan")
    assert asked.status_code == 202
    assert asked.json()["waits_for"] == "a worker of group 'default', which has none"
    task = asked.json()["task"]
    found = Planned(
        uuid="u",
        snapshot=1,
        type="MAJOR",
        tasks=(
            (PlannedBin(number=0, partition="day=1", paths=("a", "b"), bytes=2),),
            (PlannedBin(number=1, partition="day=2", paths=("c",), bytes=2),),
        ),
        gain=GAIN,
        left=3,
        left_out=("bad",),
    )
    with writing(store) as conn:
        conn.execute(
            update(task_rows)
            .where(task_rows.c.id == task)
            .values(
                status=TaskStatus.SUCCESS,
                ended_at_ms=1,
                result=found.model_dump(mode="json"),
                worker_id="w1",
                attempt=1,
            )
        )

    told = follower.get(f"/v1/tables/{NAME}/plans/{task}").json()

    assert (told["status"], told["type"], told["tasks"]) == ("SUCCESS", "MAJOR", 2)
    assert told["partitions"] == {"day=1": 2, "day=2": 1}
    assert (told["files_before"], told["files_after"], told["bytes_read"]) == (40, 2, 1000)
    assert (told["partitions_left"], told["left_out"]) == (3, ["bad"])
    assert told.keys() == DryPlanView.model_fields.keys()
    assert error_of(follower.get(f"/v1/tables/{NAME}/plans/none"), 404)["kind"] == "NotFound"


def test_a_blocker_is_taken_renewed_and_ended(follower: TestClient, lakes: LakeRows) -> None:
    lakes.table()
    path = f"/v1/tables/{NAME}/blockers/load"
    first = follower.put(path, json={"reason": "r", "seconds": 60}).json()
    again = follower.put(path, json={"reason": "r", "seconds": 90}).json()

    assert again["expires_at_ms"] > first["expires_at_ms"]
    assert again["committing"] is None
    assert follower.delete(path).json() == {"table": NAME, "name": "load"}
    assert error_of(follower.delete(path), 404)["kind"] == "NotFound"
    said = error_of(follower.put(path, json={"reason": "r", "seconds": 0}), 422)["message"]
    assert "1 to 86400 seconds" in said


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", ""),
        ("GET", "/explain"),
        ("GET", "/processes"),
        ("POST", "/optimize"),
        ("POST", "/cancel"),
        ("POST", "/pause"),
        ("POST", "/resume"),
        ("POST", "/plan"),
        ("GET", "/plans/x"),
        ("DELETE", "/blockers/x"),
    ],
)
def test_an_unknown_table_is_404_with_where_to_look(
    shared: TestClient, method: str, path: str
) -> None:
    error = error_of(shared.request(method, f"/v1/tables/lake.sales.orders{path}"), 404)

    assert error["message"].startswith("there is no table 'lake.sales.orders'; it is written")


def test_tables_and_processes_are_counted_for_an_alarm(
    follower: TestClient, lakes: LakeRows
) -> None:
    table = lakes.table(status=TableStatus.PENDING)
    lakes.process(table, settling_since_ms=1)
    lakes.process(table, ProcessStatus.FAILED, leftovers=1, discard_at_ms=2**50)

    text = follower.get("/metrics").text
    found = {
        (sample.name, *sample.labels.values()): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }

    assert found["headrace_tables", "PENDING"] == 1
    assert found["headrace_tables", "COMMITTING"] == 0
    assert found["headrace_processes", "RUNNING"] == 1
    assert found["headrace_processes", "FAILED"] == 1
    assert found["headrace_processes_settling",] == 1
    assert found["headrace_processes_leftovers",] == 1
    assert (found["headrace_catalogs", "false"], found["headrace_catalogs", "true"]) == (1, 0)
