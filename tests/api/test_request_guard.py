"""What a coordinator without a token refuses to a web page, and how much anybody may send."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from fastapi.testclient import TestClient

from headrace.api import request_guard
from tests.api.conftest import served
from tests.api.test_jobs import error_of

JSON = {"Content-Type": "application/json"}


@pytest.mark.parametrize("path", ["/health", "/v1/jobs", "/v1/worker/wait", "/nowhere"])
@pytest.mark.parametrize("host", ["evil.example", "evil.example:7300", "10.0.0.1", "", "[::"])
def test_a_name_that_is_not_ours_is_refused(shared: TestClient, path: str, host: str) -> None:
    refused = error_of(shared.get(path, headers={"Host": host}), 403)

    assert refused["kind"] == "Refused"
    assert "HEADRACE_TOKEN" in refused["message"]


@pytest.mark.parametrize(
    "host", ["localhost:7300", "LOCALHOST", "127.0.0.1", "127.8.8.8:1", "[::1]:7300", "here:7300"]
)
def test_a_name_of_this_machine_and_the_advertised_one_are_answered(
    shared: TestClient, host: str
) -> None:
    assert shared.get("/v1/jobs", headers={"Host": host}).status_code == 200


ELSEWHERE = (
    {"Sec-Fetch-Site": "cross-site", "Origin": "https://evil.example"},
    {"Sec-Fetch-Site": "cross-site"},
    {"Sec-Fetch-Site": "same-site", "Origin": "http://127.0.0.1:3000"},  # another port
    {"Origin": "https://evil.example"},
    {"Origin": "http://127.0.0.1:3000"},
    {"Origin": "http://127.0.0.1"},
    {"Origin": "http://localhost:7300"},
    {"Origin": "null"},
    {"Origin": ""},
)
OURS: tuple[dict[str, str], ...] = (
    {},
    {"Sec-Fetch-Site": "same-origin", "Origin": "http://127.0.0.1:7300"},
    {"Sec-Fetch-Site": "none"},
    {"Origin": "http://127.0.0.1:7300"},
    {"Origin": "HTTP://127.0.0.1:7300"},
)


@pytest.mark.parametrize("said", ELSEWHERE)
@pytest.mark.parametrize("path", ["/v1/jobs/x/cancel", "/v1/jobs", "/v1/worker/goodbye"])
def test_a_page_of_another_place_changes_nothing(
    shared: TestClient, path: str, said: dict[str, str]
) -> None:
    refused = error_of(shared.post(path, headers=said), 403)

    assert refused["kind"] == "Refused"
    assert f"a web page of {said.get('Origin', 'another place')};" in refused["message"]
    assert "HEADRACE_TOKEN" in refused["message"]


@pytest.mark.parametrize("method", ["DELETE", "PUT", "PATCH"])
def test_no_method_but_those_that_read_is_open_to_it(shared: TestClient, method: str) -> None:
    assert shared.request(method, "/v1/jobs/x", headers=ELSEWHERE[0]).status_code == 403


@pytest.mark.parametrize("said", OURS)
def test_our_own_page_and_programs_that_are_no_browser_are_heard(
    shared: TestClient, said: dict[str, str]
) -> None:
    missing = error_of(shared.post("/v1/jobs/x/cancel", headers=said), 404)

    assert missing["message"].startswith("there is no job 'x'; ")


def test_a_page_may_cause_a_read_whose_answer_its_browser_keeps_from_it(
    shared: TestClient,
) -> None:
    answer = shared.get("/v1/jobs", headers=ELSEWHERE[0])

    assert answer.status_code == 200
    assert not [name for name in answer.headers if name.startswith("access-control-")]


def test_with_a_token_whoever_shows_it_may_speak_from_anywhere(
    sqlite_template: Path, store_folder: Path
) -> None:
    shutil.copyfile(sqlite_template, store_folder / "store.db")
    with served(f"sqlite:///{store_folder / 'store.db'}", token="secret") as api:
        shown = {"Host": "proxy.example", "Authorization": "Bearer secret", **ELSEWHERE[0]}

        assert api.post("/v1/jobs/x/cancel", headers=shown).status_code == 404
        assert api.post("/v1/jobs/x/cancel", headers=ELSEWHERE[0]).status_code == 401


@pytest.mark.parametrize("path", ["/v1/jobs", "/v1/worker/register", "/v1/jobs/x/cancel"])
@pytest.mark.parametrize("kind", [None, "text/plain", "application/x-www-form-urlencoded"])
def test_a_body_of_a_type_that_a_page_may_send_is_refused(
    shared: TestClient, path: str, kind: str | None
) -> None:
    headers = {} if kind is None else {"Content-Type": kind}
    refused = error_of(shared.post(path, content=b"{}", headers=headers), 415)

    assert refused["message"] == "a body must have the Content-Type application/json"


def test_the_type_of_a_body_may_name_its_encoding(shared: TestClient) -> None:
    headers = {"Content-Type": "Application/JSON; charset=utf-8"}

    assert shared.post("/v1/jobs", content=b"{}", headers=headers).status_code == 422


@pytest.mark.parametrize("path", ["/v1/jobs", "/v1/worker/sync"])
def test_a_body_that_is_too_large_is_refused_whether_announced_or_not(
    shared: TestClient, monkeypatch: pytest.MonkeyPatch, path: str
) -> None:
    monkeypatch.setattr(request_guard, "BODY_BYTES_MAX", 10)

    def in_parts() -> Iterator[bytes]:
        yield from (b"x" * 6, b"x" * 6)

    for body in (b"x" * 11, in_parts()):
        refused = error_of(shared.post(path, content=body, headers=JSON), 413)
        assert refused["message"] == "a body may have 10 bytes at most"
    assert shared.post(path, content=b"x" * 10, headers=JSON).status_code == 422


@pytest.mark.parametrize("path", ["/docs", "/redoc"])
def test_no_page_that_loads_scripts_from_elsewhere_is_served(shared: TestClient, path: str) -> None:
    assert shared.get(path).status_code == 404
    assert shared.get("/openapi.json").status_code == 200
