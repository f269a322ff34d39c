"""The worker's client: finds the leader among coordinators that are gone, wrong or strange."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator

import httpx2
import pytest

from headrace.clock import SystemClock
from headrace.errors import CoordinatorUnavailable, HeadraceError, Refused, Unauthorized
from headrace.model.task import Lane
from headrace.protocol.messages import Answer, Goodbye, Sync
from headrace.worker import client as client_module
from headrace.worker.client import LeaderClient

Handler = Callable[[httpx2.Request], httpx2.Response]

SYNC = Sync(worker="w1", sync=1)
ANSWER = Answer(term=1, number=1)


def not_leader(leader: str | None) -> Handler:
    body = {"error": {"kind": "NotLeader", "message": "does not lead", "leader": leader}}
    return lambda _: httpx2.Response(421, json=body)


def leads(_: httpx2.Request) -> httpx2.Response:
    return httpx2.Response(200, content=ANSWER.model_dump_json())


def dead(request: httpx2.Request) -> httpx2.Response:
    raise httpx2.ConnectError("refused", request=request)


def says(status: int, text: str = "nonsense") -> Handler:
    return lambda _: httpx2.Response(status, text=text)


def refuses(status: int, words: str, *, kind: str | None = "Refused") -> Handler:
    error = {"message": words} | ({"kind": kind} if kind else {})
    return lambda _: httpx2.Response(status, json={"error": error})


class Cluster:
    """Coordinators by host name, and who was asked."""

    def __init__(self, **hosts: Handler) -> None:
        self.hosts = hosts
        self.asked: list[str] = []

    def __call__(self, request: httpx2.Request) -> httpx2.Response:
        self.asked.append(request.url.host)
        return self.hosts[request.url.host](request)

    def client(self, *urls: str, token: str | None = None) -> LeaderClient:
        return LeaderClient(urls, token=token, transport=httpx2.MockTransport(self))


def until_answered(client: LeaderClient, tries: int = 6) -> Answer:
    """What the sync loop does, without its pauses."""
    for _ in range(tries):
        try:
            return client.sync(SYNC)
        except CoordinatorUnavailable:
            continue
    raise AssertionError("nobody answered")


@pytest.mark.req("L3")
def test_a_follower_is_followed_to_the_leader() -> None:
    cluster = Cluster(a=not_leader("http://b:1"), b=leads)
    client = cluster.client("http://a:1")

    assert until_answered(client) == ANSWER
    assert client.sync(SYNC) == ANSWER
    assert cluster.asked == ["a", "b", "b"]


@pytest.mark.req("L3")
@pytest.mark.parametrize(
    "gone", [dead, not_leader(None), says(503), says(500), says(404), says(200), says(200, "{}")]
)
def test_a_coordinator_that_does_not_answer_is_passed_over(gone: Handler) -> None:
    cluster = Cluster(a=gone, b=gone, c=leads)
    client = cluster.client("http://a:1", "http://b:1", "http://c:1")

    assert until_answered(client) == ANSWER
    assert cluster.asked == ["a", "b", "c"]


@pytest.mark.req("L3")
def test_a_leader_that_dies_is_left_for_those_that_were_named() -> None:
    """It was learnt from a follower, and is not among the addresses the worker was started with."""
    cluster = Cluster(a=not_leader("http://b:1"), b=leads)
    client = cluster.client("http://a:1")
    until_answered(client)

    cluster.hosts.update(a=leads, b=dead)

    assert until_answered(client) == ANSWER
    assert cluster.asked[-2:] == ["b", "a"]


@pytest.mark.req("L3")
def test_a_leader_that_was_learnt_is_remembered_when_all_others_are_gone() -> None:
    cluster = Cluster(a=not_leader("http://b:1"), b=leads)
    client = cluster.client("http://a:1")
    until_answered(client)
    cluster.hosts.update(a=dead, b=dead)
    for _ in range(5):
        with pytest.raises(CoordinatorUnavailable):
            client.sync(SYNC)

    cluster.hosts.update(b=leads)

    assert until_answered(client) == ANSWER


def test_addresses_that_are_remembered_have_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client_module, "COORDINATORS_MAX", 2)
    cluster = Cluster(a=not_leader("http://b:1"), b=not_leader("http://c:1"), c=leads)
    client = cluster.client("http://a:1")

    assert until_answered(client) == ANSWER
    cluster.hosts.update(c=dead, a=leads)
    assert until_answered(client) == ANSWER


def test_a_wrong_token_is_no_reason_to_look_elsewhere() -> None:
    cluster = Cluster(a=says(401), b=leads)
    client = cluster.client("http://a:1", "http://b:1", token="wrong")

    with pytest.raises(Unauthorized, match="http://a:1 was started with another token"):
        client.sync(SYNC)
    assert cluster.asked == ["a"]


def test_what_a_coordinator_says_about_a_token_is_kept() -> None:
    words = "coordinator http://a:1 was started with another token; set HEADRACE_TOKEN"
    client = Cluster(a=refuses(401, words, kind="Unauthorized")).client("http://a:1")

    with pytest.raises(Unauthorized) as raised:
        client.sync(SYNC)
    assert str(raised.value) == f"http://a:1: {words}"


def test_the_token_is_shown() -> None:
    shown: list[str] = []

    def note(request: httpx2.Request) -> httpx2.Response:
        shown.append(request.headers["authorization"])
        return leads(request)

    Cluster(a=note).client("http://a:1", token="right").sync(SYNC)

    assert shown == ["Bearer right"]


@pytest.mark.parametrize("status", [403, 413, 415, 422])
@pytest.mark.parametrize("kind", ["Refused", "ProgramTooOld", "OfANewerRelease", None])
def test_a_refusal_names_the_coordinator_and_its_words(status: int, kind: str | None) -> None:
    cluster = Cluster(a=refuses(status, "speak version 1", kind=kind), b=leads)

    with pytest.raises(Refused, match="http://a:1: speak version 1"):
        cluster.client("http://a:1", "http://b:1").sync(SYNC)
    assert cluster.asked == ["a"]


def test_a_refusal_without_words_names_its_status() -> None:
    with pytest.raises(Refused, match="http://a:1: HTTP 413"):
        Cluster(a=says(413)).client("http://a:1").sync(SYNC)


def test_the_words_of_a_refusal_decide_nothing() -> None:
    words = "the plan of job 'x' was overtaken by a later one"
    with pytest.raises(Refused, match="was overtaken"):
        Cluster(a=refuses(422, words)).client("http://a:1").sync(SYNC)


def test_an_overtaken_sync_is_known_by_its_kind_and_the_next_goes_to_the_same_leader() -> None:
    cluster = Cluster(a=refuses(409, "too late", kind="SyncOvertaken"), b=leads)
    client = cluster.client("http://a:1", "http://b:1")

    with pytest.raises(CoordinatorUnavailable, match="http://a:1: too late"):
        client.sync(SYNC)
    cluster.hosts.update(a=leads)
    client.sync(SYNC)

    assert cluster.asked == ["a", "a"]


@pytest.mark.req("L3")
@pytest.mark.parametrize("kind", ["LeaderFenced", "OfANewerRelease", None])
def test_a_conflict_is_a_reason_to_ask_the_next(kind: str | None) -> None:
    """A leader was replaced while it wrote. An older side may not say so by a kind."""
    cluster = Cluster(a=refuses(409, "term 5 ended", kind=kind), b=leads)

    assert until_answered(cluster.client("http://a:1", "http://b:1")) == ANSWER
    assert cluster.asked == ["a", "b"]


@pytest.mark.req("L3")
def test_a_leader_is_followed_also_when_no_kind_is_said() -> None:
    body = {"error": {"message": "does not lead", "leader": "http://b:1"}}
    cluster = Cluster(a=lambda _: httpx2.Response(421, json=body), b=leads)

    assert until_answered(cluster.client("http://a:1")) == ANSWER
    assert cluster.asked == ["a", "b"]


def test_a_slash_at_the_end_of_an_address_does_no_harm() -> None:
    paths: list[str] = []

    def note(request: httpx2.Request) -> httpx2.Response:
        paths.append(request.url.path)
        return leads(request)

    client = Cluster(a=note).client("http://a:1/")
    client.sync(SYNC)
    client.goodbye(Goodbye(worker="w1"), timeout_s=5.0)

    assert paths == ["/v1/worker/sync", "/v1/worker/goodbye"]


def test_a_wait_says_which_lanes_are_free() -> None:
    asked: list[dict[str, str]] = []

    def park(request: httpx2.Request) -> httpx2.Response:
        asked.append(dict(request.url.params))
        return httpx2.Response(200, json={"rung": True})

    client = Cluster(a=park).client("http://a:1")

    assert client.wait("w1", "g", [Lane.SLOT, Lane.CONTROL], timeout_s=3.0)
    assert asked == [{"worker": "w1", "group": "g", "free": "SLOT,CONTROL", "timeout_s": "3.0"}]


@pytest.fixture
def silent() -> Iterator[str]:
    """The address of somebody who takes requests and answers none, as a paused process does."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield f"http://127.0.0.1:{server.getsockname()[1]}"


def test_hanging_up_ends_a_request_that_nobody_answers(silent: str) -> None:
    client = LeaderClient([silent], token=None)
    gave_up: list[HeadraceError] = []

    def ask() -> None:
        try:
            client.sync(SYNC)
        except HeadraceError as error:
            gave_up.append(error)

    asking = threading.Thread(target=ask, daemon=True)
    began_s = SystemClock().monotonic_s()
    asking.start()
    while asking.is_alive():  # it only hits a connection that is there
        client.hang_up()
        asking.join(0.05)
        assert SystemClock().monotonic_s() - began_s < client_module.ANSWER_TIMEOUT_S
    client.close()

    [error] = gave_up
    assert isinstance(error, CoordinatorUnavailable)


def test_a_goodbye_that_nobody_answers_takes_no_longer_than_it_may(silent: str) -> None:
    client = LeaderClient([silent], token=None)
    began_s = SystemClock().monotonic_s()
    with pytest.raises(CoordinatorUnavailable):
        client.goodbye(Goodbye(worker="w1"), timeout_s=0.2)

    assert SystemClock().monotonic_s() - began_s < client_module.ANSWER_TIMEOUT_S
    client.close()
