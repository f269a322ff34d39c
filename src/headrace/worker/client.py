"""Speaks the protocol, and finds the leader by itself (L3).

Only the leader answers a worker. Another coordinator says where the leader is; a dead one is
passed over. Nothing here waits or tries again: one call is one try, and the host decides.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

import httpx2
from pydantic import ValidationError

from headrace.errors import CoordinatorUnavailable, Refused, Unauthorized
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
OVERTAKEN = "was overtaken"  # so the leader says of a sync that came late; the next one is in order

M = TypeVar("M", bound=Message)


class LeaderClient:
    """For one thread: each thread that speaks has its own."""

    def __init__(
        self,
        urls: Sequence[str],
        *,
        token: str | None,
        transport: httpx2.BaseTransport | None = None,
    ) -> None:
        self._urls = [url.rstrip("/") for url in urls]
        self._at = self._urls[0]
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

    def register(self, said: Register) -> Registered:
        return self._post("register", said, Registered)

    def sync(self, said: Sync) -> Answer:
        return self._post("sync", said, Answer)

    def goodbye(self, said: Goodbye) -> None:
        self._post("goodbye", said, Message)

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

    def _post(self, verb: str, said: Message, kind: type[M]) -> M:
        answer = self._try(
            "POST",
            verb,
            content=said.model_dump_json(),
            headers={"Content-Type": "application/json"},
        )
        return self._read(answer, kind)

    def _read(self, answer: httpx2.Response, kind: type[M]) -> M:
        try:
            return kind.model_validate_json(answer.content)
        except ValidationError as error:  # a proxy's page, or a program of another kind
            raise self._elsewhere(f"{self._at} gave an answer that can't be read") from error

    def _try(self, method: str, verb: str, **what: object) -> httpx2.Response:
        url = f"{self._at}/v1/worker/{verb}"
        try:
            answer = self._http.request(method, url, **what)  # type: ignore[arg-type]
        except httpx2.TransportError as error:
            raise self._elsewhere(f"{self._at} does not answer: {error}") from error
        if answer.is_success:
            return answer
        return self._not_answered(answer)

    def _not_answered(self, answer: httpx2.Response) -> httpx2.Response:
        try:
            error = answer.json()["error"]
            message, leader = str(error["message"]), error.get("leader")
        except (ValueError, KeyError, TypeError):
            message, leader = f"HTTP {answer.status_code}", None
        if answer.status_code == 401:
            raise Unauthorized
        if answer.status_code == 421 and leader:
            raise self._follow(str(leader), message)
        if answer.status_code in {409, 422} and OVERTAKEN not in message:
            raise Refused(f"{self._at}: {message}")
        raise self._elsewhere(f"{self._at}: {message}")

    def _follow(self, leader: str, message: str) -> CoordinatorUnavailable:
        if leader not in self._urls and len(self._urls) < COORDINATORS_MAX:
            self._urls.append(leader)
        self._at = leader
        return CoordinatorUnavailable(message)

    def _elsewhere(self, message: str) -> CoordinatorUnavailable:
        """Ask the next one the next time."""
        where = self._urls.index(self._at) if self._at in self._urls else -1
        self._at = self._urls[(where + 1) % len(self._urls)]
        return CoordinatorUnavailable(message)
