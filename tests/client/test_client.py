"""The client finds a coordinator that answers, and raises what a coordinator raised."""

from __future__ import annotations

import json

import httpx2
import pytest

from headrace.cli.context import urls_of
from headrace.client.client import ROUNDS_MAX, Client
from headrace.errors import (
    BadSetting,
    CoordinatorUnavailable,
    HeadraceError,
    NotFound,
    Refused,
    StoreRefused,
    Unauthorized,
)
from tests.cli.machine import Coordinators, error_body, job_view

A, B = "http://a:1", "http://b:1"


def answering(status: int, body: object) -> httpx2.Response:
    return httpx2.Response(status, json=body)


@pytest.mark.req("L3")
def test_a_dead_coordinator_is_passed_over_for_the_next() -> None:
    there = Coordinators(b=lambda _: answering(200, job_view()))
    client = Client([A, B], transport=there.transport())

    assert client.job("j1").id == "j1"
    assert there.asked == ["a GET /v1/jobs/j1", "b GET /v1/jobs/j1"]


@pytest.mark.req("L3")
def test_the_coordinator_that_answered_is_asked_first_from_then_on() -> None:
    there = Coordinators(b=lambda _: answering(200, job_view()))
    client = Client([A, B], transport=there.transport())
    client.job("j1")
    client.job("j1")

    assert there.asked[2:] == ["b GET /v1/jobs/j1"]


@pytest.mark.req("L3")
def test_one_that_can_not_reach_its_store_is_passed_over_too() -> None:
    there = Coordinators(
        a=lambda _: answering(503, error_body("StoreUnavailable", "the store is away")),
        b=lambda _: answering(200, job_view()),
    )
    assert Client([A, B], transport=there.transport()).job("j1").status == "RUNNING"


def test_when_none_answers_the_error_names_each_and_why() -> None:
    there = Coordinators(b=lambda _: answering(503, error_body("StoreUnavailable", "it is away")))
    client = Client([A, B], transport=there.transport())

    with pytest.raises(CoordinatorUnavailable) as raised:
        client.health()
    assert "http://a:1 (Connection refused), http://b:1 (it is away)" in str(raised.value)
    assert len(there.asked) == 2 * ROUNDS_MAX


def test_a_submission_whose_answer_was_lost_is_repeated_under_the_same_key() -> None:
    keys: list[str] = []

    def lose_the_first_answer(request: httpx2.Request) -> httpx2.Response:
        keys.append(json.loads(request.content)["submission_key"])
        if len(keys) == 1:
            raise httpx2.ReadError("connection reset", request=request)
        return answering(200, job_view("CREATED"))

    there = Coordinators(a=lose_the_first_answer)
    client = Client([A], transport=there.transport())

    assert client.submit_job({}, submission_key="k", group="default").status == "CREATED"
    assert keys == ["k", "k"]


@pytest.mark.parametrize(
    ("status", "kind", "raised"),
    [
        (404, "NotFound", NotFound),
        (401, "Unauthorized", Unauthorized),
        (422, "StoreRefused", StoreRefused),
        (422, "AKindOfANewerVersion", Refused),
    ],
)
def test_a_refusal_is_raised_as_its_class_with_its_message(
    status: int, kind: str, raised: type[HeadraceError]
) -> None:
    there = Coordinators(a=lambda _: answering(status, error_body(kind, "because")))

    with pytest.raises(raised, match=r"^because$"):
        Client([A], transport=there.transport()).health()
    assert len(there.asked) == 1, "a refusal is not repeated"


def test_the_token_is_shown_to_the_coordinator() -> None:
    seen: list[str | None] = []

    def look(request: httpx2.Request) -> httpx2.Response:
        seen.append(request.headers.get("authorization"))
        return answering(200, {"workers": []})

    there = Coordinators(a=look)
    Client([A], token="s3cret", transport=there.transport()).workers()
    Client([A], transport=there.transport()).workers()

    assert seen == ["Bearer s3cret", None]


def test_what_is_no_coordinator_is_said_to_be_none() -> None:
    there = Coordinators(a=lambda _: httpx2.Response(200, text="<html>hello</html>"))

    with pytest.raises(Refused, match="http://a:1 is not a coordinator"):
        Client([A], transport=there.transport()).health()


@pytest.mark.parametrize("url", ["127.0.0.1:7300", "ftp://a:1", "http://"])
def test_an_address_that_is_no_url_is_refused_with_the_form(url: str) -> None:
    with pytest.raises(BadSetting, match="is not a URL"):
        Client([url])


@pytest.mark.parametrize(
    "holding", ["http://u:{}@a:1", "http://{}@a:1", "http://u:{}@a:port", "u:{}@a:1"]
)
def test_a_password_in_an_address_is_refused_and_not_repeated(holding: str) -> None:
    url = holding.format("secret")
    for refusing in (lambda: Client([url]), lambda: urls_of(f"http://b:1,{url}")):
        with pytest.raises(BadSetting, match="the token goes into HEADRACE_TOKEN") as refused:
            refusing()
        assert "secret" not in str(refused.value)
