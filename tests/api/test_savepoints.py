"""/v1/jobs: savepoint, checkpoints and restore, from the first epoch to the job that goes on."""

from __future__ import annotations

from typing import Any

import pytest
from fastapi.testclient import TestClient

from headrace.model.jobs.spec import JobSpec, PluginSpec
from headrace.model.task import Claim, FailureCause, Lane
from headrace.protocol.messages import Held, LastAnswerSeen, Report
from tests.api.conftest import eventually
from tests.api.test_jobs import error_of, submission
from tests.api.test_workers import register, status, sync
from tests.coordinator.jobs.streaming import done, saved, streaming, with_source
from tests.coordinator.specs import ROWS, failed, planned, prepared


class Worker:
    """Holds the one task it is given, and says what a test has it say."""

    def __init__(self, api: TestClient) -> None:
        self._api = api
        self._syncs, self._seen = 0, LastAnswerSeen()
        register(api)

    def claims(self, job: str) -> Claim:
        eventually(lambda: status(self._api, job) == "SCHEDULED")
        [assignment] = self._sync(free={Lane.SLOT: 2}).assignments
        return assignment.claim

    def says(self, claim: Claim, *reports: Report) -> None:
        for report in reports:
            held = (Held(claim=claim),) if report.kind != "TASK_ENDED" else ()
            [acknowledged] = self._sync(holds=held, reports=(report,)).acknowledged
            assert acknowledged.held

    def hears_of_a_savepoint(self, claim: Claim) -> bool:
        return self._sync(holds=(Held(claim=claim),)).savepoint == (claim,)

    def _sync(self, **said: Any) -> Any:
        self._syncs += 1
        answer = sync(self._api, self._syncs, seen=self._seen, **said)
        self._seen = LastAnswerSeen(term=answer.term, number=answer.number)
        return answer


def epoch(claim: Claim, number: int) -> tuple[Report, ...]:
    return planned(claim, number), prepared(claim, number, ready=()), done(claim, number)


def shown(api: TestClient, path: str) -> Any:
    answer = api.get(path)
    assert answer.status_code == 200, answer.text
    return answer.json()


def stopped_job(api: TestClient, worker: Worker) -> str:
    api.post("/v1/jobs", json=submission(streaming(), job_id="mine"))
    claim = worker.claims("mine")
    worker.says(claim, *epoch(claim, 1))
    eventually(lambda: status(api, "mine") == "RUNNING")
    assert api.post("/v1/jobs/mine/savepoint").status_code == 200
    eventually(lambda: status(api, "mine") == "DOING_SAVEPOINT")
    assert worker.hears_of_a_savepoint(claim)
    worker.says(claim, saved(claim))
    eventually(lambda: status(api, "mine") == "SAVEPOINT_DONE")
    return "mine"


def restoring(made: JobSpec, **more: Any) -> dict[str, Any]:
    return submission(made, **{"submission_key": "again", "restore": "mine", **more})


@pytest.mark.req("K7")
def test_a_job_is_saved_looked_at_and_restored(api: TestClient) -> None:
    worker = Worker(api)
    stopped_job(api, worker)

    view = shown(api, "/v1/jobs/mine")
    made = view["savepoint"]
    assert (made["kind"], made["epoch"]) == ("savepoint", 2)
    assert (made["sources"], made["ready"]) == (["FakeSource-1"], [])
    assert made["written"] == {"Console-1": ROWS}
    found = shown(api, "/v1/jobs/mine/checkpoints")["checkpoints"]
    assert [(c["pipeline"], c["id"], c["kind"], c["status"]) for c in found] == [
        (1, 2, "savepoint", "COMPLETED"),
        (1, 1, "checkpoint", "COMPLETED"),
    ]
    first = found[1]
    assert (first["rows_in"], first["rows_out"]) == (ROWS, ROWS)
    assert first["planned_at_ms"] <= first["prepared_at_ms"] <= first["completed_at_ms"]
    assert first["duration_ms"] == first["completed_at_ms"] - first["planned_at_ms"]
    assert first["size_bytes"] > 50

    wider = with_source(streaming(), "FakeSource-9")
    answer = api.post("/v1/jobs", json=restoring(wider))
    assert answer.status_code == 201
    assert answer.json()["id"] == "mine"
    assert answer.json()["notes"] == ["source 'FakeSource-9' is new: it is read from its beginning"]
    claim = worker.claims("mine")
    worker.says(claim, *epoch(claim, 3))
    eventually(lambda: status(api, "mine") == "RUNNING")
    found = shown(api, "/v1/jobs/mine/checkpoints")["checkpoints"]
    assert [checkpoint["id"] for checkpoint in found] == [3, 2, 1]
    assert shown(api, "/v1/jobs/mine")["savepoint"] is None


def test_the_same_restore_twice_is_one(api: TestClient) -> None:
    stopped_job(api, Worker(api))
    said = [api.post("/v1/jobs", json=restoring(streaming())) for _ in range(2)]

    assert [answer.status_code for answer in said] == [201, 201]
    refused = api.post("/v1/jobs", json=restoring(streaming(), submission_key="other"))
    assert "only a job that has ended can be restored" in error_of(refused, 422)["message"]


def test_a_file_that_lost_a_source_is_refused(api: TestClient) -> None:
    stopped_job(api, Worker(api))
    made = restoring(streaming())
    made["spec"]["pipelines"][0]["sources"][0]["name"] = "FakeSource-2"

    message = error_of(api.post("/v1/jobs", json=made), 422)["message"]
    assert "lost source 'FakeSource-1'" in message
    assert "it has source 'FakeSource-2'" in message


def test_a_restored_job_keeps_its_id(shared: TestClient) -> None:
    refused = error_of(shared.post("/v1/jobs", json=restoring(streaming(), job_id="other")), 422)

    assert refused["message"] == (
        "job 'mine' keeps its id when it is restored, and 'other' was asked for; leave job_id out"
    )


def test_what_is_asked_of_a_job_that_does_not_exist_is_404(shared: TestClient) -> None:
    for answer in (
        shared.post("/v1/jobs/nobody/savepoint"),
        shared.get("/v1/jobs/nobody/checkpoints"),
        shared.post("/v1/jobs", json=restoring(streaming(), restore="nobody")),
    ):
        assert error_of(answer, 404)["message"].startswith("there is no job 'nobody'; ")


def test_a_job_that_waits_can_not_be_saved(api: TestClient) -> None:
    api.post("/v1/jobs", json=submission(job_id="mine"))

    refused = error_of(api.post("/v1/jobs/mine/savepoint"), 422)

    assert "it has not begun, so there is nothing to save" in refused["message"]


def test_a_pipeline_that_may_read_other_rows_the_second_time_is_labelled(api: TestClient) -> None:
    made = streaming()
    [pipeline] = made.pipelines
    options = {
        "url": "jdbc:postgresql://h/d",
        "driver": "org.postgresql.Driver",
        "query": "select 1",
    }
    odd = PluginSpec(name="Jdbc-1", plugin="Jdbc", options=dict(options), output="t")
    sink = pipeline.sinks[0].model_copy(update={"inputs": ("t",)})
    pipeline = pipeline.model_copy(update={"sources": (odd,), "sinks": (sink,)})
    env = made.env.model_copy(update={"job_mode": "BATCH"})
    made = made.model_copy(update={"pipelines": (pipeline,), "env": env})
    for name, spec in (("odd", made), ("plain", streaming())):
        answer = api.post("/v1/jobs", json=submission(spec, job_id=name, submission_key=name))
        assert answer.status_code == 201, answer.text

    [labelled] = shown(api, "/v1/jobs/odd")["pipelines"]
    assert labelled["repeatable"] is False
    assert labelled["not_repeatable"] == (
        "Jdbc-1: what it reads may change between two reads of the same slice"
    )
    assert shown(api, "/v1/jobs/plain")["pipelines"][0]["repeatable"] is True


@pytest.mark.req("E7")
def test_no_restore_is_advised_while_the_store_is_older_than_its_targets(api: TestClient) -> None:
    worker = Worker(api)
    api.post("/v1/jobs", json=submission(streaming(), job_id="mine"))
    claim = worker.claims("mine")
    worker.says(claim, *epoch(claim, 1))
    older = failed(claim, "the store is older", retry=False, cause=FailureCause.STORE_OLDER)
    worker.says(claim, older)
    eventually(lambda: status(api, "mine") == "FAILED")

    kept = shown(api, "/v1/jobs/mine")["savepoint"]
    assert (kept["kind"], kept["refused"]) == ("checkpoint", "the store is older than its targets")
    answer = api.post("/v1/jobs", json=submission(streaming(), job_id="mine", submission_key="b"))
    assert (answer.status_code, "--restore" in answer.text) == (422, False)


def test_what_failed_otherwise_may_be_restored(api: TestClient) -> None:
    worker = Worker(api)
    api.post("/v1/jobs", json=submission(streaming(), job_id="mine"))
    claim = worker.claims("mine")
    worker.says(claim, *epoch(claim, 1), failed(claim, "the disk is full"))
    eventually(lambda: status(api, "mine") == "FAILED")

    assert shown(api, "/v1/jobs/mine")["savepoint"]["refused"] is None
