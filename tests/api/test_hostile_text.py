"""Texts that no store can keep are refused wherever they stand, and numbers are no truth values."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

import pytest
from fastapi.testclient import TestClient

from tests.api.conftest import described
from tests.api.test_jobs import submission

NUL = "a%00b"
HALF = "a%ED%A0%80b"  # half of a surrogate pair, as UTF-8 would have it
JSON = {"Content-Type": "application/json"}
BODIES = (
    rb'{"name": "a\u0000b"}',
    rb'{"name": "a\ud800b"}',
    rb'{"name": "a\uDFFFb"}',
    b'{"name": "a\xed\xa0\x80b"}',
    rb'{"\ud800": 1}',
    rb'{"spec": {"pipelines": [{"sources": [{"options": {"a\u0000": [{"b": "\ud800"}]}}]}]}}',
    rb'"\ud800"',
    *(
        rf'{{"name": "a{half}b", "properties": {{"k": "a{half}b"}}}}'.encode(encoding)
        for encoding in ("utf-16-le", "utf-16-be", "utf-16", "utf-32-le", "utf-32-be")
        for half in ("", r"\ud800")
    ),
    rb'{"name": "a\ud800b"}'.decode().encode("utf-8-sig"),
)
PARAMETER = re.compile(r"\{\w+\}")


def operations(api: TestClient) -> Iterator[tuple[str, str, dict[str, Any]]]:
    for path, methods in described(api).items():
        for method, operation in methods.items():
            yield method.upper(), path, operation


def requests(api: TestClient, text: str) -> Iterator[tuple[str, str]]:
    """Every route, with the text for each parameter of its path and its query in turn."""
    for method, path, operation in operations(api):
        names = PARAMETER.findall(path)
        for name in names:
            yield method, PARAMETER.sub("x", path.replace(name, text))
        for parameter in operation.get("parameters", ()):
            if parameter["in"] == "query":
                yield method, f"{PARAMETER.sub('x', path)}?{parameter['name']}={text}"


def test_a_nul_in_a_path_or_a_query_is_refused_by_every_route(api: TestClient) -> None:
    asked = list(requests(api, NUL))
    answers = {request: api.request(*request, headers=JSON) for request in asked}

    assert len(asked) > 30
    assert {request: answer.status_code for request, answer in answers.items()} == (
        dict.fromkeys(asked, 422)
    )
    for answer in answers.values():
        assert "has a NUL character" in answer.json()["error"]["message"]


def test_half_of_a_character_in_a_path_or_a_query_breaks_no_route(api: TestClient) -> None:
    statuses = {api.request(*each, headers=JSON).status_code for each in requests(api, HALF)}

    assert max(statuses) < 500


@pytest.mark.parametrize("body", BODIES)
def test_a_body_that_no_store_can_keep_is_refused_by_every_route(
    api: TestClient, body: bytes
) -> None:
    asked = [
        (method, PARAMETER.sub("x", path))
        for method, path, operation in operations(api)
        if "requestBody" in operation
    ]
    answers = {
        request: api.request(*request, content=body, headers=JSON).status_code for request in asked
    }

    assert len(asked) > 5
    assert answers == dict.fromkeys(asked, 422)


@pytest.mark.parametrize(
    ("spelled", "flaw"), [("\\u0000", "a NUL character"), ("\\ud800", "half of a surrogate pair")]
)
@pytest.mark.parametrize(
    ("method", "path", "body", "place"),
    [
        ("PUT", "/v1/tables/a.b.c/blockers/me", {"reason": "?", "seconds": 9}, "body.reason"),
        ("PATCH", "/v1/groups/default", {"properties": {"?": "x"}}, "a key in body.properties"),
        (
            "POST",
            "/v1/catalogs",
            {"name": "c", "type": "hadoop", "properties": {"warehouse": "?"}},
            "body.properties.warehouse",
        ),
        ("POST", "/v1/jobs", submission(group="?"), "body.group"),
    ],
)
def test_the_place_of_what_can_not_be_kept_is_told(
    api: TestClient,
    method: str,
    path: str,
    body: dict[str, Any],
    place: str,
    spelled: str,
    flaw: str,
) -> None:
    content = json.dumps(body).replace("?", f"a{spelled}b")

    answer = api.request(method, path, content=content, headers=JSON)

    assert answer.status_code == 422
    assert answer.json()["error"] == {
        "kind": "Refused",
        "message": f"the request can't be read: {place} has {flaw}; leave it out",
    }


@pytest.mark.parametrize(
    "encoding", ["utf-8", "utf-8-sig", "utf-16-le", "utf-16-be", "utf-16", "utf-32-le", "utf-32-be"]
)
def test_what_no_store_can_keep_is_kept_in_no_encoding(api: TestClient, encoding: str) -> None:
    body = r'{"properties": {"k": "a\ud800b"}}'.encode(encoding)

    answer = api.patch("/v1/groups/default", content=body, headers=JSON)

    assert answer.status_code == 422
    assert answer.json()["error"]["message"].startswith("the request can't be read: ")
    assert "k" not in api.get("/v1/groups/default").json()["properties"]


def test_a_backslash_before_an_escape_is_a_text_as_any_other(shared: TestClient) -> None:
    answer = shared.post("/v1/groups", content=rb'{"name": "\\u0000"}', headers=JSON)

    assert "can't be used" in answer.json()["error"]["message"]


@pytest.mark.parametrize(
    ("method", "path", "body", "place"),
    [
        ("PATCH", "/v1/groups/default", {"memory_mb": False}, "memory_mb"),
        ("PATCH", "/v1/groups/default", {"min_parallelism": True}, "min_parallelism"),
        ("PATCH", "/v1/groups/default", {"memory_mb": "5"}, "memory_mb"),
        ("POST", "/v1/groups", {"name": "g", "min_parallelism": True}, "min_parallelism"),
        ("POST", "/v1/groups", {"name": "g", "memory_mb": 1.0}, "memory_mb"),
        ("POST", "/v1/groups/default/resources", {"threads": True}, "threads"),
        ("PUT", "/v1/tables/a.b.c/blockers/me", {"reason": "r", "seconds": True}, "seconds"),
    ],
)
def test_a_truth_value_is_no_number(
    shared: TestClient, method: str, path: str, body: dict[str, Any], place: str
) -> None:
    answer = shared.request(method, path, json=body)

    assert answer.status_code == 422
    assert f"body.{place}: Input should be a valid integer" in answer.json()["error"]["message"]


@pytest.mark.parametrize(
    "name",
    [
        "parallelism",
        "checkpoint_interval_ms",
        "checkpoint_timeout_ms",
        "checkpoint_min_pause_ms",
        "checkpoint_retained",
        "retry_times",
        "retry_interval_s",
        "lost_workers_max",
    ],
)
def test_a_truth_value_is_no_number_in_the_env_of_a_job(shared: TestClient, name: str) -> None:
    body = submission()
    body["spec"]["env"][name] = True

    answer = shared.post("/v1/jobs", json=body)

    assert answer.status_code == 422
    assert f"body.spec.env.{name}: Input should be a valid integer" in answer.text
