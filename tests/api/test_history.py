"""/v1/history, and a job under /v1/jobs from its end until all of it is gone."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from fastapi.testclient import TestClient
from prometheus_client.parser import text_string_to_metric_families
from sqlalchemy import Engine, insert, select

from headrace.model.jobs.epoch import DAY_MS, CleanupStep, Retention
from headrace.model.jobs.status import JobStatus
from headrace.store.core.engine import reading, writing
from headrace.store.jobs import cleanups as store_cleanups
from headrace.store.jobs import history as store_history
from headrace.store.jobs.history import EndedRun
from headrace.store.jobs.schema import cleanups, history
from tests.api.conftest import CLOCK, eventually, served
from tests.api.test_jobs import error_of, submission
from tests.api.test_savepoints import Worker, restoring, stopped_job
from tests.api.test_workers import status
from tests.coordinator.jobs.streaming import streaming
from tests.coordinator.jobs.test_commands import with_secret
from tests.coordinator.specs import SECRET

FACTS = {
    "number": 1,
    "status": "FAILED",
    "epoch": 4,
    "positions": {"FakeSource-1": 400},
    "rows_in": 400,
    "rows_out": 390,
    "commits": {"Iceberg-1": {"table": "demo.events", "snapshot": "4711"}},
    "written": {"Iceberg-1": 390},
    "read": {"FakeSource-1": 400},
    "error": "the disk is full",
}

FAR_MS = 1 << 50  # every cleanup is due by then


def ended(job: str = "old", run: int = 1, **changed: Any) -> EndedRun:
    now_ms = CLOCK.wall_ms()
    made: dict[str, Any] = {
        "incarnation": f"of-{job}",
        "run": run,
        "job_id": job,
        "submission_key": f"{job}-{run}",
        "name": "nightly",
        "group": "default",
        "status": JobStatus.FAILED,
        "error": "pipeline 1 failed: the disk is full",
        "created_at_ms": now_ms - 9_000,
        "started_at_ms": now_ms - 8_000,
        "ended_at_ms": now_ms - 1_000 + run,
        "spec": {},
        "pipelines": [FACTS],
    }
    return EndedRun(**{**made, **changed})


def given_history(store: Engine, *runs: EndedRun) -> None:
    with writing(store) as conn:
        for run in runs:
            store_history.put(conn, run)


def given_cleanup(store: Engine, of: str = "of-old", **changed: Any) -> None:
    """Far from due, so that the leader lets it lie."""
    later_ms = CLOCK.wall_ms() + DAY_MS
    made: dict[str, Any] = {
        "incarnation": of,
        "job_id": of.removeprefix("of-"),
        "group_name": "default",
        "step": CleanupStep.TARGETS,
        "made_at_ms": CLOCK.wall_ms(),
        "due_at_ms": later_ms,
        "targets_due_at_ms": later_ms,
    }
    with writing(store) as conn:
        conn.execute(insert(cleanups).values(**{**made, **changed}))


def runs(api: TestClient, query: str = "") -> list[tuple[str, int]]:
    answer = api.get(f"/v1/history{query}")
    assert answer.status_code == 200, answer.text
    return [(run["id"], run["run"]) for run in answer.json()["runs"]]


def gauges(api: TestClient) -> dict[tuple[str, ...], float]:
    """By name and values of labels, these in the order of their names."""
    return {
        (sample.name, *sample.labels.values()): sample.value
        for family in text_string_to_metric_families(api.get("/metrics").text)
        for sample in family.samples
    }


@pytest.mark.req("C7")
def test_a_job_that_only_waits_for_its_cleanup_runs_nowhere_and_is_in_history(
    api: TestClient,
) -> None:
    api.post("/v1/jobs", json=submission(job_id="mine"))
    eventually(lambda: status(api, "mine") == "PENDING")
    assert runs(api) == [], "what runs is not in history"
    assert gauges(api)["headrace_jobs", "PENDING"] == 1

    api.post("/v1/jobs/mine/cancel")
    eventually(lambda: status(api, "mine") == "CANCELED")

    assert api.get("/v1/jobs").json()["jobs"] == []
    found = gauges(api)
    assert [key for key in found if key[0] == "headrace_jobs"] == []
    assert found["headrace_history", "CANCELED"] == 1
    assert found["headrace_cleanups", "false", "STATE"] == 1
    assert runs(api) == [("mine", 1)]
    view = api.get("/v1/jobs/mine").json()
    assert (view["cleaned"], view["run"], view["cleanup"]["step"]) == (False, 1, "STATE")
    assert view["cleanup"]["due_at_ms"] == view["ended_at_ms"] + 60_000
    assert view["history_until_ms"] == view["ended_at_ms"] + 7 * DAY_MS


@pytest.fixture
def hasty(store_url: str) -> Iterator[TestClient]:
    """The API of a leader that deletes the state of a job as it ends."""
    with served(store_url, retention=Retention(state_cleanup_delay_ms=0)) as client:
        eventually(lambda: client.get("/health").json()["leading"])
        yield client


@pytest.mark.req("C2", "C7")
def test_a_job_whose_state_goes_at_once_is_still_seen_to_its_end(hasty: TestClient) -> None:
    made = hasty.post("/v1/jobs", json=submission(with_secret(), job_id="mine"))
    assert made.status_code == 201
    hasty.post("/v1/jobs/mine/cancel")
    eventually(lambda: hasty.get("/v1/jobs/mine").json()["cleaned"])

    view = hasty.get("/v1/jobs/mine").json()
    assert (view["status"], len(view["pipelines"])) == ("CANCELED", 1)
    assert hasty.get("/v1/jobs").json()["jobs"] == []
    assert hasty.post("/v1/jobs/mine/cancel").json()["status"] == "CANCELED"
    again = hasty.post("/v1/jobs", json=submission(with_secret(), job_id="mine"))
    assert (again.status_code, again.json()["cleaned"]) == (201, True), "the same key, the same job"


def test_of_a_job_whose_state_is_gone_history_shows_all_there_is(
    api: TestClient, store: Engine
) -> None:
    given_history(store, ended(run=1), ended(run=2))
    given_cleanup(store, failures=2, error="the table is away")

    view = api.get("/v1/jobs/old").json()

    assert (view["id"], view["run"], view["cleaned"]) == ("old", 2, True)
    [pipeline] = view["pipelines"]
    shown = ("number", "status", "epoch", "rows_in", "rows_out", "commits", "error")
    assert {name: pipeline[name] for name in shown} == {name: FACTS[name] for name in shown}
    cleanup = view["cleanup"]
    assert (cleanup["step"], cleanup["failures"]) == ("TARGETS", 2)
    assert cleanup["error"] == "the table is away"
    assert cleanup["waits_for"] == "a worker in group 'default'"
    assert gauges(api)["headrace_cleanups", "true", "TARGETS"] == 1
    assert gauges(api)["headrace_cleanups", "false", "TARGETS"] == 0
    gone = error_of(api.get("/v1/jobs/old/checkpoints"), 404)
    assert gone["message"] == (
        "there is no checkpoint of job 'old'; it is FAILED, and they were deleted with its state; "
        "`headrace job show old` shows how it ended"
    )


def test_a_cleanup_that_a_worker_can_carry_out_waits_for_none(
    api: TestClient, store: Engine
) -> None:
    Worker(api)
    given_history(store, ended())
    given_cleanup(store)

    assert api.get("/v1/jobs/old").json()["cleanup"]["waits_for"] is None


def test_history_is_filtered(api: TestClient, store: Engine) -> None:
    given_history(
        store,
        ended("a", run=1, status=JobStatus.SAVEPOINT_DONE, error=None),
        ended("a", run=2),
        ended("b", run=3, name="hourly", status=JobStatus.FINISHED, error=None),
    )

    assert runs(api) == [("b", 3), ("a", 2), ("a", 1)], "the latest first"
    assert runs(api, "?job=a") == [("a", 2), ("a", 1)]
    assert runs(api, "?job=a&status=failed") == [("a", 2)]
    assert runs(api, "?name=hourly") == [("b", 3)]
    assert runs(api, "?most=1") == [("b", 3)]
    assert runs(api, "?job=nobody") == []
    first = api.get("/v1/history?most=1").json()["runs"][0]
    assert (first["incarnation"], first["status"]) == ("of-b", "FINISHED")
    assert first["pipelines"][0]["rows_out"] == FACTS["rows_out"]


@pytest.mark.parametrize(
    ("query", "said"),
    [
        (
            "?status=RUNNING",
            "status 'RUNNING' is not one that a job ends in; take CANCELED, FAILED",
        ),
        ("?most=0", "query.most: Input should be greater than or equal to 1"),
        ("?most=1001", "query.most: Input should be less than or equal to 1000"),
    ],
)
def test_a_filter_that_can_not_be_used_is_told_in_words(
    shared: TestClient, query: str, said: str
) -> None:
    assert said in error_of(shared.get(f"/v1/history{query}"), 422)["message"]


def test_a_job_that_nobody_knows_any_more_is_told_how_long_history_is_kept(
    shared: TestClient,
) -> None:
    assert error_of(shared.get("/v1/jobs/nobody"), 404)["message"] == (
        "there is no job 'nobody'; `headrace job list` shows what runs, "
        "`headrace job history` what has ended, for 10080 minutes"
    )


def test_history_holds_no_secret(api: TestClient, store: Engine) -> None:
    api.post("/v1/jobs", json=submission(with_secret(), job_id="mine"))
    api.post("/v1/jobs/mine/cancel")
    eventually(lambda: runs(api) == [("mine", 1)])

    said = [api.get(path).text for path in ("/v1/history", "/v1/jobs/mine", "/metrics")]
    assert not [text for text in said if SECRET in text]
    with reading(store) as conn:
        [stored] = conn.execute(select(history.c.spec)).scalars()
    assert stored["pipelines"][0]["sinks"][0]["name"] == "Iceberg-1"
    assert SECRET not in json.dumps(stored)


@pytest.mark.req("C2")
def test_a_savepoint_is_kept_until_it_expires_or_is_deleted(api: TestClient) -> None:
    stopped_job(api, Worker(api))
    made = api.get("/v1/jobs/mine").json()["savepoint"]
    assert made["expires_at_ms"] == made["made_at_ms"] + 7 * DAY_MS

    deleted = api.delete("/v1/jobs/mine/savepoint")

    assert (deleted.status_code, deleted.json()) == (200, {"id": "mine"})
    assert api.get("/v1/jobs/mine").json()["savepoint"] is None
    assert api.post("/v1/jobs", json=restoring(streaming())).status_code == 422
    assert (
        "there is no savepoint of job 'mine'"
        in error_of(api.delete("/v1/jobs/mine/savepoint"), 404)["message"]
    )


def test_a_savepoint_that_outlived_history_is_named(api: TestClient, store: Engine) -> None:
    stopped_job(api, Worker(api))
    with writing(store) as conn:
        assert store_history.expire(conn, until_ms=CLOCK.wall_ms() + DAY_MS) == 1
    forget_rows(store)

    message = error_of(api.get("/v1/jobs/mine"), 404)["message"]

    assert "its savepoint is still kept" in message
    assert "`headrace run JOB_FILE --restore mine`" in message
    assert "`headrace job savepoint delete mine`" in message


def forget_rows(store: Engine) -> None:
    """As the cleanup does once it is due."""
    with writing(store) as conn:
        [incarnation] = store_cleanups.due(conn, now_ms=FAR_MS, most=2)
        found = store_cleanups.get(conn, incarnation)
        assert found is not None
        store_cleanups.delete_rows(conn, found.job_id, found.incarnation)


MADE = "6a80745f3f144badb162a0ab6eeb1a4a"


def test_ids_are_found_by_their_beginning_also_when_only_history_has_them(
    api: TestClient, store: Engine
) -> None:
    with writing(store) as conn:
        for job in (MADE, "6a81" + MADE[4:], "6a80-nightly", "cafe"):
            store_history.put(conn, ended(job))
    api.post("/v1/jobs", json=submission(job_id="6a80ffff" + MADE[8:]))

    def found(prefix: str, kind: str = "job") -> list[str]:
        return api.get("/v1/ids", params={"kind": kind, "prefix": prefix}).json()["ids"]

    assert found("6a80") == [MADE, "6a80ffff" + MADE[8:]], "and no id that somebody chose"
    assert found("6a807") == [MADE]
    assert found("cafe") == ["cafe"], "but for the very one"
    assert found("6a80", "worker") == found("6a80", "resource") == []
    for prefix in ("6a8", "nightly", "6A80", MADE + "0"):
        error_of(api.get("/v1/ids", params={"kind": "job", "prefix": prefix}), 422)
