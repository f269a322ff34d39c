"""The HTTP client by which a worker speaks the protocol and finds the leader by itself (L3).

Only the leader answers a worker. Another coordinator answers with the address of the leader; one
that does not answer is passed over. Nothing here waits or retries: one call is one try, and the
sync loop decides what follows. It goes on after Unavailable; after Refused it gives everything
back and ends with the reason.

An error response names its kind, and the kind decides. Where the kind is missing or unknown here
(an older or newer side, or a proxy), the HTTP status decides.

Each message says which version of the protocol it is in, and is sent as that version has it. A
coordinator that does not speak it says which ones it does: ProtocolRefused.
"""

from __future__ import annotations

import contextlib
import re
import socket
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import httpx2
from pydantic import ValidationError

from headrace.errors import (
    CoordinatorUnavailable,
    Fenced,
    HeadraceError,
    ProtocolRefused,
    Refused,
    SyncOvertaken,
    Unauthorized,
    Unavailable,
    error_of_kind,
)
from headrace.model.task import Lane
from headrace.protocol.messages import (
    Answer,
    Goodbye,
    Message,
    Register,
    Registered,
    Spoken,
    Sync,
    WaitEnd,
)
from headrace.protocol.versions import SPOKEN, NotSaid, WireVersions

CONNECT_TIMEOUT_S = 3.0
ANSWER_TIMEOUT_S = 15.0
COORDINATORS_MAX = 50  # addresses that are remembered
CONNECTIONS_REMEMBERED_MAX = 10  # the newest; one thread calls, so one of them is in use
CONNECTED = frozenset({"connection.connect_tcp.complete", "connection.start_tls.complete"})
# Not 404: a server without such a page is no coordinator, and the next address may be one.
REFUSALS = frozenset({401, 403, 413, 415, 422})
# How coordinators refused another version before protocol 5, when it had no kind of its own.
_REFUSED_BEFORE_5 = re.compile(r"this coordinator speaks protocol version (\d{1,9}), the worker")

M = TypeVar("M", bound=Message)


@dataclass(frozen=True, slots=True)
class _ErrorBody:
    """The body of an error response: the message is for people, the kind is for this program."""

    message: str | None = None
    kind: str | None = None
    leader: str | None = None
    spoken: tuple[int, int] | None = None  # the oldest and the newest version, if that is refused

    @classmethod
    def of(cls, answer: httpx2.Response) -> _ErrorBody:
        try:
            error = answer.json()["error"]
            message = str(error["message"])
        except (ValueError, KeyError, TypeError):  # not from a coordinator
            return cls()
        kind, leader = error.get("kind"), error.get("leader")
        spoken = _spoken_by(message, error.get("oldest"), error.get("newest"))
        return cls(message, str(kind) if kind else None, str(leader) if leader else None, spoken)


def _spoken_by(message: str, oldest: object, newest: object) -> tuple[int, int] | None:
    if isinstance(oldest, int) and isinstance(newest, int):
        return oldest, newest
    if found := _REFUSED_BEFORE_5.search(message):
        return int(found[1]), int(found[1])
    return None


class LeaderClient:
    """For one thread: each thread that calls has its own client. Any thread may hang up."""

    def __init__(
        self,
        urls: Sequence[str],
        *,
        token: str | None,
        transport: httpx2.BaseTransport | None = None,
        spoken: WireVersions | None = None,
    ) -> None:
        """`spoken`: None for the versions that this program speaks."""
        self._spoken = spoken or SPOKEN
        self._urls = [url.rstrip("/") for url in urls]
        self._shows_token = token is not None
        self._at = self._urls[0]
        self._connections: deque[socket.socket] = deque(maxlen=CONNECTIONS_REMEMBERED_MAX)
        self._http = httpx2.Client(
            headers={"Authorization": f"Bearer {token}"} if token else {},
            timeout=httpx2.Timeout(ANSWER_TIMEOUT_S, connect=CONNECT_TIMEOUT_S),
            transport=transport,
            trust_env=False,  # a proxy must not stand between a worker and its coordinator
        )

    @property
    def addresses(self) -> int:
        """How many coordinators are known; each failed call moves on to the next."""
        return len(self._urls)

    def close(self) -> None:
        self._http.close()

    def hang_up(self) -> None:
        """End the request that is under way, as if nobody had answered it.

        Safe in a signal handler: a worker that is to stop must not wait for a coordinator that
        is paused. The next request opens a new connection.
        """
        for connection in tuple(self._connections):
            with contextlib.suppress(OSError):  # it is closed already
                connection.shutdown(socket.SHUT_RDWR)

    def register(self, message: Register) -> Registered:
        return self._post("register", message, Registered)

    def sync(self, message: Sync) -> Answer:
        return self._post("sync", message, Answer)

    def goodbye(self, message: Goodbye, *, timeout_s: float) -> None:
        timeout = httpx2.Timeout(timeout_s, connect=min(timeout_s, CONNECT_TIMEOUT_S))
        self._post("goodbye", message, Message, timeout=timeout)

    def wait(self, worker: str, group: str, free: Sequence[Lane], *, timeout_s: float) -> bool:
        """Long-poll the leader until it has something for this worker; False after `timeout_s`."""
        answer = self._try(
            "GET",
            "wait",
            params={
                "worker": worker,
                "group": group,
                "free": ",".join(free),
                "timeout_s": str(timeout_s),
            },
            timeout=httpx2.Timeout(timeout_s + ANSWER_TIMEOUT_S, connect=CONNECT_TIMEOUT_S),
        )
        return self._read(answer, WaitEnd).rung

    def _post(self, verb: str, message: Spoken, kind: type[M], **more: Any) -> M:
        try:
            content = self._spoken.said(message, message.protocol)
        except NotSaid as error:
            raise Refused(f"{self._at} speaks protocol {message.protocol}, and {error}") from error
        answer = self._try(
            "POST",
            verb,
            content=content,
            headers={"Content-Type": "application/json"},
            **more,
        )
        return self._read(answer, kind)

    def _read(self, answer: httpx2.Response, kind: type[M]) -> M:
        try:
            return kind.model_validate_json(answer.content)
        except ValidationError as error:  # a proxy's page, or another program
            raise self._try_next_address(f"{self._at} gave an answer that can't be read") from error

    def _try(self, method: str, verb: str, **options: Any) -> httpx2.Response:
        url = f"{self._at}/v1/worker/{verb}"
        try:
            answer = self._http.request(
                method, url, extensions={"trace": self._remember_connection}, **options
            )
        except httpx2.TransportError as error:
            raise self._try_next_address(f"{self._at} does not answer: {error}") from error
        if answer.is_success:
            return answer
        raise self._error_of(answer)

    def _remember_connection(self, event: str, facts: Mapping[str, Any]) -> None:
        """Called by the HTTP client at each of its steps."""
        if event in CONNECTED:
            connection = facts["return_value"].get_extra_info("socket")
            if connection is not None:
                self._connections.append(connection)

    def _error_of(self, answer: httpx2.Response) -> HeadraceError:
        """The error that the sync loop acts on. Whatever may pass is CoordinatorUnavailable."""
        body = _ErrorBody.of(answer)
        message = f"{self._at}: {body.message or f'HTTP {answer.status_code}'}"
        error = error_of_kind(body.kind or "", message)
        if isinstance(error, SyncOvertaken):
            return CoordinatorUnavailable(message)  # it leads: stay with it
        if answer.status_code in REFUSALS and body.spoken is not None:
            return ProtocolRefused(message, oldest=body.spoken[0], newest=body.spoken[1])
        if isinstance(error, Fenced | Unavailable) or answer.status_code not in REFUSALS:
            return self._follow(body.leader, message)
        if answer.status_code == 401 and not isinstance(error, Unauthorized):
            return Unauthorized(self._at, shown=self._shows_token)  # of a proxy: in our words
        return error if isinstance(error, Refused) else Refused(message)

    def _follow(self, leader: str | None, message: str) -> CoordinatorUnavailable:
        if leader is None:
            return self._try_next_address(message)
        if leader not in self._urls and len(self._urls) < COORDINATORS_MAX:
            self._urls.append(leader)
        self._at = leader
        return CoordinatorUnavailable(message)

    def _try_next_address(self, message: str) -> CoordinatorUnavailable:
        """Move on: the next call goes to the next address. Returns the error of this one."""
        where = self._urls.index(self._at) if self._at in self._urls else -1
        self._at = self._urls[(where + 1) % len(self._urls)]
        return CoordinatorUnavailable(message)
