"""/v1/jobs/ID/logs: what was said about a job, all of it or since a cursor."""

from __future__ import annotations

from typing import Any

import pytest
from fastapi.testclient import TestClient

from headrace.api.routes.jobs import Cursor
from headrace.model.jobs.epoch import Retention
from headrace.protocol.messages import LogLine
from tests.api.conftest import eventually, served
from tests.api.test_jobs import error_of, submission
from tests.api.test_workers import ME, register, sync

LATE_MS = 1000  # long before everything else


def texts(answer: dict[str, Any]) -> list[str]:
    return [line["text"] for line in answer["lines"]]


def given_job(api: TestClient, key: str = "k1") -> None:
    api.post("/v1/jobs", json=submission(job_id="mine", submission_key=key))
    eventually(lambda: api.get("/v1/jobs/mine").json()["status"] == "PENDING")


def test_what_the_leader_said_is_shown_in_order_with_who_said_it(api: TestClient) -> None:
    given_job(api)

    found = api.get("/v1/jobs/mine/logs").json()

    assert texts(found) == [
        "submitted: 'demo', 1 pipeline, group 'default'",
        "waits for a free slot in group 'default'; it has 0 of 0",
    ]
    assert (found["job"], found["status"], found["ended"]) == ("mine", "PENDING", False)
    assert {(line["source"], line["level"]) for line in found["lines"]} == {("coordinator", "INFO")}


def test_a_tail_has_the_last_lines_and_a_cursor_what_came_since(api: TestClient) -> None:
    given_job(api)

    first = api.get("/v1/jobs/mine/logs?tail=1").json()
    assert len(first["lines"]) == 1
    cursor = {"after": first["cursor"]}
    assert api.get("/v1/jobs/mine/logs", params=cursor).json()["lines"] == []

    api.post("/v1/jobs/mine/cancel")
    eventually(lambda: api.get("/v1/jobs/mine/logs").json()["ended"])
    since = api.get("/v1/jobs/mine/logs", params=cursor).json()
    assert texts(since)[0] == "cancel is wanted"
    assert since["status"] == "CANCELED"


def test_what_a_worker_says_late_is_shown_to_who_follows(api: TestClient) -> None:
    given_job(api)
    register(api, ME.model_copy(update={"group": "other"}))
    first = api.get("/v1/jobs/mine/logs").json()
    owner = Cursor.read(first["cursor"]).incarnation  # a worker knows it from its task
    line = LogLine(incarnation=owner, number=4, at_ms=LATE_MS, level="WARNING", text="disk is full")

    assert [sync(api, number, lines=(line,)).lines for number in (1, 2)] == [4, 4]

    since = api.get("/v1/jobs/mine/logs", params={"after": first["cursor"]}).json()
    assert since["lines"] == [
        {
            "at_ms": LATE_MS,
            "level": "WARNING",
            "source": "w1",
            "number": 4,
            "text": "disk is full",
        }
    ]
    assert texts(api.get("/v1/jobs/mine/logs").json())[0] == "disk is full"


def canceled(api: TestClient) -> str:
    """A job that has ended, and whose state is gone: its incarnation."""
    given_job(api)
    api.post("/v1/jobs/mine/cancel")
    eventually(lambda: api.get("/v1/jobs/mine").json().get("cleaned", False))
    return api.get("/v1/history?job=mine").json()["runs"][0]["incarnation"]


@pytest.mark.req("C2")
def test_lines_are_there_when_the_state_of_the_job_is_gone(store_url: str) -> None:
    with served(store_url, retention=Retention(state_cleanup_delay_ms=0)) as api:
        eventually(lambda: api.get("/health").json()["leading"])
        incarnation = canceled(api)

        first = api.get("/v1/jobs/mine/logs").json()
        assert texts(first)[-1] == "job moved from CANCELING to CANCELED"
        assert (first["job"], first["status"], first["ended"]) == ("mine", "CANCELED", True)
        cursor = {"after": first["cursor"]}
        assert api.get("/v1/jobs/mine/logs", params=cursor).json()["lines"] == []

        given_job(api, "k2")  # another one, under the same id
        assert texts(api.get("/v1/jobs/mine/logs").json())[-1].startswith("waits for")
        assert texts(api.get(f"/v1/jobs/{incarnation}/logs").json()) == texts(first)


@pytest.mark.req("C2")
def test_of_a_job_whose_lines_have_expired_the_way_to_its_error_is_told(store_url: str) -> None:
    brief = Retention(state_cleanup_delay_ms=0, job_log_expire_ms=1)
    with served(store_url, retention=brief) as api:
        eventually(lambda: api.get("/health").json()["leading"])
        canceled(api)
        eventually(lambda: api.get("/v1/jobs/mine/logs").status_code == 404)

        gone = error_of(api.get("/v1/jobs/mine/logs"), 404)

    assert gone["kind"] == "LogsGone"
    assert gone["message"].startswith("job 'mine' ended CANCELED at 20")
    assert gone["message"].endswith("`headrace job show mine` has what is left of it")


def test_a_job_that_does_not_exist_is_told_by_name(shared: TestClient) -> None:
    assert (
        "there is no job 'nobody'" in error_of(shared.get("/v1/jobs/nobody/logs"), 404)["message"]
    )


@pytest.mark.parametrize(
    ("query", "said"),
    [
        ("after=x", "`after` is not a cursor that was given out with log lines"),
        ("after=bm9wZQ==", "`after` is not a cursor that was given out with log lines"),
        ("after=%C3%A9", "`after` is not a cursor that was given out with log lines"),
        ("tail=-1", "query.tail: Input should be greater than or equal to 0"),
        ("tail=10001", "query.tail: Input should be less than or equal to 10000"),
    ],
)
def test_a_question_that_can_not_be_answered_is_told_in_words(
    shared: TestClient, query: str, said: str
) -> None:
    shared.post("/v1/jobs", json=submission(job_id="mine"))

    assert said in error_of(shared.get(f"/v1/jobs/mine/logs?{query}"), 422)["message"]
