"""Speaks the protocol, and finds the leader by itself (L3).

Only the leader answers a worker. Another coordinator says where the leader is; a dead one is
passed over. Nothing here waits or tries again: one call is one try, and the host decides: it goes
on after Unavailable, and after Refused it gives everything back and ends with the reason.

An error says by its kind what it is. Without a kind that is known here (an older or newer side, or
a proxy) its status decides.
"""

from __future__ import annotations

import contextlib
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
    Refused,
    SyncOvertaken,
    Unauthorized,
    Unavailable,
    heard,
)
from headrace.model.task import Lane
from headrace.protocol.messages import (
    Answer,
    Goodbye,
    Message,
    Register,
    Registered,
    Rung,
    Sync,
)

CONNECT_TIMEOUT_S = 3.0
ANSWER_TIMEOUT_S = 15.0
COORDINATORS_MAX = 50  # remembered addresses
CONNECTIONS_REMEMBERED_MAX = 10  # the newest: one thread asks, so one of them is in use
CONNECTED = frozenset({"connection.connect_tcp.complete", "connection.start_tls.complete"})
# Not 404: what has no such page is no coordinator, and the next address may be one.
REFUSALS = frozenset({401, 403, 413, 415, 422})

M = TypeVar("M", bound=Message)


@dataclass(frozen=True, slots=True)
class _Said:
    """The body of an error: its words are for people, and its kind is for us."""

    words: str | None = None
    kind: str | None = None
    leader: str | None = None

    @classmethod
    def of(cls, answer: httpx2.Response) -> _Said:
        try:
            error = answer.json()["error"]
            words = str(error["message"])
        except (ValueError, KeyError, TypeError):  # not from a coordinator
            return cls()
        kind, leader = error.get("kind"), error.get("leader")
        return cls(words, str(kind) if kind else None, str(leader) if leader else None)


class LeaderClient:
    """For one thread: each thread that speaks has its own. Any thread may hang up."""

    def __init__(
        self,
        urls: Sequence[str],
        *,
        token: str | None,
        transport: httpx2.BaseTransport | None = None,
    ) -> None:
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
        """End the request that is under way as if nobody had answered it.

        Safe in a signal handler: a worker that is to stop must not wait for a coordinator that
        has been paused. The next request connects anew.
        """
        for connection in tuple(self._connections):
            with contextlib.suppress(OSError):  # it is closed already
                connection.shutdown(socket.SHUT_RDWR)

    def register(self, said: Register) -> Registered:
        return self._post("register", said, Registered)

    def sync(self, said: Sync) -> Answer:
        return self._post("sync", said, Answer)

    def goodbye(self, said: Goodbye, *, timeout_s: float) -> None:
        timeout = httpx2.Timeout(timeout_s, connect=min(timeout_s, CONNECT_TIMEOUT_S))
        self._post("goodbye", said, Message, timeout=timeout)

    def wait(self, worker: str, group: str, free: Sequence[Lane], *, timeout_s: float) -> bool:
        """Park at the leader until it has something for this worker."""
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
        return self._read(answer, Rung).rung

    def _post(self, verb: str, said: Message, kind: type[M], **more: Any) -> M:
        answer = self._try(
            "POST",
            verb,
            content=said.model_dump_json(),
            headers={"Content-Type": "application/json"},
            **more,
        )
        return self._read(answer, kind)

    def _read(self, answer: httpx2.Response, kind: type[M]) -> M:
        try:
            return kind.model_validate_json(answer.content)
        except ValidationError as error:  # a proxy's page, or a program of another kind
            raise self._elsewhere(f"{self._at} gave an answer that can't be read") from error

    def _try(self, method: str, verb: str, **what: Any) -> httpx2.Response:
        url = f"{self._at}/v1/worker/{verb}"
        try:
            answer = self._http.request(
                method, url, extensions={"trace": self._remember_connection}, **what
            )
        except httpx2.TransportError as error:
            raise self._elsewhere(f"{self._at} does not answer: {error}") from error
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
        """What the host is to act on. Whatever may go away is CoordinatorUnavailable."""
        said = _Said.of(answer)
        message = f"{self._at}: {said.words or f'HTTP {answer.status_code}'}"
        error = heard(said.kind or "", message)
        if isinstance(error, SyncOvertaken):
            return CoordinatorUnavailable(message)  # it leads: the next sync is for it, too
        if isinstance(error, Fenced | Unavailable) or answer.status_code not in REFUSALS:
            return self._follow(said.leader, message)
        if answer.status_code == 401 and not isinstance(error, Unauthorized):
            return Unauthorized(self._at, shown=self._shows_token)  # a proxy's; in our words
        return error if isinstance(error, Refused) else Refused(message)

    def _follow(self, leader: str | None, message: str) -> CoordinatorUnavailable:
        if leader is None:
            return self._elsewhere(message)
        if leader not in self._urls and len(self._urls) < COORDINATORS_MAX:
            self._urls.append(leader)
        self._at = leader
        return CoordinatorUnavailable(message)

    def _elsewhere(self, message: str) -> CoordinatorUnavailable:
        """Ask the next one the next time."""
        where = self._urls.index(self._at) if self._at in self._urls else -1
        self._at = self._urls[(where + 1) % len(self._urls)]
        return CoordinatorUnavailable(message)
