"""/health, /metrics, the token, and a coordinator that does not lead."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest
from fastapi.testclient import TestClient
from prometheus_client.parser import text_string_to_metric_families
from sqlalchemy import Engine, update

from headrace.store import leases
from headrace.store.engine import writing
from headrace.store.facts import OLDEST_PROGRAM, PROGRAM_LEVEL
from headrace.store.fence import Term
from headrace.store.schema import facts
from tests.api.conftest import ADDRESS, eventually, served
from tests.api.test_jobs import error_of, submission

LEADER = "http://leader:7300"
SCRAPES = 8


@pytest.fixture
def follower(store: Engine, store_url: str) -> Iterator[TestClient]:
    """The API of a coordinator beside one that leads."""
    with writing(store) as conn:
        assert leases.take(conn, None, holder="leader", address=LEADER)
    with served(store_url) as client:
        eventually(lambda: client.get("/health").json()["leader"] == LEADER)
        yield client


@pytest.fixture
def guarded(sqlite_url: str) -> Iterator[TestClient]:
    with served(sqlite_url, token="right") as client:
        yield client


@pytest.mark.parametrize("path", ["/v1/jobs", "/metrics", "/v1/worker/wait", "/nowhere"])
def test_without_the_token_nothing_is_answered(guarded: TestClient, path: str) -> None:
    for shown in ("", "Bearer wrong", "Bearer right ", "right", "Basic right", "Bearer \xe9"):
        refused = error_of(guarded.get(path, headers=[(b"Authorization", shown.encode())]), 401)
        assert refused["kind"] == "Unauthorized"
        assert "HEADRACE_TOKEN" in refused["message"]
    assert error_of(guarded.get(path), 401)["kind"] == "Unauthorized"


def test_with_the_token_everything_is_answered(guarded: TestClient) -> None:
    for scheme in ("Bearer", "bearer", "BEARER"):
        shown = {"Authorization": f"{scheme} right"}
        assert guarded.get("/v1/jobs", headers=shown).status_code == 200


def test_a_wrong_token_is_told_from_none_and_the_coordinator_is_named(guarded: TestClient) -> None:
    none = error_of(guarded.get("/v1/jobs"), 401)["message"]
    wrong = error_of(guarded.get("/v1/jobs", headers={"Authorization": "Bearer x"}), 401)["message"]

    assert none.startswith(f"coordinator {ADDRESS} needs a token; set HEADRACE_TOKEN")
    assert wrong.startswith(f"coordinator {ADDRESS} was started with another token; set HEADRACE")


def test_health_needs_no_token(guarded: TestClient) -> None:
    assert guarded.get("/health").status_code == 200


def test_health_says_who_leads(api: TestClient) -> None:
    health = api.get("/health").json()

    assert (health["status"], health["leading"], health["leader"]) == ("ok", True, ADDRESS)
    assert health["term"] >= 1
    assert health["store"] in {"sqlite", "postgresql"}


def test_metrics_can_be_read_and_show_what_stands_in_the_store(api: TestClient) -> None:
    api.post("/v1/jobs", json=submission(job_id="mine"))
    eventually(lambda: api.get("/v1/jobs/mine").json()["status"] == "PENDING")

    text = api.get("/metrics").text
    found = {
        (sample.name, *sample.labels.values()): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }

    assert found["headrace_leading",] == 1
    assert found["headrace_jobs", "PENDING"] == 1
    assert ("headrace_jobs", "CREATED") not in found


def test_scrapes_at_the_same_time_do_not_see_half_of_each_other(api: TestClient) -> None:
    api.post("/v1/jobs", json=submission(job_id="mine"))
    eventually(lambda: api.get("/v1/jobs/mine").json()["status"] == "PENDING")

    with ThreadPoolExecutor(SCRAPES) as pool:
        texts = [text.text for text in pool.map(api.get, ["/metrics"] * SCRAPES)]

    for text in texts:
        assert text.count('headrace_jobs{status="PENDING"} 1.0') == 1
        assert text.count("# TYPE headrace_jobs ") == 1


@pytest.mark.req("L3")
def test_a_follower_answers_reads_and_takes_commands(follower: TestClient) -> None:
    assert follower.post("/v1/jobs", json=submission(job_id="mine")).status_code == 201
    assert follower.get("/v1/jobs/mine").json()["status"] == "CREATED"
    assert follower.post("/v1/jobs/mine/cancel").status_code == 200
    assert follower.get("/v1/workers").json() == {"workers": []}
    assert follower.get("/health").json()["leading"] is False


@pytest.mark.req("L3")
@pytest.mark.parametrize("verb", ["sync", "register", "goodbye", "wait"])
def test_a_follower_tells_a_worker_where_the_leader_is(follower: TestClient, verb: str) -> None:
    bodies = {
        "sync": {"worker": "w1", "sync": 1},
        "goodbye": {"worker": "w1"},
        "register": {
            "worker": "w1",
            "group": "default",
            "slots": 1,
            "control_slots": 1,
            "version": "0",
            "host": "h",
            "pid": 1,
            "spark_application": "a",
        },
    }
    url = f"/v1/worker/{verb}"

    answer = follower.get(url) if verb == "wait" else follower.post(url, json=bodies[verb])

    assert error_of(answer, 421) == {
        "kind": "NotLeader",
        "message": f"this coordinator does not lead; {LEADER} does",
        "leader": LEADER,
    }


@pytest.mark.req("L4")
def test_a_coordinator_that_became_too_old_answers_reads_and_leads_no_more(
    follower: TestClient, store: Engine, caplog: pytest.LogCaptureFixture
) -> None:
    """The store was upgraded by a newer program while this one ran."""
    with writing(store) as conn:
        conn.execute(
            update(facts).where(facts.c.name == OLDEST_PROGRAM).values(value=str(PROGRAM_LEVEL + 1))
        )
        left = leases.read(conn)
        assert left is not None
        assert leases.resign(conn, Term(left.holder, left.epoch))

    eventually(lambda: "may not lead" in caplog.messages)

    assert follower.get("/health").json()["leading"] is False
    assert follower.get("/v1/jobs").json() == {"jobs": []}
    with writing(store) as conn:
        found = leases.read(conn)
    assert found is not None
    assert found.vacant


@pytest.mark.req("L2")
def test_a_coordinator_that_stops_hands_over_at_once(store: Engine, store_url: str) -> None:
    with served(store_url) as client:
        eventually(lambda: client.get("/health").json()["leading"])
    with writing(store) as conn:
        left = leases.read(conn)

    assert left is not None
    assert left.vacant
    with served(store_url) as client:
        eventually(lambda: client.get("/health").json()["leading"])
        assert client.get("/health").json()["term"] > left.epoch
