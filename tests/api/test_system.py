"""/health, /metrics, the token, and a coordinator that does not lead."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import fastapi.dependencies.utils
import fastapi.routing
import psycopg
import pytest
from fastapi.routing import APIRoute
from fastapi.testclient import TestClient
from prometheus_client.parser import text_string_to_metric_families
from psycopg import sql
from sqlalchemy import Connection, Engine, event, update

from headrace.api.routes import groups, jobs, system, tables
from headrace.coordinator import service
from headrace.coordinator.service import Coordinator
from headrace.store.core import leases
from headrace.store.core.engine import open_store, with_keyring, writing
from headrace.store.core.keyring import GivenKeys, Keyring, SecretKey
from headrace.store.core.schema import OLDEST_PROGRAM, PROGRAM_LEVEL, facts
from headrace.store.core.transactions import Term
from headrace.store.key_change import change_key
from tests.api.conftest import ADDRESS, eventually, served
from tests.api.test_jobs import error_of, submission
from tests.api.test_savepoints import Worker
from tests.coordinator.specs import completed, planned, prepared
from tests.stores import KEY

LEADER = "http://leader:7300"
SCRAPES = 8
NOT_WRITTEN = "the store can't be written"


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
    assert health["problems"] == []
    assert health["term"] >= 1
    assert health["store"] in {"sqlite", "postgresql"}


def problems_of(client: TestClient) -> list[str]:
    answer = client.get("/health")
    health = answer.json()
    assert answer.status_code == 200, "it lives, and a restart would change nothing"
    assert health["status"] == ("degraded" if health["problems"] else "ok")
    return health["problems"]


def test_health_says_that_a_sqlite_store_can_not_be_written(sqlite_url: str) -> None:
    read_only = threading.Event()

    def begin(conn: Connection) -> None:
        conn.exec_driver_sql(f"PRAGMA query_only = {int(read_only.is_set())}")

    event.listen(Engine, "begin", begin, insert=True)
    try:
        with served(sqlite_url) as client:
            eventually(lambda: client.get("/health").json()["leading"])
            read_only.set()
            eventually(lambda: problems_of(client) == [NOT_WRITTEN, "nobody leads"])

            read_only.clear()
            eventually(lambda: problems_of(client) == [])
    finally:
        event.remove(Engine, "begin", begin)


def test_health_says_that_a_postgresql_store_is_read_only(postgresql_url: str) -> None:
    with served(postgresql_url) as client:
        eventually(lambda: client.get("/health").json()["leading"])
        _set_read_only(postgresql_url, "on")
        eventually(lambda: problems_of(client) == [NOT_WRITTEN, "nobody leads"])

        _set_read_only(postgresql_url, "off")
        eventually(lambda: problems_of(client) == [])


def test_health_names_the_key_that_a_coordinator_was_not_given(
    postgresql_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(service, "KEY_PAUSE_S", 0.1)
    newer = SecretKey.new()
    missing = f"the store's key {newer.id} is not held here: it only answers"
    other = open_store(postgresql_url, keys=GivenKeys([newer, KEY]))
    with served(postgresql_url) as client:
        eventually(lambda: client.get("/health").json()["leading"])
        change_key(other)
        eventually(lambda: problems_of(client) == [missing, "nobody leads"])

        with writing(other) as conn:
            assert leases.take(conn, leases.read(conn), holder="other", address=LEADER)
        eventually(lambda: problems_of(client) == [missing])

        with_keyring(other, Keyring(GivenKeys([KEY, newer])))
        change_key(other)
        eventually(lambda: problems_of(client) == [])
        eventually(lambda: client.get("/health").json()["leading"])  # the key is there before that
    other.dispose()


def _set_read_only(url: str, value: str) -> None:
    """For all sessions to come; those that are there are ended, as by a standby's take-over."""
    with psycopg.connect(
        url, autocommit=True, options="-c default_transaction_read_only=off"
    ) as db:
        named = sql.Identifier(db.info.dbname)
        change = sql.SQL("ALTER DATABASE {} SET default_transaction_read_only = {}")
        db.execute(change.format(named, sql.SQL("on" if value == "on" else "off")))
        db.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
            " WHERE datname = current_database() AND pid <> pg_backend_pid()"
        )


def test_health_asks_the_store_nothing(api: TestClient, monkeypatch: pytest.MonkeyPatch) -> None:
    """What it tells, the leader's thread has found out before; and it needs no thread itself."""

    def fails(*_: object) -> None:
        raise AssertionError("it was asked")

    monkeypatch.setattr(system, "reading", fails)
    monkeypatch.setattr(Coordinator, "leader_address", fails)
    monkeypatch.setattr(fastapi.dependencies.utils, "run_in_threadpool", fails)
    monkeypatch.setattr(fastapi.routing, "run_in_threadpool", fails)

    assert problems_of(api) == []


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


def test_rows_are_counted_by_source_and_sink_of_what_runs(api: TestClient) -> None:
    worker = Worker(api)
    api.post("/v1/jobs", json=submission(job_id="mine"))
    claim = worker.claims("mine")
    staged = prepared(claim, read={"FakeSource-1": 7})
    done = completed(claim).model_copy(update={"written": {"Console-1": 5}})
    worker.says(claim, planned(claim), staged, done)

    text = api.get("/metrics").text
    [pipeline] = api.get("/v1/jobs/mine").json()["pipelines"]

    labels = 'job="mine",pipeline="1"'
    assert f'headrace_rows_read{{{labels},source="FakeSource-1"}} 7.0' in text
    assert f'headrace_rows_written{{{labels},sink="Console-1"}} 5.0' in text
    assert (pipeline["read"], pipeline["written"]) == ({"FakeSource-1": 7}, {"Console-1": 5})
    assert pipeline["rows_in"] == 7


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
    assert problems_of(follower) == [
        "this program is too old to lead on this store, and only answers"
    ]
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


def operations(client: TestClient) -> Iterator[tuple[str, str, dict[str, Any]]]:
    for path, methods in client.get("/openapi.json").json()["paths"].items():
        for method, operation in methods.items():
            yield path, method, operation


def test_every_route_lists_its_errors_in_the_form_in_which_they_come(shared: TestClient) -> None:
    found = list(operations(shared))
    routed = {
        (route.path, method.lower())
        for router in (
            *(jobs.router, jobs.logs_router, jobs.history_router, jobs.ids_router),
            *(tables.router, tables.catalogs_router, groups.router, groups.resources_router),
            system.router,
        )
        for route in router.routes
        if isinstance(route, APIRoute)
        for method in route.methods or ()
    }
    assert {(path, method) for path, method, _ in found} == routed

    for path, method, operation in found:
        errors = {int(status): said for status, said in operation["responses"].items()}
        errors = {status: said for status, said in errors.items() if status >= 400}
        expected = [403, 408, 431, 503]
        expected += [401] if path != "/health" else []
        named = "{" in path or (method, path) in {("post", "/v1/jobs"), ("get", "/v1/tables")}
        expected += [404] if named else []
        expected += [413, 415, 422] if method not in {"get", "head"} else []
        expected += [422] if "parameters" in operation else []
        assert set(errors) == set(expected), (method, path)
        for said in errors.values():
            shape = said["content"]["application/json"]["schema"]
            assert shape == {"$ref": "#/components/schemas/Error"}


def test_what_is_named_elsewhere_than_in_a_path_may_be_missing_and_that_is_listed(
    shared: TestClient,
) -> None:
    """The client of all these tests compares each answer with what is listed of its route."""
    assert shared.post("/v1/jobs", json=submission(restore="nope")).status_code == 404
    assert shared.get("/v1/tables?catalog=nope").status_code == 404


def test_what_the_schema_of_errors_says_is_what_comes(shared: TestClient) -> None:
    schema = shared.get("/openapi.json").json()
    error = schema["components"]["schemas"]["Error"]["properties"]["error"]
    refused = error_of(shared.get("/v1/jobs/nobody"), 404)

    assert refused.keys() <= error["properties"].keys()
    assert set(error["required"]) <= refused.keys()
    told = schema["paths"]["/v1/jobs/{job_id}"]["get"]["responses"]["404"]["description"]
    assert told == "There is no such thing. Kinds: LogsGone, NotFound"
    assert "ValidationError" not in str(schema)


def test_metrics_are_text(shared: TestClient) -> None:
    schema = shared.get("/openapi.json").json()
    answers = schema["paths"]["/metrics"]["get"]["responses"]

    assert list(answers["200"]["content"]) == ["text/plain"]
    assert shared.get("/metrics").headers["content-type"].startswith("text/plain")
