"""Connection limits: how many connections there may be, and how long a request may take to arrive.

A client that sends half a request and then nothing would hold a file and a place for as long as it
likes. So each part of a request has its timeout, counted from where the part begins and not from
the last byte; and a connection that has not sent a whole head yet is the first to be closed when
places are short.

A tenth of the places is reserved for workers: their syncs keep jobs running, and a crowd of other
clients must not keep them out. Whether a client is a worker is known from the head of its first
request. There is no limit by address: many clients may share one address, and one client may have
many.
"""

from __future__ import annotations

import asyncio
import logging
import resource
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from http import HTTPStatus
from typing import Any

from fastapi.responses import JSONResponse
from starlette.types import Receive, Scope, Send
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from headrace.api.errors import response_to
from headrace.api.request_guard import shows_token
from headrace.coordinator.context import Metrics
from headrace.errors import HeadraceError, Refused, Unavailable

log = logging.getLogger(__name__)

HEAD_S = 10.0  # from the first byte of a request, or the connection, to the end of its head
BODY_S = 60.0  # from there to the end of its body
ANSWER_S = 60.0  # for a client to take some of an answer that waits for it
HEAD_BYTES_MAX = 100_000  # of a head, not counting its first piece
WORKERS_SHARE = 10  # one place in this many is reserved for workers
WORKER_PATHS = b"/v1/worker/"
RETRY_AFTER_S = 5
LOG_INTERVAL_S = 60.0  # between two log lines of the same kind
FILES_WANTED = 16_384  # open at a time, where the system allows it
FILES_KEPT = 256  # of these, for the store, logs, our child processes, and OVER_LIMIT_MAX
OVER_LIMIT_MAX = 64  # connections over the limit that are read, to be told why they are closed


def files_allowed() -> int:
    """How many files this process may have open, after raising the limit as far as we want and the
    system allows."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = FILES_WANTED if hard == resource.RLIM_INFINITY else min(FILES_WANTED, hard)
    if soft == resource.RLIM_INFINITY or soft >= wanted:
        return FILES_WANTED if soft == resource.RLIM_INFINITY else soft
    resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
    return wanted


def connections_max(files: int) -> int:
    """How many connections there may be when the process may open this many files."""
    return files - min(FILES_KEPT, files // 2)


@dataclass(frozen=True, slots=True)
class ConnectionLimits:
    most: int
    head_s: float = HEAD_S
    body_s: float = BODY_S
    answer_s: float = ANSWER_S

    @property
    def most_others(self) -> int:
        """The limit for clients that are not workers."""
        return self.most - max(1, self.most // WORKERS_SHARE)


class Connections:
    """All connections of one server. Only the thread of its event loop may use it."""

    def __init__(
        self, limits: ConnectionLimits, metrics: Metrics, *, token: str | None, address: str
    ) -> None:
        self.limits = limits
        self._metrics, self._address = metrics, address
        self._token = token.encode() if token is not None else None
        self._open: set[BoundedHttp] = set()
        self._others: set[BoundedHttp] = set()  # admitted, and not workers
        self._awaiting_head: dict[BoundedHttp, None] = {}  # in order: the longest wait is first
        self._over_limit: set[BoundedHttp] = set()
        self._refused_log = _ThrottledLog("connections refused", most=limits.most)
        self._slow_log = _ThrottledLog("slow clients closed")

    def opened(self, connection: BoundedHttp) -> None:
        """Give it a place, if need be that of the connection that waits longest for its head."""
        if len(self._open) >= self.limits.most and self._awaiting_head:
            oldest = next(iter(self._awaiting_head))
            self.closed(oldest)
            self.count_refused()
            oldest.end(self.no_room())
        if len(self._open) < self.limits.most:
            self._open.add(connection)
            self._metrics.connections.set(len(self._open))
            return
        self.count_refused()
        if len(self._over_limit) < OVER_LIMIT_MAX:
            self._over_limit.add(connection)
        else:
            connection.transport.abort()

    def closed(self, connection: BoundedHttp) -> None:
        self._open.discard(connection)
        self._others.discard(connection)
        self._awaiting_head.pop(connection, None)
        self._over_limit.discard(connection)
        self._metrics.connections.set(len(self._open))

    def waits_for_head(self, connection: BoundedHttp, *, waits: bool) -> None:
        if waits and connection in self._open:
            self._awaiting_head.setdefault(connection)
        else:
            self._awaiting_head.pop(connection, None)

    def admits(self, connection: BoundedHttp, url: bytes, headers: Mapping[bytes, bytes]) -> bool:
        """Decides by its first request: workers always, others while there is room for them."""
        if connection in self._over_limit:
            return False
        if self._is_worker(url, headers):
            return True
        if len(self._others) >= self.limits.most_others:
            self.count_refused()
            return False
        self._others.add(connection)
        return True

    def _is_worker(self, url: bytes, headers: Mapping[bytes, bytes]) -> bool:
        """Without a token only this machine is served, so the path alone decides."""
        if not url.startswith(WORKER_PATHS):
            return False
        return self._token is None or shows_token(headers.get(b"authorization", b""), self._token)

    def no_room(self) -> JSONResponse:
        text = (
            f"coordinator {self._address} has no connection left for this request; it has "
            f"{self.limits.most} in all, and a tenth of them is kept for workers. Try again in "
            f"{RETRY_AFTER_S} s, or ask another coordinator"
        )
        return _closing_response(Unavailable(text), 503)

    def stopping(self) -> JSONResponse:
        return _closing_response(Unavailable(f"coordinator {self._address} is being stopped"), 503)

    async def refuse(self, scope: Scope, receive: Receive, send: Send) -> None:
        """The application that serves connections which were not admitted."""
        await self.no_room()(scope, receive, send)

    def count_refused(self) -> None:
        self._metrics.connections_refused.inc()
        self._refused_log.count(open=len(self._open))

    def count_slow(self) -> None:
        self._metrics.slow_clients.inc()
        self._slow_log.count(open=len(self._open))


class _ThrottledLog:
    """Logs at once, and then once in LOG_INTERVAL_S, with a count, for as long as it goes on."""

    def __init__(self, message: str, **facts: object) -> None:
        self._message, self._facts = message, facts
        self._count, self._latest = 0, dict[str, object]()
        self._next: asyncio.TimerHandle | None = None

    def count(self, **facts: object) -> None:
        self._count, self._latest = self._count + 1, facts
        if self._next is None:
            self._write()

    def _write(self) -> None:
        if not self._count:
            self._next = None
            return
        log.warning(self._message, extra={"count": self._count, **self._facts, **self._latest})
        self._count = 0
        self._next = asyncio.get_running_loop().call_later(LOG_INTERVAL_S, self._write)


class _AwaitedPart(Enum):
    """The part of a request that is awaited."""

    HEAD = "head"
    BODY = "body"
    NOTHING = "nothing"  # all of it is there


class BoundedHttp(HttpToolsProtocol):
    """One connection, with its timeouts.

    A request that arrives in one piece, as nearly all do, costs no timer.
    """

    def __init__(self, *args: Any, connections: Connections, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._connections, self._limits = connections, connections.limits
        self._admitted = False
        self._part, self._request = _AwaitedPart.HEAD, 0
        self._head_began, self._head_bytes = False, 0
        self._timed: tuple[_AwaitedPart, int] | None = None  # what the timer runs for
        self._timer: asyncio.TimerHandle | None = None
        self._answer_timer: asyncio.TimerHandle | None = None
        self._answers = 0  # sent in full
        self._unsent_before = (0, 0)  # when the timer was set: which answer, and its unsent bytes

    # Called by the transport

    def connection_made(self, transport: asyncio.Transport) -> None:  # pyright: ignore[reportIncompatibleMethodOverride]
        super().connection_made(transport)
        self._connections.opened(self)
        self._set_timer()

    def connection_lost(self, exc: Exception | None) -> None:
        self._connections.closed(self)
        self._unset_timer()
        self._unset_answer_timer()
        self._unset_keepalive_if_required()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        if self.transport.is_closing():
            return  # its client was told that it is closed
        before = (self._part, self._request)
        super().data_received(data)
        if before == (self._part, self._request) and self._head_began:
            self._head_bytes += len(data)
        if self._head_bytes > HEAD_BYTES_MAX:
            text = f"the head of a request may have {HEAD_BYTES_MAX} bytes at most"
            self.end(_closing_response(Refused(text), 431))
        self._set_timer()

    def pause_writing(self) -> None:
        super().pause_writing()
        self._set_answer_timer()

    def resume_writing(self) -> None:
        super().resume_writing()
        self._unset_answer_timer()

    def shutdown(self) -> None:
        """The server stops: a request that has not arrived in full is refused, not awaited."""
        if self._part is _AwaitedPart.BODY and not self.cycle.response_started:
            self.end(self._connections.stopping())
        else:
            super().shutdown()

    # Called by the parser

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._part, self._request = _AwaitedPart.HEAD, self._request + 1
        self._head_began, self._head_bytes = True, 0

    def on_headers_complete(self) -> None:
        self._part, self._head_began = _AwaitedPart.BODY, False
        self._admitted = self._admitted or self._connections.admits(
            self, self.url, dict(self.headers)
        )
        if not self._admitted:
            self.app = self._connections.refuse
        super().on_headers_complete()

    def on_message_complete(self) -> None:
        super().on_message_complete()
        self._part = _AwaitedPart.NOTHING

    def on_response_complete(self) -> None:
        super().on_response_complete()
        self._answers += 1
        if self.transport.get_write_buffer_size():
            self._set_answer_timer()

    # Timeouts

    def _set_timer(self) -> None:
        """Start the timeout of the part that is awaited now, unless it runs already."""
        if self.transport.is_closing():
            return
        self._connections.waits_for_head(self, waits=self._part is _AwaitedPart.HEAD)
        waits_for = (self._part, self._request)
        if waits_for == self._timed:
            return
        self._unset_timer()
        if self._part is _AwaitedPart.NOTHING:
            self._resume_keep_alive()
            return
        limit_s = self._limits.head_s if self._part is _AwaitedPart.HEAD else self._limits.body_s
        self._timed = waits_for
        self._timer = self.loop.call_later(limit_s, self._on_timeout)

    def _unset_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._timed = None

    def _resume_keep_alive(self) -> None:
        """What came began no request, such as an empty line: go on with the keep-alive timeout."""
        if self._is_answered() and self.timeout_keep_alive_task is None:
            self.timeout_keep_alive_task = self.loop.call_later(
                self.timeout_keep_alive, self.timeout_keep_alive_handler
            )

    def timeout_keep_alive_handler(self) -> None:
        self.transport.abort()  # close() would wait for a client that takes no answer

    def _on_timeout(self) -> None:
        part, self._timer, self._timed = self._part, None, None
        if self._is_earlier_unanswered():
            self._set_timer()
            return
        self._connections.count_slow()
        answered = part is _AwaitedPart.BODY and self.cycle.response_started
        if answered or (part is _AwaitedPart.HEAD and not self._head_began):
            self.transport.abort()  # it was answered, or nothing was asked
            return
        limit_s = self._limits.head_s if part is _AwaitedPart.HEAD else self._limits.body_s
        text = f"the {part.value} of the request did not come within {limit_s:g} s; send it again"
        self.end(_closing_response(Unavailable(text), 408))

    def _is_earlier_unanswered(self) -> bool:
        """Whether an earlier request on this connection is unanswered: then it is we who don't
        read."""
        if self._part is _AwaitedPart.HEAD:
            return not self._is_answered()
        return bool(self.pipeline)

    def _is_answered(self) -> bool:
        """Whether no request is being served. There is no cycle before the first request."""
        return not self.cycle or self.cycle.response_complete

    def _set_answer_timer(self) -> None:
        if self._answer_timer is None:
            self._unsent_before = self._answers, self.transport.get_write_buffer_size()
            self._answer_timer = self.loop.call_later(
                self._limits.answer_s, self._on_answer_timeout
            )

    def _unset_answer_timer(self) -> None:
        if self._answer_timer is not None:
            self._answer_timer.cancel()
        self._answer_timer = None

    def _on_answer_timeout(self) -> None:
        """Close it, unless its client took some of the answer meanwhile or got another one: then it
        only reads slowly."""
        self._answer_timer = None
        (answer, before), unsent = self._unsent_before, self.transport.get_write_buffer_size()
        if not unsent:
            return
        if answer != self._answers or unsent < before:
            self._set_answer_timer()
            return
        self._connections.count_slow()
        self.transport.abort()

    def end(self, response: JSONResponse) -> None:
        """Send this response in place of any other, and close. The request reaches no route."""
        if self.transport.is_closing():
            return
        self._unset_timer()
        if not self._is_answered():
            self.cycle.disconnected = True
            self.cycle.message_event.set()
        self.transport.write(_response_bytes(response))
        self.transport.close()
        self._set_answer_timer()


def _closing_response(error: HeadraceError, status: int) -> JSONResponse:
    """The last response on its connection."""
    answer = response_to(error, status)
    answer.headers["connection"] = "close"
    if status == 503:
        answer.headers["retry-after"] = str(RETRY_AFTER_S)
    return answer


def _response_bytes(answer: JSONResponse) -> bytes:
    """The response as it is sent without the help of an ASGI server."""
    phrase = HTTPStatus(answer.status_code).phrase.encode()
    head = [b"HTTP/1.1 %d %s" % (answer.status_code, phrase)]
    head += [name + b": " + value for name, value in answer.raw_headers]
    return b"\r\n".join([*head, b"", bytes(answer.body)])
