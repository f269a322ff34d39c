"""/v1/groups, /v1/workers, /v1/resources: through the application, on a real store."""

from __future__ import annotations

from collections.abc import Generator, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from fastapi.testclient import TestClient
from prometheus_client.parser import text_string_to_metric_families
from sqlalchemy import Engine

from headrace.api.app import make_app
from headrace.containers.container import Supports
from headrace.coordinator.context import CoordinatorSettings, GroupOptions
from headrace.coordinator.groups import reconciler
from headrace.coordinator.service import Coordinator
from headrace.model.groups import AutoRestart
from headrace.model.ids import RandomIds
from headrace.store.core.engine import writing
from headrace.store.tasks import workers
from headrace.store.tasks.workers import Worker
from tests.api.conftest import ADDRESS, CLOCK, LOOPBACK, eventually
from tests.api.test_jobs import error_of
from tests.coordinator.groups.group_harness import FakeContainer
from tests.stores import KEYS

LOG = ["starting", "password=hunter2", 'url jdbc:x//me:pw@db "token": "abc"', "ready"]
GROUP = {"name": "g", "container": "local"}


class Writing(FakeContainer):
    """A container that has logs."""

    def logs(self, launch: Any, *, lines: int) -> list[str]:
        return LOG[-lines:] if launch.number == 1 else []


@contextmanager
def served_with(store_url: str, *places: FakeContainer) -> Generator[TestClient]:
    groups = GroupOptions(
        auto_restart=AutoRestart(enabled=True),
        containers={place.name: place for place in places},
    )
    options = CoordinatorSettings(store_url, ADDRESS, groups=groups, secret_keys=KEYS)
    coordinator = Coordinator(options, CLOCK, RandomIds())
    with TestClient(make_app(coordinator, token=None), base_url=LOOPBACK) as client:
        eventually(lambda: client.get("/health").json()["leading"])
        yield client


@pytest.fixture(autouse=True)
def quick_passes(monkeypatch: pytest.MonkeyPatch) -> None:
    """A pass over the groups with each pass, so that no test waits for one."""
    monkeypatch.setattr(reconciler, "KEEP_INTERVAL_S", 0.0)


@pytest.fixture
def place() -> Writing:
    return Writing()


@pytest.fixture
def api(store_url: str, place: Writing) -> Iterator[TestClient]:
    by_user = FakeContainer(
        "external", Supports(start=False, stop=False, restart=False, logs=False)
    )
    with served_with(store_url, place, by_user) as client:
        yield client


def registration(name: str, **more: object) -> dict[str, object]:
    return {
        "worker": name,
        "group": "g",
        "slots": 4,
        "control_slots": 1,
        "version": "0",
        "host": "h",
        "pid": 7,
        "spark_application": "app",
        **more,
    }


def register(api: TestClient, name: str, **more: object) -> None:
    said = api.post("/v1/worker/register", json=registration(name, **more))
    assert said.status_code == 200, said.text


def given_worker(api: TestClient) -> None:
    """Group `g` with resource `r1`, whose worker is `w1`."""
    api.post("/v1/groups", json=GROUP)
    made = api.post("/v1/groups/g/resources", json={"threads": 4, "key": "r1"})
    assert made.status_code == 201, made.text
    eventually(lambda: api.get("/v1/resources/r1").json()["step"] == "STARTED")
    register(api, "w1", resource="r1", launch=1, memory_mb=2048)


def test_a_group_is_made_shown_changed_and_removed(api: TestClient) -> None:
    made = api.post("/v1/groups", json={**GROUP, "policy": "benefit"})
    assert made.status_code == 201
    assert (made.json()["policy"], made.json()["own_policy"]) == ("benefit", True)

    changed = api.patch("/v1/groups/g", json={"memory_mb": 512, "policy": ""}).json()
    assert (changed["memory_mb"], changed["policy"], changed["own_policy"]) == (512, "quota", False)
    assert "g" in [each["name"] for each in api.get("/v1/groups").json()["groups"]]

    assert api.delete("/v1/groups/g").json()["removing"] is True
    eventually(lambda: api.get("/v1/groups/g").status_code == 404)


@pytest.mark.req("R5")
def test_the_floor_is_shown_as_wanted_and_as_effective_with_what_comes_next(
    api: TestClient,
) -> None:
    shown = api.post("/v1/groups", json={**GROUP, "min_parallelism": 4}).json()

    assert (shown["min_parallelism"], shown["effective_parallelism"]) == (4, 4)
    assert shown["next"] == "asks for 4 threads now (request 1 of 3)"

    eventually(lambda: len(api.get("/v1/groups/g").json()["resources"]) == 1)
    [made] = api.get("/v1/groups/g").json()["resources"]
    assert (made["threads"], made["made_for"]) == (4, "floor")


def test_a_resource_shows_its_worker_and_the_worker_its_resource(api: TestClient) -> None:
    given_worker(api)

    resource = api.get("/v1/resources/r1").json()
    [worker] = api.get("/v1/workers").json()["workers"]

    assert (resource["worker"], resource["next"]) == ("w1", "works")
    assert resource["properties"]["pid"] == "1001"
    assert (worker["resource"], worker["launch"], worker["memory_mb"]) == ("r1", 1, 2048)
    assert api.get("/v1/workers/w1").json() == worker
    assert api.get("/v1/resources/w1").json()["id"] == "r1"


@pytest.mark.req("R8")
def test_a_worker_of_an_older_launch_is_told_that_it_is_over(api: TestClient) -> None:
    given_worker(api)
    late = registration("w2", resource="r1", launch=7)

    refused = error_of(api.post("/v1/worker/register", json=late), 422)

    assert refused["kind"] == "LaunchOver"
    assert "launch 1 is the current one" in refused["message"]


def test_a_drained_worker_is_shown_so(api: TestClient) -> None:
    given_worker(api)

    first = api.post("/v1/workers/w1/drain").json()
    again = api.post("/v1/workers/w1/drain").json()

    assert (first["changed"], again["changed"]) == (True, False)
    assert first["worker"]["drain_since_ms"]
    assert api.get("/v1/groups/g").json()["capacity"]["draining"] == 4

    resumed = api.post("/v1/workers/w1/resume").json()
    assert (resumed["changed"], resumed["worker"]["drain_since_ms"]) == (True, None)
    assert not api.post("/v1/workers/w1/resume").json()["changed"]
    assert api.get("/v1/groups/g").json()["capacity"]["registered"] == 4
    assert error_of(api.post("/v1/workers/gone/resume"), 404)["kind"] == "NotFound"


def test_a_released_resource_is_stopped_and_goes(api: TestClient, place: Writing) -> None:
    given_worker(api)

    told = api.post("/v1/resources/w1/release").json()

    assert told["releasing"] is True
    eventually(lambda: api.get("/v1/resources/r1").status_code == 404)
    assert place.stopped == [("r1", 1)]


def test_a_worker_by_hand_can_not_be_released(api: TestClient) -> None:
    register(api, "by-hand")

    refused = error_of(api.post("/v1/resources/by-hand/release"), 422)

    assert "`headrace worker drain by-hand`" in refused["message"]
    assert "by hand" in api.get("/v1/workers/by-hand").json()["next"]


def test_logs_come_from_the_container_bounded_and_redacted(api: TestClient) -> None:
    given_worker(api)

    told = api.get("/v1/resources/w1/logs?lines=3").json()

    assert told["lines"] == [
        "password=******",
        'url jdbc:x//me:******@db "token": ******',
        "ready",
    ]
    assert api.get("/v1/resources/r1/logs?lines=1001").status_code == 422


def test_logs_of_what_a_user_starts_are_where_he_started_it(api: TestClient) -> None:
    api.post("/v1/groups", json={"name": "mine"})
    api.post("/v1/groups/mine/resources", json={"threads": 1, "key": "r9"})

    refused = error_of(api.get("/v1/resources/r9/logs"), 422)

    assert "container 'external' has no logs of resource 'r9'" in refused["message"]


@pytest.mark.req("R7")
def test_a_container_that_is_not_configured_here_has_no_logs_and_says_so(
    store_url: str, place: Writing
) -> None:
    with served_with(store_url, place) as api:
        given_worker(api)
    with served_with(store_url) as api:
        refused = error_of(api.get("/v1/resources/r1/logs"), 404)
        shown = api.get("/v1/groups/g").json()

    assert f"not configured at this coordinator ({ADDRESS})" in refused["message"]
    assert [each["id"] for each in shown["resources"]] == ["r1"]


@pytest.mark.parametrize(
    ("path", "kind"),
    [("groups/x", "group"), ("workers/x", "worker"), ("resources/x", "resource or worker")],
)
def test_what_is_not_there_is_not_found(api: TestClient, path: str, kind: str) -> None:
    assert f"there is no {kind} 'x'" in error_of(api.get(f"/v1/{path}"), 404)["message"]


def test_metrics_tell_threads_by_state_and_orphans(api: TestClient, store: Engine) -> None:
    given_worker(api)
    api.patch("/v1/groups/g", json={"min_parallelism": 3})
    now_ms = CLOCK.wall_ms()
    with writing(store) as conn:
        workers.register(
            conn, Worker("w9", "g", 2, 1, "0", "h", 9, "app", now_ms, now_ms, drain_since_ms=now_ms)
        )

    text = api.get("/metrics").text
    found = {
        (sample.name, *sample.labels.values()): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }

    states = ("wanted", "effective", "registered", "draining", "booting", "restarting")
    assert [found["headrace_group_threads", "g", state] for state in states] == [3, 3, 4, 2, 0, 0]
    assert found["headrace_group_orphans", "g"] == 0
    for name in ("resource_restarts", "launch_failures", "resources_given_up"):
        assert found[f"headrace_{name}_total",] == 0
