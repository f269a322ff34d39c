"""The plug-ins of workers, as they are told, shown, and missed."""

from __future__ import annotations

from fastapi.testclient import TestClient

from headrace.protocol.messages import PluginVersion, Register, Sync
from headrace.protocol.versions import PLUGINS_OF_4
from headrace.worker.plugins import installed_plugins
from tests.api.conftest import eventually
from tests.api.test_jobs import submission
from tests.api.test_workers import ME, post, register

SOURCE = PluginVersion(role="source", name="FakeSource", version="1.0", digest="abc")
SINK = PluginVersion(role="sink", name="Console", version="2.1", digest="def")


def with_plugins(worker: str, *plugins: PluginVersion) -> Register:
    return ME.model_copy(update={"worker": worker, "plugins": plugins})


def shown(api: TestClient) -> dict[str, list[dict[str, str]]]:
    workers = api.get("/v1/workers").json()["workers"]
    return {each["id"]: each["plugins"] for each in workers}


def test_the_plugins_of_a_worker_are_shown_with_their_versions(api: TestClient) -> None:
    register(api, with_plugins("new", SINK, SOURCE))
    register(api, ME.model_copy(update={"worker": "old", "protocol": 4}))

    found = shown(api)

    assert found["new"] == [SINK.model_dump(), SOURCE.model_dump()]
    assert {f"{each['role']} {each['name']}" for each in found["old"]} == PLUGINS_OF_4
    versions = {w["id"]: w["protocol"] for w in api.get("/v1/workers").json()["workers"]}
    assert versions == {"new": 5, "old": 4}


def test_a_worker_that_registers_again_says_anew_what_it_has(api: TestClient) -> None:
    register(api, with_plugins("w1", SOURCE))
    register(api, with_plugins("w1", SOURCE, SINK))

    assert len(shown(api)["w1"]) == 2


def test_a_job_whose_worker_went_says_what_the_others_lack(api: TestClient) -> None:
    register(api, with_plugins("able", SOURCE, SINK))
    api.post("/v1/jobs", json=submission(job_id="mine"))
    eventually(lambda: api.get("/v1/jobs/mine").json()["status"] == "SCHEDULED")
    assert api.get("/v1/jobs/mine").json()["waits_for"] is None
    register(api, with_plugins("other", SOURCE))
    post(api, "goodbye", '{"worker": "able"}')

    waits_for = api.get("/v1/jobs/mine").json()["waits_for"]

    assert waits_for.startswith(
        "a worker with sink Console; group 'default' has none among its 1 worker: `pip install` "
    )
    asked = Sync(worker="other", sync=1, free={"SLOT": 2})  # type: ignore[dict-item]
    assert post(api, "sync", asked.model_dump_json()).json()["assignments"] == []


def test_a_worker_has_at_least_what_came_with_protocol_4() -> None:
    """Else a worker that says what it has would have less than one that does not."""
    has = {f"{each.role} {each.name}" for each in installed_plugins()}

    assert has >= PLUGINS_OF_4
    assert all(each.version and each.digest for each in installed_plugins())
