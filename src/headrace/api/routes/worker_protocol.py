"""The worker protocol over HTTP. Only the leader answers; the others say where it is (421).

A worker may speak an older version: what it is answered is shaped for that (`protocol/versions`).
One whose version is not spoken here is told which ones are, whatever else it said.

`sync` and `wait` are the hot routes. They are async, take the raw body and touch only the writer's
queue and the notifier, so that hundreds of parked workers cost no thread. All else is synchronous
(docs/adr/0007).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import TypeVar

from pydantic import ValidationError
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.types import ASGIApp, Receive, Scope, Send

from headrace.api.errors import response_to
from headrace.coordinator.service import Coordinator
from headrace.errors import HeadraceError, ProtocolRefused, Refused, SyncOvertaken
from headrace.model.task import Lane
from headrace.protocol import versions
from headrace.protocol.messages import (
    PROTOCOL_VERSION,
    Answer,
    Goodbye,
    Message,
    Register,
    Spoken,
    Sync,
    WaitEnd,
)

WAIT_S_MAX = 30.0
PREFIX = "/v1/worker/"

M = TypeVar("M", bound=Message)
Handler = Callable[[Coordinator, Request], Awaitable[bytes]]


async def _read_message(request: Request, kind: type[M]) -> M:
    """The body as a message; the guard in front of every route has limited its length."""
    body, more = b"", True
    while more:
        part = await request.receive()
        if part["type"] == "http.disconnect":
            raise Refused("the client hung up")
        body += part.get("body", b"")
        more = part.get("more_body", False)
    try:
        return kind.model_validate_json(body)
    except ValidationError as error:
        _check_version(_said_version(body))  # of a newer worker nothing else can be expected
        problem = error.errors(include_url=False, include_input=False)[0]
        place = ".".join(str(part) for part in problem["loc"])
        raise Refused(f"the message can't be read: {place}: {problem['msg']}") from error


def _said_version(body: bytes) -> int:
    """The version of a message that can't be read; the present one, if it does not say any."""
    try:
        return Spoken.model_validate_json(body).protocol
    except ValidationError:
        return PROTOCOL_VERSION


def _check_version(protocol: int) -> None:
    spoken = versions.SPOKEN
    if not spoken.speaks(protocol):
        raise ProtocolRefused.of(protocol, oldest=spoken.oldest, newest=spoken.newest)


async def sync(coordinator: Coordinator, request: Request) -> bytes:
    message = await _read_message(request, Sync)
    _check_version(message.protocol)
    term = coordinator.leader_term_now()
    if not term.liveness.note_sync(message.worker, message.sync):
        raise SyncOvertaken(message.worker, message.sync)
    answered = coordinator.answers.expect()
    term.writer.put(message, answered)
    answer: Answer = await answered.waiting
    return versions.SPOKEN.said(answer, message.protocol)


async def wait(coordinator: Coordinator, request: Request) -> bytes:
    """Park until there is something for the worker, or until the timeout. It carries no state."""
    coordinator.leader_term_now()
    query = request.query_params
    try:
        # In this order of min and max, "nan" becomes 0 as well.
        timeout_s = max(0.0, min(float(query.get("timeout_s", "10")), WAIT_S_MAX))
        free = frozenset(Lane(name) for name in query.get("free", "").split(",") if name)
    except ValueError as error:
        raise Refused(f"the query can't be read: {error}") from error
    rung = await coordinator.notifier.wait(
        query.get("worker", ""), query.get("group", ""), free, timeout_s=timeout_s
    )
    return WaitEnd(rung=rung).model_dump_json().encode()


async def register(coordinator: Coordinator, request: Request) -> bytes:
    message = await _read_message(request, Register)
    _check_version(message.protocol)
    answer = await run_in_threadpool(lambda: coordinator.leader_term().register(message))
    return versions.SPOKEN.said(answer, message.protocol)


async def goodbye(coordinator: Coordinator, request: Request) -> bytes:
    message = await _read_message(request, Goodbye)
    _check_version(message.protocol)
    await run_in_threadpool(lambda: coordinator.leader_term().goodbye(message))
    return b"{}"


async def _unknown(_: Coordinator, request: Request) -> bytes:
    """A request that only newer workers know. They say which version it is of."""
    _check_version((await _read_message(request, Spoken)).protocol)
    raise Refused(f"protocol {PROTOCOL_VERSION} has no {request.method} {request.url.path}")


_HANDLERS: Mapping[tuple[str, str], Handler] = {
    ("POST", f"{PREFIX}sync"): sync,
    ("GET", f"{PREFIX}wait"): wait,
    ("POST", f"{PREFIX}register"): register,
    ("POST", f"{PREFIX}goodbye"): goodbye,
}


def _handler_of(scope: Scope) -> Handler | None:
    if scope["type"] != "http":
        return None
    handler = _HANDLERS.get((scope["method"], scope["path"]))
    return handler or (_unknown if scope["path"].startswith(PREFIX) else None)


class WorkerProtocol:
    """Serves the protocol in front of the application.

    The application's middleware, exit stacks and route matching are two thirds of the cost of a
    sync.
    """

    def __init__(self, app: ASGIApp, coordinator: Coordinator) -> None:
        self._app, self._coordinator = app, coordinator

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if (handler := _handler_of(scope)) is None:
            await self._app(scope, receive, send)
            return
        try:
            body = await handler(self._coordinator, Request(scope, receive))
        except HeadraceError as error:
            await response_to(error)(scope, receive, send)
            return
        await send({"type": "http.response.start", "status": 200, "headers": _headers(body)})
        await send({"type": "http.response.body", "body": body})


def _headers(body: bytes) -> list[tuple[bytes, bytes]]:
    return [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(body))]
