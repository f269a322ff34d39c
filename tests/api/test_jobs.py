"""/v1/jobs: what a client may ask, and how refusals read."""

from __future__ import annotations

from typing import Any

import pytest
from fastapi.testclient import TestClient

from headrace.model.jobs.spec import JobSpec
from tests.api.conftest import eventually
from tests.coordinator.jobs.test_commands import with_secret
from tests.coordinator.specs import SECRET, spec


def submission(made: JobSpec | None = None, **more: Any) -> dict[str, Any]:
    dumped = (made or spec()).model_dump(mode="json")
    return {"spec": dumped, "submission_key": "k1", **more}


def error_of(answer: Any, status: int) -> dict[str, Any]:
    assert answer.status_code == status, answer.text
    assert answer.json().keys() == {"error"}
    return answer.json()["error"]


def test_a_job_is_accepted_shown_listed_and_cancelled(api: TestClient) -> None:
    made = api.post("/v1/jobs", json=submission(job_id="mine"))
    assert made.status_code == 201
    assert (made.json()["id"], made.json()["group"]) == ("mine", "default")

    eventually(lambda: api.get("/v1/jobs/mine").json()["status"] == "PENDING")
    shown = api.get("/v1/jobs/mine").json()
    assert shown["waits_for"] == "a free slot in group 'default'; it has 0 of 0"
    assert [p["status"] for p in shown["pipelines"]] == ["CREATED"]
    assert [job["id"] for job in api.get("/v1/jobs").json()["jobs"]] == ["mine"]

    assert api.post("/v1/jobs/mine/cancel").status_code == 200
    eventually(lambda: api.get("/v1/jobs/mine").json()["status"] == "CANCELED")
    assert api.get("/v1/jobs").json()["jobs"] == []
    assert api.post("/v1/jobs/mine/cancel").json()["status"] == "CANCELED"


def test_the_same_submission_twice_is_one_job(api: TestClient) -> None:
    first, second = (api.post("/v1/jobs", json=submission()).json()["id"] for _ in range(2))

    assert first == second
    assert len(api.get("/v1/jobs").json()["jobs"]) == 1


@pytest.mark.parametrize("path", ["/v1/jobs/nobody", "/v1/jobs/nobody/cancel"])
def test_a_job_that_does_not_exist_is_404_with_its_name(shared: TestClient, path: str) -> None:
    answer = shared.post(path) if path.endswith("cancel") else shared.get(path)

    error = error_of(answer, 404)
    assert error["kind"] == "NotFound"
    assert error["message"].startswith(
        "there is no job 'nobody'; `headrace job list` shows what runs, "
        "`headrace job history` what has ended"
    )


def test_a_path_that_does_not_exist_is_told_like_every_error(shared: TestClient) -> None:
    assert error_of(shared.get("/v2/jobs"), 404)["message"] == "there is no page '/v2/jobs'"
    refused = error_of(shared.delete("/v1/jobs"), 405)
    assert refused["message"] == "DELETE /v1/jobs: Method Not Allowed"


def test_a_taken_id_is_refused_with_the_way_out(api: TestClient) -> None:
    api.post("/v1/jobs", json=submission(job_id="mine"))

    refused = error_of(
        api.post("/v1/jobs", json=submission(job_id="mine", submission_key="k2")), 422
    )

    assert refused["kind"] == "Refused"
    assert refused["message"] == "job id 'mine' is taken; submit under another id"


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ({}, "body.spec: Field required"),
        ({"colour": 1}, "body.colour: Extra inputs are not permitted"),
        (submission(submission_key=""), "body.submission_key: String should have at least 1"),
        (submission(job_id="a/b"), "job id 'a/b' can't be used"),
        (submission(group="a b"), "group 'a b' can't be used"),
    ],
)
def test_a_body_that_can_not_be_used_is_told_in_words(
    shared: TestClient, body: dict[str, Any], said: str
) -> None:
    assert said in error_of(shared.post("/v1/jobs", json=body), 422)["message"]


def test_a_body_that_is_no_json_is_told_in_words(shared: TestClient) -> None:
    answer = shared.post("/v1/jobs", content=b"{", headers={"Content-Type": "application/json"})

    assert "the request can't be read: body" in error_of(answer, 422)["message"]


def test_an_unknown_connector_is_refused_by_name(shared: TestClient) -> None:
    made = submission()
    made["spec"]["pipelines"][0]["sinks"][0]["plugin"] = "Konsole"

    message = error_of(shared.post("/v1/jobs", json=made), 422)["message"]

    assert "Konsole" in message
    assert "Console" in message


def test_all_that_is_wrong_with_a_job_is_listed(shared: TestClient) -> None:
    made = submission()
    made["spec"]["pipelines"][0]["sinks"][0]["plugin"] = "Konsole"
    made["spec"]["pipelines"][0]["sources"][0]["options"]["row.numm"] = 5

    error = error_of(shared.post("/v1/jobs", json=made), 422)

    assert error["kind"] == "BadJob"
    assert len(error["problems"]) == 2
    assert "unknown option 'row.numm'" in error["problems"][0]
    assert "Konsole" in error["problems"][1]
    assert error["message"] == "\n".join(error["problems"])


def test_a_job_runs_in_the_group_that_its_file_or_the_request_names(api: TestClient) -> None:
    made = submission(job_id="file")
    made["spec"]["group"] = "large"
    assert api.post("/v1/jobs", json=made).json()["group"] == "large"

    made |= {"job_id": "request", "submission_key": "k2", "group": "small"}
    assert api.post("/v1/jobs", json=made).json()["group"] == "small"


def test_no_answer_shows_a_secret(api: TestClient) -> None:
    made = submission(with_secret(), job_id="mine")
    said = [api.post("/v1/jobs", json=made), api.post("/v1/jobs", json=made)]
    said += [api.get(path) for path in ("/v1/jobs", "/v1/jobs/mine", "/metrics", "/v1/workers")]
    broken = submission(with_secret(), colour="red", submission_key="k2")
    said += [api.post("/v1/jobs", json=broken), api.post("/v1/jobs/mine/cancel")]
    taken = submission(with_secret(), job_id="mine", submission_key="k3")
    said += [api.post("/v1/jobs", json=taken)]

    assert [answer.status_code for answer in said] == [201, 201, *[200] * 4, 422, 200, 422]
    assert not [answer.text for answer in said if SECRET in answer.text]
