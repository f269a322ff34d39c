"""The worker protocol over HTTP, as a worker's bytes meet it."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx2
import pytest
from fastapi.testclient import TestClient

from headrace.model.task import Claim, Lane
from headrace.protocol.messages import (
    PROTOCOL_VERSION,
    Answer,
    Goodbye,
    Held,
    LastAnswerSeen,
    Register,
    Registered,
    Sync,
)
from tests.api.conftest import BOUND_S, eventually
from tests.api.test_jobs import error_of, submission
from tests.coordinator.specs import planned, succeeded

ME = Register(
    worker="w1",
    group="default",
    slots=2,
    control_slots=1,
    version="0",
    host="h",
    pid=1,
    spark_application="app",
)
JSON = {"Content-Type": "application/json"}
WAIT = {"worker": "w1", "group": "default", "free": "SLOT,CONTROL", "timeout_s": "15"}


def post(api: TestClient, verb: str, body: str | bytes) -> httpx2.Response:
    return api.post(f"/v1/worker/{verb}", content=body, headers=JSON)


def register(api: TestClient, said: Register = ME) -> Registered:
    answer = post(api, "register", said.model_dump_json())
    assert answer.status_code == 200, answer.text
    return Registered.model_validate_json(answer.content)


def sync(api: TestClient, number: int, **said: Any) -> Answer:
    message = Sync(worker="w1", sync=number, **said)
    answer = post(api, "sync", message.model_dump_json())
    assert answer.status_code == 200, answer.text
    return Answer.model_validate_json(answer.content)


def status(api: TestClient, job: str) -> str:
    return api.get(f"/v1/jobs/{job}").json()["status"]


def test_a_job_goes_from_submission_to_its_end(api: TestClient) -> None:
    assert register(api).heartbeat_timeout_ms == 60_000
    api.post("/v1/jobs", json=submission(job_id="mine"))
    eventually(lambda: status(api, "mine") == "SCHEDULED")
    given = sync(api, 1, free={Lane.SLOT: 2})
    [assignment] = given.assignments
    claim, seen = assignment.claim, LastAnswerSeen(term=given.term, number=given.number)
    first = planned(claim)
    answer = sync(api, 2, seen=seen, holds=(Held(claim=claim),), reports=(first,))
    assert answer.acknowledged[0].plan == first.plan
    shown = api.get("/v1/workers").json()["workers"]
    assert [worker["executions"] for worker in shown] == [[claim.execution]]
    eventually(lambda: status(api, "mine") == "RUNNING")

    api.post("/v1/jobs/mine/cancel")
    eventually(lambda: status(api, "mine") == "CANCELING")
    assert sync(api, 3, seen=seen, holds=(Held(claim=claim),)).stop == (claim,)


def test_a_wait_ends_early_when_there_is_work(api: TestClient) -> None:
    register(api)
    with ThreadPoolExecutor(1) as pool:
        parked = pool.submit(api.get, "/v1/worker/wait", params=WAIT)
        api.post("/v1/jobs", json=submission(job_id="mine"))
        assert parked.result(BOUND_S).json() == {"rung": True}  # not so, when its time was over


def test_a_wait_without_news_ends_with_its_time(shared: TestClient) -> None:
    answer = shared.get("/v1/worker/wait", params={**WAIT, "timeout_s": "0.05"})

    assert answer.json() == {"rung": False}


@pytest.mark.parametrize("timeout_s", ["nan", "-1", "0"])
def test_a_wait_of_no_time_ends_at_once(shared: TestClient, timeout_s: str) -> None:
    answer = shared.get("/v1/worker/wait", params={**WAIT, "timeout_s": timeout_s})

    assert answer.json() == {"rung": False}


@pytest.mark.parametrize("wrong", [{"timeout_s": "soon"}, {"free": "SLOT,ROOF"}])
def test_a_wait_that_can_not_be_read_is_refused(shared: TestClient, wrong: dict[str, str]) -> None:
    answer = shared.get("/v1/worker/wait", params={**WAIT, **wrong})

    assert "the query can't be read" in error_of(answer, 422)["message"]


def test_a_goodbye_unregisters(api: TestClient) -> None:
    register(api)
    answer = post(api, "goodbye", Goodbye(worker="w1").model_dump_json())

    assert (answer.status_code, answer.json()) == (200, {})
    assert api.get("/v1/workers").json() == {"workers": []}
    assert not sync(api, 1).registered


@pytest.mark.req("D4")
def test_reports_of_an_unregistered_worker_are_acknowledged(api: TestClient) -> None:
    end = succeeded(Claim("gone", 3))

    answer = sync(api, 1, reports=(end,))

    assert not answer.registered
    assert [(a.seq, a.held) for a in answer.acknowledged] == [(end.seq, False)]


def test_a_sync_that_was_overtaken_is_refused(api: TestClient) -> None:
    register(api)
    sync(api, 5)

    late = post(api, "sync", Sync(worker="w1", sync=4).model_dump_json())

    refused = error_of(late, 409)
    assert refused["kind"] == "SyncOvertaken"
    assert refused["message"] == "sync 4 of worker w1 was overtaken by a later one"
    assert sync(api, 5).registered


OLDEST, NEWEST = PROTOCOL_VERSION - 1, PROTOCOL_VERSION
WAYS_OUT = {
    OLDEST - 1: "upgrade the worker",
    NEWEST + 1: "upgrade the coordinators first, then the workers",
}


@pytest.mark.parametrize("version", WAYS_OUT)
@pytest.mark.parametrize("verb", ["sync", "register", "goodbye", "brew"])
def test_another_version_of_the_protocol_is_refused_with_those_that_are_spoken(
    shared: TestClient, verb: str, version: int
) -> None:
    """Whatever else the message holds: of a newer worker it may be anything."""
    said = ME.model_dump(mode="json") | {"sync": 1, "protocol": version}
    said["reports"] = [{"kind": "TEA_BREWED", "seq": 1}] if version > NEWEST else []

    refused = error_of(shared.post(f"/v1/worker/{verb}", json=said), 422)

    assert refused["kind"] == "ProtocolRefused"
    assert (refused["oldest"], refused["newest"]) == (OLDEST, NEWEST)
    assert WAYS_OUT[version] in refused["message"]


def test_a_report_that_this_version_does_not_have_is_refused_by_its_name(
    shared: TestClient,
) -> None:
    said = Sync(worker="w1", sync=1).model_dump(mode="json")
    said["reports"] = [{"kind": "TEA_BREWED", "seq": 1}]

    refused = error_of(shared.post("/v1/worker/sync", json=said), 422)

    assert refused["kind"] == "Refused"
    assert "TEA_BREWED" in refused["message"]


def test_a_request_that_this_version_does_not_have_is_refused(shared: TestClient) -> None:
    refused = error_of(shared.post("/v1/worker/brew", json={}), 422)

    assert refused["message"] == f"protocol {NEWEST} has no POST /v1/worker/brew"


@pytest.mark.parametrize(
    ("body", "said"),
    [
        (b"{", "the message can't be read"),
        (b"{}", "worker: Field required"),
        (b'{"worker": "w1", "sync": "x"}', "sync: Input should be a valid integer"),
        (b"\xff\xfe", "the message can't be read"),
    ],
)
def test_a_message_that_can_not_be_read_is_refused(
    shared: TestClient, body: bytes, said: str
) -> None:
    assert said in error_of(post(shared, "sync", body), 422)["message"]


def test_a_field_of_a_newer_worker_is_ignored(api: TestClient) -> None:
    register(api)
    said = Sync(worker="w1", sync=1).model_dump(mode="json") | {"mood": "good"}

    assert api.post("/v1/worker/sync", json=said).status_code == 200
