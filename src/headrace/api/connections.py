"""Connections: how many there are, and how long a client may take over its part of a request.

Whoever sends half a request and then nothing would hold a file and a place for as long as he
likes. So each part has its time, counted from where it begins and not from the last byte, and a
connection that has not shown a whole head yet is the first to go when places are short.

A tenth of the places is for workers: what they say keeps jobs running, and a crowd of others must
not keep them out. Who counts as one is known from the head of his first request. There is no limit
by address: many may stand behind one, and one may have many.
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

from headrace.api.auth import shows_token
from headrace.api.errors import response_to
from headrace.coordinator.metrics import Metrics
from headrace.errors import HeadraceError, Refused, Unavailable

log = logging.getLogger(__name__)

HEAD_S = 10.0  # from the first byte of a request, or the connection, to the end of its head
BODY_S = 60.0  # from there to the end of its body
ANSWER_S = 60.0  # in which a client takes something of an answer that waits for it
HEAD_BYTES_MAX = 100_000  # of a head, after the part of it that came first
WORKERS_SHARE = 10  # one of so many places is kept for workers
WORKER_PATHS = b"/v1/worker/"
RETRY_AFTER_S = 5
TOLD_INTERVAL_S = 60.0  # between two log lines of the same
FILES_WANTED = 16_384  # open at a time, where the system lets us
FILES_KEPT = 256  # of them for the store, logs, workers that we start, and those at the door
AT_THE_DOOR_MAX = 64  # connections beyond the limit that are read, so that they hear why they end


def files_allowed() -> int:
    """How many files this process may have open. It is raised as far as we want and may."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = FILES_WANTED if hard == resource.RLIM_INFINITY else min(FILES_WANTED, hard)
    if soft == resource.RLIM_INFINITY or soft >= wanted:
        return FILES_WANTED if soft == resource.RLIM_INFINITY else soft
    resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
    return wanted


def connections_max(files: int) -> int:
    """How many connections there may be where so many files may be open."""
    return files - min(FILES_KEPT, files // 2)


@dataclass(frozen=True, slots=True)
class ConnectionLimits:
    most: int
    head_s: float = HEAD_S
    body_s: float = BODY_S
    answer_s: float = ANSWER_S

    @property
    def most_others(self) -> int:
        """Connections of those that are no workers."""
        return self.most - max(1, self.most // WORKERS_SHARE)


class Connections:
    """All connections of one server. Used by the thread of its event loop."""

    def __init__(
        self, limits: ConnectionLimits, metrics: Metrics, *, token: str | None, address: str
    ) -> None:
        self.limits = limits
        self._metrics, self._address = metrics, address
        self._token = token.encode() if token is not None else None
        self._open: set[BoundedHttp] = set()
        self._others: set[BoundedHttp] = set()  # that were let in, and are no workers
        self._headless: dict[BoundedHttp, None] = {}  # the one that waits longest stands first
        self._at_the_door: set[BoundedHttp] = set()
        self._refused = _Told("connections refused", most=limits.most)
        self._slow = _Told("slow clients closed")

    def opened(self, one: BoundedHttp) -> None:
        """Give it a place; if need be, that of another one that shows no head."""
        if len(self._open) >= self.limits.most and self._headless:
            oldest = next(iter(self._headless))
            self.closed(oldest)
            self.count_refused()
            oldest.end(self.no_room())
        if len(self._open) < self.limits.most:
            self._open.add(one)
            self._metrics.connections.set(len(self._open))
            return
        self.count_refused()
        if len(self._at_the_door) < AT_THE_DOOR_MAX:
            self._at_the_door.add(one)
        else:
            one.transport.abort()

    def closed(self, one: BoundedHttp) -> None:
        self._open.discard(one)
        self._others.discard(one)
        self._headless.pop(one, None)
        self._at_the_door.discard(one)
        self._metrics.connections.set(len(self._open))

    def waits_for_head(self, one: BoundedHttp, *, waits: bool) -> None:
        if waits and one in self._open:
            self._headless.setdefault(one)
        else:
            self._headless.pop(one, None)

    def lets_in(self, one: BoundedHttp, url: bytes, headers: Mapping[bytes, bytes]) -> bool:
        """By its first request: workers always, others while there is room for them."""
        if one in self._at_the_door:
            return False
        if self._is_worker(url, headers):
            return True
        if len(self._others) >= self.limits.most_others:
            self.count_refused()
            return False
        self._others.add(one)
        return True

    def _is_worker(self, url: bytes, headers: Mapping[bytes, bytes]) -> bool:
        """Without a token only this machine is served, and then the path is all there is."""
        if not url.startswith(WORKER_PATHS):
            return False
        return self._token is None or shows_token(headers.get(b"authorization", b""), self._token)

    def no_room(self) -> JSONResponse:
        text = (
            f"coordinator {self._address} has no connection left for this request; it has "
            f"{self.limits.most} in all, and a tenth of them is kept for workers. Try again in "
            f"{RETRY_AFTER_S} s, or ask another coordinator"
        )
        return _last(Unavailable(text), 503)

    def stopping(self) -> JSONResponse:
        return _last(Unavailable(f"coordinator {self._address} is being stopped"), 503)

    async def refuse(self, scope: Scope, receive: Receive, send: Send) -> None:
        """What is served to who was not let in."""
        await self.no_room()(scope, receive, send)

    def count_refused(self) -> None:
        self._metrics.connections_refused.inc()
        self._refused.count(open=len(self._open))

    def count_slow(self) -> None:
        self._metrics.slow_clients.inc()
        self._slow.count(open=len(self._open))


class _Told:
    """A log line at once, and then one a minute with how often it was, as long as it goes on."""

    def __init__(self, message: str, **facts: object) -> None:
        self._message, self._facts = message, facts
        self._count, self._latest = 0, dict[str, object]()
        self._next: asyncio.TimerHandle | None = None

    def count(self, **facts: object) -> None:
        self._count, self._latest = self._count + 1, facts
        if self._next is None:
            self._tell()

    def _tell(self) -> None:
        if not self._count:
            self._next = None
            return
        log.warning(self._message, extra={"count": self._count, **self._facts, **self._latest})
        self._count = 0
        self._next = asyncio.get_running_loop().call_later(TOLD_INTERVAL_S, self._tell)


class _Part(Enum):
    """What of a request is waited for."""

    HEAD = "head"
    BODY = "body"
    NOTHING = "nothing"  # all of it is there


class BoundedHttp(HttpToolsProtocol):
    """One connection.

    A request that comes in one piece, as nearly all do, costs no timer.
    """

    def __init__(self, *args: Any, connections: Connections, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._all, self._limits = connections, connections.limits
        self._let_in = False
        self._part, self._request = _Part.HEAD, 0
        self._head_began, self._head_bytes = False, 0
        self._timed: tuple[_Part, int] | None = None  # what the timer counts for
        self._timer: asyncio.TimerHandle | None = None
        self._answer_timer: asyncio.TimerHandle | None = None
        self._answers = 0  # that were given in full
        self._untaken = (0, 0)  # as the timer was set: the answer, and how much of it was left

    # What the transport says

    def connection_made(self, transport: asyncio.Transport) -> None:  # pyright: ignore[reportIncompatibleMethodOverride]
        super().connection_made(transport)
        self._all.opened(self)
        self._set_timer()

    def connection_lost(self, exc: Exception | None) -> None:
        self._all.closed(self)
        self._unset_timer()
        self._unset_answer_timer()
        self._unset_keepalive_if_required()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        if self.transport.is_closing():
            return  # what is still said by one that was told to go
        before = (self._part, self._request)
        super().data_received(data)
        if before == (self._part, self._request) and self._head_began:
            self._head_bytes += len(data)
        if self._head_bytes > HEAD_BYTES_MAX:
            text = f"the head of a request may have {HEAD_BYTES_MAX} bytes at most"
            self.end(_last(Refused(text), 431))
        self._set_timer()

    def pause_writing(self) -> None:
        super().pause_writing()
        self._set_answer_timer()

    def resume_writing(self) -> None:
        super().resume_writing()
        self._unset_answer_timer()

    def shutdown(self) -> None:
        """The server stops. A request that is not here yet is not waited for, and not begun."""
        if self._part is _Part.BODY and not self.cycle.response_started:
            self.end(self._all.stopping())
        else:
            super().shutdown()

    # What the parser says

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._part, self._request = _Part.HEAD, self._request + 1
        self._head_began, self._head_bytes = True, 0

    def on_headers_complete(self) -> None:
        self._part, self._head_began = _Part.BODY, False
        self._let_in = self._let_in or self._all.lets_in(self, self.url, dict(self.headers))
        if not self._let_in:
            self.app = self._all.refuse
        super().on_headers_complete()

    def on_message_complete(self) -> None:
        super().on_message_complete()
        self._part = _Part.NOTHING

    def on_response_complete(self) -> None:
        super().on_response_complete()
        self._answers += 1
        if self.transport.get_write_buffer_size():
            self._set_answer_timer()

    # Time

    def _set_timer(self) -> None:
        """Count for what is waited for now, unless that is counted already."""
        if self.transport.is_closing():
            return
        self._all.waits_for_head(self, waits=self._part is _Part.HEAD)
        waits_for = (self._part, self._request)
        if waits_for == self._timed:
            return
        self._unset_timer()
        if self._part is _Part.NOTHING:
            self._go_on_idling()
            return
        limit_s = self._limits.head_s if self._part is _Part.HEAD else self._limits.body_s
        self._timed = waits_for
        self._timer = self.loop.call_later(limit_s, self._out_of_time)

    def _unset_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._timed = None

    def _go_on_idling(self) -> None:
        """Something came that began no request, such as an empty line; the wait for one goes on."""
        if self._is_answered() and self.timeout_keep_alive_task is None:
            self.timeout_keep_alive_task = self.loop.call_later(
                self.timeout_keep_alive, self.timeout_keep_alive_handler
            )

    def timeout_keep_alive_handler(self) -> None:
        self.transport.abort()  # not closed: an answer that nobody takes would keep it open

    def _out_of_time(self) -> None:
        part, self._timer, self._timed = self._part, None, None
        if self._waits_for_us():
            self._set_timer()
            return
        self._all.count_slow()
        answered = part is _Part.BODY and self.cycle.response_started
        if answered or (part is _Part.HEAD and not self._head_began):
            self.transport.abort()  # there is nothing more to say, or nobody who asked
            return
        limit_s = self._limits.head_s if part is _Part.HEAD else self._limits.body_s
        text = f"the {part.value} of the request did not come within {limit_s:g} s; send it again"
        self.end(_last(Unavailable(text), 408))

    def _waits_for_us(self) -> bool:
        """Whether an earlier request on this connection is not answered yet: then we don't read."""
        if self._part is _Part.HEAD:
            return not self._is_answered()
        return bool(self.pipeline)

    def _is_answered(self) -> bool:
        """Whether no request is being served; the first one makes the cycle."""
        return not self.cycle or self.cycle.response_complete

    def _set_answer_timer(self) -> None:
        if self._answer_timer is None:
            self._untaken = self._answers, self.transport.get_write_buffer_size()
            self._answer_timer = self.loop.call_later(self._limits.answer_s, self._not_taken)

    def _unset_answer_timer(self) -> None:
        if self._answer_timer is not None:
            self._answer_timer.cancel()
        self._answer_timer = None

    def _not_taken(self) -> None:
        """Whoever took some of it meanwhile, or has another one by now, only reads slowly."""
        self._answer_timer = None
        (answer, before), left = self._untaken, self.transport.get_write_buffer_size()
        if not left:
            return
        if answer != self._answers or left < before:
            self._set_answer_timer()
            return
        self._all.count_slow()
        self.transport.abort()

    def end(self, said: JSONResponse) -> None:
        """Say it in place of an answer, and close. Nothing of the request reaches anybody."""
        if self.transport.is_closing():
            return
        self._unset_timer()
        if not self._is_answered():
            self.cycle.disconnected = True
            self.cycle.message_event.set()
        self.transport.write(_raw(said))
        self.transport.close()
        self._set_answer_timer()


def _last(error: HeadraceError, status: int) -> JSONResponse:
    """The last answer on its connection."""
    answer = response_to(error, status)
    answer.headers["connection"] = "close"
    if status == 503:
        answer.headers["retry-after"] = str(RETRY_AFTER_S)
    return answer


def _raw(answer: JSONResponse) -> bytes:
    phrase = HTTPStatus(answer.status_code).phrase.encode()
    head = [b"HTTP/1.1 %d %s" % (answer.status_code, phrase)]
    head += [name + b": " + value for name, value in answer.raw_headers]
    return b"\r\n".join([*head, b"", bytes(answer.body)])
