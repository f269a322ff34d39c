"""The worker protocol over HTTP. Only the leader answers; the others say where it is (421).

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
from headrace.errors import HeadraceError, Refused, SyncOvertaken
from headrace.model.task import Lane
from headrace.protocol.messages import (
    PROTOCOL_VERSION,
    Answer,
    Goodbye,
    Message,
    Register,
    Sync,
    WaitEnd,
)

WAIT_S_MAX = 30.0

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
        problem = error.errors(include_url=False, include_input=False)[0]
        place = ".".join(str(part) for part in problem["loc"])
        raise Refused(f"the message can't be read: {place}: {problem['msg']}") from error


def _check_version(protocol: int) -> None:
    if protocol != PROTOCOL_VERSION:
        raise Refused(
            f"this coordinator speaks protocol version {PROTOCOL_VERSION}, the worker {protocol}; "
            "run the same release of headrace on both"
        )


async def sync(coordinator: Coordinator, request: Request) -> bytes:
    message = await _read_message(request, Sync)
    _check_version(message.protocol)
    term = coordinator.leader_term_now()
    if not term.liveness.note_sync(message.worker, message.sync):
        raise SyncOvertaken(message.worker, message.sync)
    answered = coordinator.answers.expect()
    term.writer.put(message, answered)
    answer: Answer = await answered.waiting
    return answer.__pydantic_serializer__.to_json(answer)


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
    return answer.model_dump_json().encode()


async def goodbye(coordinator: Coordinator, request: Request) -> bytes:
    message = await _read_message(request, Goodbye)
    await run_in_threadpool(lambda: coordinator.leader_term().goodbye(message))
    return b"{}"


_HANDLERS: Mapping[tuple[str, str], Handler] = {
    ("POST", "/v1/worker/sync"): sync,
    ("GET", "/v1/worker/wait"): wait,
    ("POST", "/v1/worker/register"): register,
    ("POST", "/v1/worker/goodbye"): goodbye,
}


class WorkerProtocol:
    """Serves the protocol in front of the application.

    The application's middleware, exit stacks and route matching are two thirds of the cost of a
    sync.
    """

    def __init__(self, app: ASGIApp, coordinator: Coordinator) -> None:
        self._app, self._coordinator = app, coordinator

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        handler = (
            _HANDLERS.get((scope["method"], scope["path"])) if scope["type"] == "http" else None
        )
        if handler is None:
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
