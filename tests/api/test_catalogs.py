"""/v1/catalogs: added, changed and removed through the application, and no secret comes back."""

from __future__ import annotations

from typing import Any

import pytest
from fastapi.testclient import TestClient

from tests.api.conftest import eventually
from tests.api.test_jobs import error_of

SECRET = "hush-4711"
LAKE: dict[str, Any] = {
    "name": "lake",
    "type": "rest",
    "properties": {"uri": "http://rest:8181", "token": SECRET},
    "defaults": {"self-optimizing.quota": "2"},
    "table_filter": "sales\\..*",
}


def test_the_embedded_catalog_is_there_from_the_start(shared: TestClient) -> None:
    [found] = shared.get("/v1/catalogs").json()["catalogs"]

    assert (found["name"], found["type"], found["tables"]) == ("headrace", "embedded", 0)


def test_a_catalog_is_added_shown_changed_and_removed(api: TestClient) -> None:
    added = api.post("/v1/catalogs", json=LAKE)
    assert added.status_code == 201
    assert added.json()["properties"] == {"uri": "http://rest:8181", "token": "******"}
    assert added.json()["group"] == "default"
    assert api.post("/v1/catalogs", json=LAKE).status_code == 201

    changed = api.patch(
        "/v1/catalogs/lake",
        json={"properties": {"token": "******", "scope": "x"}, "table_filter": ""},
    )
    assert changed.status_code == 200, changed.text
    assert changed.json()["properties"].keys() == {"uri", "token", "scope"}
    assert changed.json()["table_filter"] is None
    assert changed.json()["defaults"] == LAKE["defaults"]

    refreshed = api.post("/v1/catalogs/lake/refresh").json()
    assert refreshed["changed"] is False, "nobody has looked into it yet, so that is due anyway"
    assert refreshed["waits_for"] == "a worker of its group 'default', which has none"

    assert api.delete("/v1/catalogs/lake").json()["removing"]
    eventually(lambda: api.get("/v1/catalogs/lake").status_code == 404)


def test_no_answer_holds_a_secret(api: TestClient) -> None:
    answers = [
        api.post("/v1/catalogs", json=LAKE),
        api.post("/v1/catalogs", json={**LAKE, "type": "hive"}),
        api.get("/v1/catalogs"),
        api.get("/v1/catalogs/lake"),
        api.patch("/v1/catalogs/lake", json={"properties": {"token": SECRET * 2}}),
        api.patch("/v1/catalogs/lake", json={"properties": {"token": SECRET * 999}}),
        api.post("/v1/catalogs", json={**LAKE, "properties": {"token": {"a": SECRET}}}),
        api.delete("/v1/catalogs/lake"),
    ]

    assert [each.status_code for each in answers] == [201, 422, 200, 200, 200, 422, 422, 200]
    assert not [each.text for each in answers if SECRET in each.text]


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ({**LAKE, "type": "rset"}, "can't be of type 'rset'; did you mean 'rest'?"),
        ({**LAKE, "properties": {}}, "a rest catalog needs uri"),
        ({**LAKE, "colour": 1}, "body.colour: Extra inputs are not permitted"),
        ({**LAKE, "table_filter": "("}, "is not a regular expression"),
        (
            {**LAKE, "defaults": {"self-optimizing.enabled": "yes"}},
            "is 'yes', expected true or false; give such a value, or leave it out: then true holds",
        ),
    ],
)
def test_a_catalog_that_can_not_be_used_is_told_in_words(
    shared: TestClient, body: dict[str, Any], said: str
) -> None:
    assert said in error_of(shared.post("/v1/catalogs", json=body), 422)["message"]


@pytest.mark.parametrize("method", ["GET", "PATCH", "DELETE"])
def test_an_unknown_catalog_is_404_with_the_near_name(shared: TestClient, method: str) -> None:
    answer = shared.request(method, "/v1/catalogs/headrase", json={} if method == "PATCH" else None)

    assert error_of(answer, 404)["message"] == (
        "there is no catalog 'headrase'; did you mean 'headrace'?"
    )
