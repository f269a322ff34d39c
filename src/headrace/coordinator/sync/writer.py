"""The writer: one thread that answers all syncs, a queue of them in one transaction at a time.

An fsync per request would allow a few hundred requests a second, whatever else is done. So the
syncs that arrive while one transaction commits make up the next one. Nobody waits for a batch to
fill; an answer leaves only after its commit.

`LoopAnswers` carries answers from the writer's thread to the event loop. A batch is answered at
once, so its coroutines are woken by one call into the loop, however many they are; ordinary futures
would make one call for each.
"""

from __future__ import annotations

import asyncio
import logging
import queue
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from typing import Any, Protocol

from sqlalchemy import Connection, Engine

from headrace.coordinator.context import Metrics
from headrace.coordinator.sync.answers import BatchEffects, Dispatch
from headrace.errors import Fenced, HeadraceError, LeaderFenced, NotLeader, Unavailable
from headrace.protocol.messages import Answer, Sync
from headrace.seams import seam
from headrace.store.core.engine import open_writer, writing_on
from headrace.store.core.transactions import Term, check_fence

log = logging.getLogger(__name__)

BATCH_MAX = 256  # syncs in one transaction
QUEUE_MAX = 4096  # syncs waiting; further ones are refused as Unavailable
LOOK_INTERVAL_S = 0.5  # between two checks whether the term is over, while idle
FAILED = "the coordinator failed to answer; its log says why"

Work = Callable[[Connection], Any]


class AnswerSink(Protocol):
    """Where the writer puts an answer; a `concurrent.futures.Future` is one."""

    def set_running_or_notify_cancel(self) -> bool: ...

    def set_result(self, result: Any, /) -> None: ...

    def set_exception(self, exception: BaseException | None, /) -> None: ...


@dataclass(frozen=True, slots=True, eq=False)
class WriterRequest:
    """A sync to answer, or other work to do in the same transaction."""

    what: Sync | Work
    answer: AnswerSink


class Writer:
    """Lives for one leader term. `fenced` is called once when the term turns out to be over.

    `ended` is called when the thread ends, so that no term goes on without its writer.
    """

    def __init__(
        self,
        engine: Engine,
        term: Term,
        dispatch: Dispatch,
        *,
        committed: Callable[[BatchEffects], None],
        fenced: Callable[[LeaderFenced], None],
        ended: Callable[[], None],
        metrics: Metrics,
    ) -> None:
        self._engine, self._term, self._dispatch = engine, term, dispatch
        self._committed, self._fenced, self._ended = committed, fenced, ended
        self._metrics = metrics
        self._queue: queue.SimpleQueue[WriterRequest | None] = queue.SimpleQueue()
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="writer", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self, *, timeout_s: float) -> None:
        self._over.set()
        self._queue.put(None)
        if self._thread is not threading.current_thread():
            self._thread.join(timeout_s)

    def is_alive(self) -> bool:
        return self._thread.is_alive()

    def ask(self, sync: Sync) -> Future[Answer]:
        answer = Future[Answer]()
        self.put(sync, answer)
        return answer

    def do(self, work: Work) -> Future[Any]:
        """Do `work` in a fenced transaction. On SQLite many writers would starve each other."""
        answer = Future[Any]()
        self.put(work, answer)
        return answer

    def put(self, what: Sync | Work, answer: AnswerSink) -> None:
        if self._over.is_set():
            answer.set_exception(NotLeader(None))
            return
        if self._queue.qsize() >= QUEUE_MAX:
            answer.set_exception(Unavailable("too many syncs at once; come again"))
            return
        self._queue.put(WriterRequest(what, answer))
        if self._over.is_set():
            self._refuse_the_rest()  # the term ended meanwhile, and perhaps the thread, too

    def _run(self) -> None:
        with ExitStack() as opened:
            opened.callback(self._ended)
            opened.callback(self._refuse_the_rest)
            conn: Connection | None = None
            while batch := self._drain():
                try:
                    conn = conn or opened.enter_context(open_writer(self._engine))
                except HeadraceError as error:
                    _fail(batch, error)
                except Exception:
                    log.exception("writer has no connection")
                    _fail(batch, Unavailable(FAILED))
                else:
                    self._serve(conn, batch)

    def _drain(self) -> list[WriterRequest]:
        """Wait for the first request, then take all that are there. Empty: the term is over."""
        first: WriterRequest | None = None
        while first is None and not self._over.is_set():
            with suppress(queue.Empty):
                first = self._queue.get(timeout=LOOK_INTERVAL_S)
        batch = [first] if first is not None else []
        while len(batch) < BATCH_MAX and not self._over.is_set():
            try:
                request = self._queue.get_nowait()
            except queue.Empty:
                break
            if request is not None:
                batch.append(request)
        return batch if not self._over.is_set() else self._refuse(batch)

    def _serve(
        self, conn: Connection, batch: Sequence[WriterRequest], *, apart: bool = False
    ) -> None:
        try:
            self._transact(conn, batch, apart=apart)
        except LeaderFenced as error:
            self._over.set()
            self._refuse(batch)
            self._fenced(error)
        except HeadraceError as error:
            if len(batch) == 1 or isinstance(error, Unavailable):
                _fail(batch, error)
            else:
                self._serve_apart(conn, batch)
        except Exception:
            log.exception("sync batch failed", extra={"syncs": len(batch)})
            if len(batch) > 1:
                self._serve_apart(conn, batch)
            elif isinstance(batch[0].what, Sync) and not apart:
                self._serve(conn, batch, apart=True)
            else:
                _fail(batch, Unavailable(FAILED))

    def _serve_apart(self, conn: Connection, batch: Sequence[WriterRequest]) -> None:
        """One transaction for each request: a poisoned one must not fail its neighbours."""
        for request in batch:
            if self._over.is_set():
                self._refuse([request])
            else:
                self._serve(conn, [request])

    def _transact(self, conn: Connection, batch: Sequence[WriterRequest], *, apart: bool) -> None:
        effects = BatchEffects()
        seam("before sync transaction")
        self._metrics.sync_batch.observe(len(batch))
        with self._metrics.sync_seconds.time(), writing_on(conn):
            check_fence(conn, self._term)
            seam("in fenced transaction")
            answers = self._apply(conn, batch, effects, apart=apart)
        seam("sync committed, before answer")
        self._dispatch.committed(effects)
        for request in batch:
            _resolve(request.answer, answers[request])
        if effects.running:
            seam("epoch running")
        self._committed(effects)

    def _apply(
        self,
        conn: Connection,
        batch: Sequence[WriterRequest],
        effects: BatchEffects,
        *,
        apart: bool,
    ) -> Mapping[WriterRequest, object]:
        done: dict[WriterRequest, object] = {}
        newest: dict[str, WriterRequest] = {}  # by worker: only its newest sync is answered
        for request in batch:
            if isinstance(request.what, Sync):
                newest[request.what.worker] = request
            else:
                done[request] = request.what(conn)
        syncs = [request.what for request in newest.values() if isinstance(request.what, Sync)]
        answered = self._dispatch.answer(conn, syncs, effects, apart=apart)
        answers = dict(zip(newest, answered, strict=True))
        for request in batch:
            if isinstance(request.what, Sync):
                done[request] = answers[request.what.worker]
        return done

    def _refuse(self, batch: Sequence[WriterRequest]) -> list[WriterRequest]:
        _fail(batch, NotLeader(None))
        return []

    def _refuse_the_rest(self) -> None:
        self._over.set()
        while True:
            try:
                request = self._queue.get_nowait()
            except queue.Empty:
                return
            if request is not None:
                self._refuse([request])


def _resolve(future: AnswerSink, answer: object) -> None:
    # A client that hung up has cancelled its future. What was assigned to it stays so; its next
    # sync shows that it has not seen the answer.
    if future.set_running_or_notify_cancel():
        future.set_result(answer)


def _fail(batch: Sequence[WriterRequest], error: HeadraceError | Fenced) -> None:
    for request in batch:
        if request.answer.set_running_or_notify_cancel():
            request.answer.set_exception(error)


class LoopAnswers:
    """Delivers answers to the coroutines of one event loop that await them."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._settled: list[LoopAnswer] = []

    def expect(self) -> LoopAnswer:
        """Make an answer to await. Call it on the event loop, then await its `waiting`."""
        return LoopAnswer(self, asyncio.get_running_loop())

    def add(self, answer: LoopAnswer, loop: asyncio.AbstractEventLoop) -> None:
        with self._lock:
            first = not self._settled
            self._settled.append(answer)
        if first:
            loop.call_soon_threadsafe(self._deliver)

    def _deliver(self) -> None:
        with self._lock:
            settled, self._settled = self._settled, []
        for answer in settled:
            answer.deliver()


class LoopAnswer:
    """One answer: an `AnswerSink` for the writer, a future for a coroutine."""

    def __init__(self, among: LoopAnswers, loop: asyncio.AbstractEventLoop) -> None:
        self._among, self._loop = among, loop
        self.waiting: asyncio.Future[Any] = loop.create_future()
        self._result: Any = None
        self._error: BaseException | None = None

    def set_running_or_notify_cancel(self) -> bool:
        return True  # whether its client hung up is checked on the loop

    def set_result(self, result: Any, /) -> None:
        self._result = result
        self._among.add(self, self._loop)

    def set_exception(self, exception: BaseException | None, /) -> None:
        self._error = exception
        self._among.add(self, self._loop)

    def deliver(self) -> None:
        if self.waiting.done():
            return  # its client hung up; what was assigned to it stays so
        if self._error is not None:
            self.waiting.set_exception(self._error)
        else:
            self.waiting.set_result(self._result)
