"""Slow clients and too many of them, at a real server on a real socket (loopback)."""

from __future__ import annotations

import json
import resource
import select
import socket
import statistics
import threading
from collections.abc import Callable, Generator, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass

import httpx2
import pytest

from headrace.api import connections
from headrace.api.connections import (
    BoundedHttp,
    ConnectionLimits,
    Connections,
    connections_max,
    files_allowed,
)
from headrace.api.server import CoordinatorServer
from headrace.coordinator.context import CoordinatorSettings, Metrics
from headrace.coordinator.service import Coordinator
from headrace.model.ids import RandomIds
from tests.api.conftest import BOUND_S, CLOCK, eventually

TOKEN = "right"
WORKER = "GET /v1/worker/wait?timeout_s=0 HTTP/1.1\r\nHost: localhost\r\n"
HALF_A_HEAD = b"POST /v1/jobs HTTP/1.1\r\nHost: localhost\r\nContent-Le"
HALF_A_BODY = (
    b"POST /v1/jobs HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer right\r\n"
    b'Content-Type: application/json\r\nContent-Length: 100\r\n\r\n{"spec": '
)
HEALTH = b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n"
HALF_SENT = 200
PROMPT_S = 5.0  # on any machine; a server whose thread were held would not answer at all


@dataclass(frozen=True)
class Served:
    port: int
    coordinator: Coordinator
    server: CoordinatorServer
    opened: ExitStack  # connections, until the server has ended

    def connect(self) -> socket.socket:
        made = socket.create_connection(("127.0.0.1", self.port), BOUND_S)
        return self.opened.enter_context(made)

    def send(self, data: bytes) -> socket.socket:
        made = self.connect()
        made.sendall(data)
        return made

    def counted(self, name: str) -> float:
        found = self.coordinator.metrics.registry.get_sample_value(f"headrace_{name}")
        assert found is not None
        return found


@contextmanager
def serving(
    store_url: str, limits: ConnectionLimits, *, token: str | None = TOKEN
) -> Generator[Served]:
    with socket.create_server(("127.0.0.1", 0)) as sock, ExitStack() as opened:
        port = sock.getsockname()[1]
        options = CoordinatorSettings(store_url, f"http://127.0.0.1:{port}")
        coordinator = Coordinator(options, CLOCK, RandomIds())
        server = CoordinatorServer(coordinator, token, limits)
        thread = threading.Thread(target=server.run, args=([sock],), daemon=True)
        thread.start()
        eventually(lambda: server.started)
        try:
            yield Served(port, coordinator, server, opened)
        finally:
            server.should_exit = True
            thread.join(BOUND_S)
            assert not thread.is_alive()


@pytest.fixture
def quick(sqlite_url: str) -> Iterator[Served]:
    """A server with little patience."""
    with serving(sqlite_url, ConnectionLimits(1000, head_s=1.0, body_s=2.0)) as served:
        yield served


def heard(client: socket.socket) -> bytes:
    """All that is said until the other side closes."""
    client.settimeout(BOUND_S)
    said = b""
    while part := client.recv(65_536):
        said += part
    return said


def answer(client: socket.socket) -> tuple[int, dict[str, str], bytes]:
    """One answer on a connection that stays open."""
    client.settimeout(BOUND_S)
    said = b""
    while b"\r\n\r\n" not in said:
        part = client.recv(65_536)
        assert part, f"closed after {said!r}"
        said += part
    head, _, body = said.partition(b"\r\n\r\n")
    first, *lines = head.decode().split("\r\n")
    headers = dict(line.lower().split(": ", 1) for line in lines)
    while len(body) < int(headers["content-length"]):
        body += client.recv(65_536)
    return int(first.split()[1]), headers, body


def is_open(client: socket.socket) -> bool:
    client.settimeout(0)
    try:
        return client.recv(1, socket.MSG_PEEK) != b""
    except BlockingIOError:
        return True
    except ConnectionResetError:
        return False


def test_half_a_head_is_answered_and_closed(quick: Served) -> None:
    said = heard(quick.send(HALF_A_HEAD))

    assert said.startswith(b"HTTP/1.1 408 Request Timeout\r\n")
    assert b"connection: close" in said
    told = json.loads(said.partition(b"\r\n\r\n")[2])["error"]
    assert told == {
        "kind": "Unavailable",
        "message": "the head of the request did not come within 1 s; send it again",
    }
    assert quick.counted("slow_clients_total") == 1


def test_a_connection_on_which_nothing_is_said_is_closed(quick: Served) -> None:
    assert heard(quick.connect()) == b""


def test_half_a_body_is_answered_and_closed(quick: Served) -> None:
    said = heard(quick.send(HALF_A_BODY))

    assert said.startswith(b"HTTP/1.1 408 Request Timeout\r\n")
    assert b"the body of the request did not come within 2 s" in said


@pytest.mark.parametrize("sent", [HALF_A_HEAD + b"ngth: 1\r\n", HALF_A_BODY], ids=["head", "body"])
def test_a_byte_now_and_then_gives_no_more_time(quick: Served, sent: bytes) -> None:
    client = quick.send(sent)
    since_s = CLOCK.monotonic_s()
    while not select.select([client], [], [], 0.05)[0]:
        client.sendall(b"x")
        assert CLOCK.monotonic_s() - since_s < BOUND_S

    assert answer(client)[0] == 408


def test_the_rest_of_a_body_that_nobody_reads_has_its_time_as_well(quick: Served) -> None:
    """It is answered before the body is there: nobody waits for it, but the connection is held."""
    client = quick.send(HEALTH.replace(b"\r\n\r\n", b"\r\nContent-Length: 1000\r\n\r\n"))
    assert answer(client)[0] == 200

    eventually(lambda: not is_open(client))


def test_a_second_request_on_a_connection_has_the_same_time(quick: Served) -> None:
    client = quick.send(HEALTH)
    assert answer(client)[0] == 200
    client.sendall(b"\r\n" + HALF_A_HEAD)

    assert answer(client)[0] == 408


def test_a_kept_connection_and_a_long_poll_outlast_both(quick: Served) -> None:
    eventually(lambda: quick.coordinator.leading is not None)
    client = quick.send(HEALTH)
    assert answer(client)[0] == 200
    poll = WORKER.replace("timeout_s=0", "timeout_s=2.5") + "Authorization: Bearer right\r\n\r\n"
    client.sendall(poll.encode())
    # Half of another request behind it: until the first is answered, it is we who are waited for.
    client.sendall(HALF_A_HEAD)

    assert answer(client)[0] == 200
    assert answer(client)[0] == 408


def test_what_comes_in_pieces_in_time_is_served(quick: Served) -> None:
    client = quick.connect()
    for piece in (HEALTH[:3], HEALTH[3:20], HEALTH[20:-2], HEALTH[-2:]):
        client.sendall(piece)

    assert answer(client)[0] == 200
    client.sendall(HEALTH + HEALTH)
    assert [answer(client)[0]] == [200]


def test_a_head_without_an_end_is_refused(sqlite_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "HEAD_BYTES_MAX", 10_000)
    with serving(sqlite_url, ConnectionLimits(1000, head_s=BOUND_S)) as served:
        client = served.send(HALF_A_HEAD)
        for _ in range(1000):
            if select.select([client], [], [], 0.01)[0]:
                break
            client.sendall(b"x" * 1000)

        assert answer(client)[0] == 431


def test_an_answer_that_is_not_taken_does_not_hold_its_connection(
    sqlite_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with serving(sqlite_url, ConnectionLimits(1000, answer_s=0.5)) as served:
        client = served.connect()
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        ask = (
            b"GET /openapi.json HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer right\r\n\r\n"
        )
        client.settimeout(0.2)
        try:
            for _ in range(10_000):  # until neither side takes anything more
                client.sendall(ask)
        except OSError:
            pass

        eventually(lambda: served.counted("slow_clients_total") == 1)
        eventually(lambda: served.counted("connections") == 0)


class Buffer:
    """Stands in for a transport: how much of an answer its client has not taken."""

    def __init__(self) -> None:
        self.left, self.aborted = 0, False

    def get_write_buffer_size(self) -> int:
        return self.left

    def abort(self) -> None:
        self.aborted = True


class Timers:
    """Stands in for an event loop: what was set last."""

    def __init__(self) -> None:
        self._due: Callable[[], None] | None = None

    def call_later(self, _delay_s: float, call: Callable[[], None]) -> Timers:
        self._due = call
        return self

    def cancel(self) -> None:
        self._due = None

    def fire(self) -> None:
        due, self._due = self._due, None
        assert due is not None
        due()


@pytest.fixture
def slow_reader(monkeypatch: pytest.MonkeyPatch) -> tuple[BoundedHttp, Buffer, Timers]:
    """A connection whose answer waits for its client, and nothing else of a server."""
    taken = Connections(ConnectionLimits(9), Metrics(), token=None, address="http://a:1")
    monkeypatch.setattr(taken, "count_slow", lambda: None)  # it needs a real event loop
    buffer, timers, one = Buffer(), Timers(), object.__new__(BoundedHttp)
    facts = {"transport": buffer, "loop": timers, "_connections": taken, "_limits": taken.limits}
    for name, value in {**facts, "_answer_timer": None, "_answers": 0}.items():
        setattr(one, name, value)
    buffer.left = 50_000
    one._set_answer_timer()  # pyright: ignore[reportPrivateUsage]
    return one, buffer, timers


def test_a_client_that_reads_slowly_keeps_its_connection_until_it_stops(
    slow_reader: tuple[BoundedHttp, Buffer, Timers],
) -> None:
    _, buffer, timers = slow_reader
    for left in (40_000, 39_999, 10):
        buffer.left = left
        timers.fire()
        assert not buffer.aborted
    timers.fire()
    assert buffer.aborted


def test_an_answer_that_follows_a_taken_one_has_its_own_time(
    slow_reader: tuple[BoundedHttp, Buffer, Timers],
) -> None:
    one, buffer, timers = slow_reader
    one._answers += 1  # pyright: ignore[reportPrivateUsage]
    buffer.left = 60_000
    timers.fire()
    assert not buffer.aborted
    timers.fire()
    assert buffer.aborted


def test_200_half_sent_requests_hold_nobody_up_and_are_closed(sqlite_url: str) -> None:
    limits = ConnectionLimits(1000, head_s=2.0, body_s=2.0)
    with (
        serving(sqlite_url, limits) as served,
        httpx2.Client(base_url=f"http://127.0.0.1:{served.port}", trust_env=False) as client,
    ):
        half = [served.send(HALF_A_HEAD if n % 2 else HALF_A_BODY) for n in range(HALF_SENT)]

        assert _p50_s(client) < PROMPT_S
        eventually(lambda: served.counted("slow_clients_total") == HALF_SENT)
        for each in half:
            assert answer(each)[0] == 408
        eventually(lambda: served.counted("connections") <= 1)


def test_a_server_that_stops_does_not_wait_for_the_rest_of_a_request(
    sqlite_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    with serving(sqlite_url, ConnectionLimits(1000)) as served:
        client = served.send(HALF_A_BODY)
        eventually(lambda: served.counted("connections") == 1)
        idle(served, 1)  # answered after the first was read
        served.server.should_exit = True

        assert answer(client)[0] == 503
    assert not [one for one in caplog.records if one.levelname == "ERROR"]


def _p50_s(client: httpx2.Client, times: int = 50) -> float:
    took: list[float] = []
    for _ in range(times):
        since_s = CLOCK.monotonic_s()
        assert client.get("/health").status_code == 200
        took.append(CLOCK.monotonic_s() - since_s)
    return statistics.median(took)


FEW = ConnectionLimits(10)


def idle(served: Served, number: int) -> list[socket.socket]:
    """Connections of clients that were answered once, and stay."""
    made = [served.send(HEALTH) for _ in range(number)]
    for each in made:
        assert answer(each)[0] == 200
    return made


def as_worker(token: str = TOKEN) -> bytes:
    return f"{WORKER}Authorization: Bearer {token}\r\n\r\n".encode()


def test_a_tenth_is_kept_for_workers_and_others_are_told_503(
    sqlite_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    with serving(sqlite_url, FEW) as served:
        eventually(lambda: served.coordinator.leading is not None)
        first, *_ = idle(served, 9)

        for said in (HEALTH, as_worker("wrong"), HEALTH):
            status, headers, body = answer(served.send(said))
            assert (status, headers["retry-after"], headers["connection"]) == (503, "5", "close")
            assert json.loads(body)["error"]["kind"] == "Unavailable"
        assert answer(served.send(as_worker()))[0] == 200
        first.sendall(HEALTH)
        assert answer(first)[0] == 200, "who was let in stays"
        assert heard(served.send(as_worker())).startswith(b"HTTP/1.1 503 ")

        assert served.counted("connections_refused_total") == 4
    refusals = [one for one in caplog.records if one.getMessage() == "connections refused"]
    assert len(refusals) == 1, "once a minute"


def test_the_count_of_a_minute_is_told_with_the_next_line(
    sqlite_url: str, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connections, "LOG_INTERVAL_S", 1.0)
    with serving(sqlite_url, FEW) as served:
        idle(served, 9)
        for _ in range(4):
            assert answer(served.send(HEALTH))[0] == 503

        def counts() -> list[object]:
            told = [one for one in caplog.records if one.getMessage() == "connections refused"]
            return [vars(one)["count"] for one in told]

        eventually(lambda: sum(map(int, map(str, counts()))) == 4)
        assert counts()[0] == 1


def test_without_a_token_the_path_says_who_is_a_worker(sqlite_url: str) -> None:
    with serving(sqlite_url, FEW, token=None) as served:
        eventually(lambda: served.coordinator.leading is not None)
        idle(served, 9)

        assert answer(served.send(HEALTH))[0] == 503
        assert answer(served.send(WORKER.encode() + b"\r\n"))[0] == 200


def test_who_shows_no_head_makes_room_for_who_comes(sqlite_url: str) -> None:
    with serving(sqlite_url, FEW) as served:
        eventually(lambda: served.coordinator.leading is not None)
        half = [served.send(HALF_A_HEAD) for _ in range(10)]
        eventually(lambda: served.counted("connections") == 10)

        assert answer(served.send(as_worker()))[0] == 200
        assert heard(half[0]).startswith(b"HTTP/1.1 503 ")
        assert all(is_open(each) for each in half[1:])


def test_the_limit_of_files_is_raised_and_connections_stay_below_it() -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (min(soft, 512), hard))
        allowed = files_allowed()
        assert allowed == resource.getrlimit(resource.RLIMIT_NOFILE)[0] > 0
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert [connections_max(files) for files in (64, 1024, 16_384)] == [32, 768, 16_128]
