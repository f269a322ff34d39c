"""One thread that answers all syncs: it drains a queue into one transaction at a time.

An fsync per request would allow a few hundred requests a second, whatever else is done. So the
syncs that arrive while one transaction commits make up the next one. Nobody waits for a batch to
fill; an answer leaves only after its commit.
"""

from __future__ import annotations

import logging
import queue
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection, Engine

from headrace.coordinator.answers import Settled
from headrace.coordinator.dispatch import Dispatch
from headrace.coordinator.drafts import Touched
from headrace.coordinator.metrics import Metrics
from headrace.errors import Fenced, HeadraceError, LeaderFenced, NotLeader, Unavailable
from headrace.protocol.messages import Answer, Sync
from headrace.seams import seam
from headrace.store.engine import open_writer, writing_on
from headrace.store.fence import Term, check_fence

log = logging.getLogger(__name__)

BATCH_MAX = 256  # syncs in one transaction
QUEUE_MAX = 4096  # syncs waiting; more are told to come again
LOOK_INTERVAL_S = 0.5  # at whether the term is over, while nobody asks
FAILED = "the coordinator failed to answer; its log says why"


Work = Callable[[Connection], Any]


@dataclass(frozen=True, slots=True, eq=False)
class Ask:
    """A sync to answer, or other work for the same transaction."""

    what: Sync | Work
    answer: Settled


class Writer:
    """Runs for one term. `fenced` is called once when the term turns out to be over.

    `ended` is called when the thread ends, so that no term goes on without its writer.
    """

    def __init__(
        self,
        engine: Engine,
        term: Term,
        dispatch: Dispatch,
        *,
        committed: Callable[[Touched], None],
        fenced: Callable[[LeaderFenced], None],
        ended: Callable[[], None],
        metrics: Metrics,
    ) -> None:
        self._engine, self._term, self._dispatch = engine, term, dispatch
        self._committed, self._fenced, self._ended = committed, fenced, ended
        self._metrics = metrics
        self._queue: queue.SimpleQueue[Ask | None] = queue.SimpleQueue()
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
        """Have `work` done under the term. On SQLite many writers starve each other; one can't."""
        answer = Future[Any]()
        self.put(work, answer)
        return answer

    def put(self, what: Sync | Work, answer: Settled) -> None:
        if self._over.is_set():
            answer.set_exception(NotLeader(None))
            return
        if self._queue.qsize() >= QUEUE_MAX:
            answer.set_exception(Unavailable("too many syncs at once; come again"))
            return
        self._queue.put(Ask(what, answer))
        if self._over.is_set():
            self._refuse_the_rest()  # the term ended meanwhile; the thread may look no more

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

    def _drain(self) -> list[Ask]:
        """Block for the first, then take what is there. Empty: the term is over."""
        first: Ask | None = None
        while first is None and not self._over.is_set():
            with suppress(queue.Empty):
                first = self._queue.get(timeout=LOOK_INTERVAL_S)
        batch = [first] if first is not None else []
        while len(batch) < BATCH_MAX and not self._over.is_set():
            try:
                ask = self._queue.get_nowait()
            except queue.Empty:
                break
            if ask is not None:
                batch.append(ask)
        return batch if not self._over.is_set() else self._refuse(batch)

    def _serve(self, conn: Connection, batch: Sequence[Ask], *, apart: bool = False) -> None:
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

    def _serve_apart(self, conn: Connection, batch: Sequence[Ask]) -> None:
        """A poisoned one must not fail its neighbours."""
        for ask in batch:
            if self._over.is_set():
                self._refuse([ask])
            else:
                self._serve(conn, [ask])

    def _transact(self, conn: Connection, batch: Sequence[Ask], *, apart: bool) -> None:
        touched = Touched()
        seam("before sync transaction")
        self._metrics.sync_batch.observe(len(batch))
        with self._metrics.sync_seconds.time(), writing_on(conn):
            check_fence(conn, self._term)
            seam("in fenced transaction")
            answers = self._apply(conn, batch, touched, apart=apart)
        seam("sync committed, before answer")
        self._dispatch.committed(touched)
        for ask in batch:
            _resolve(ask.answer, answers[ask])
        if touched.running:
            seam("epoch running")
        self._committed(touched)

    def _apply(
        self, conn: Connection, batch: Sequence[Ask], touched: Touched, *, apart: bool
    ) -> Mapping[Ask, object]:
        done: dict[Ask, object] = {}
        newest: dict[str, Ask] = {}  # by worker: one sync of each can be answered
        for ask in batch:
            if isinstance(ask.what, Sync):
                newest[ask.what.worker] = ask
            else:
                done[ask] = ask.what(conn)
        syncs = [ask.what for ask in newest.values() if isinstance(ask.what, Sync)]
        answered = self._dispatch.answer(conn, syncs, touched, apart=apart)
        answers = dict(zip(newest, answered, strict=True))
        for ask in batch:
            if isinstance(ask.what, Sync):
                done[ask] = answers[ask.what.worker]
        return done

    def _refuse(self, batch: Sequence[Ask]) -> list[Ask]:
        _fail(batch, NotLeader(None))
        return []

    def _refuse_the_rest(self) -> None:
        self._over.set()
        while True:
            try:
                ask = self._queue.get_nowait()
            except queue.Empty:
                return
            if ask is not None:
                self._refuse([ask])


def _resolve(future: Settled, answer: object) -> None:
    # A client that hung up has cancelled its future; what it was given stands, and its next
    # sync shows that it does not know of it.
    if future.set_running_or_notify_cancel():
        future.set_result(answer)


def _fail(batch: Sequence[Ask], error: HeadraceError | Fenced) -> None:
    for ask in batch:
        if ask.answer.set_running_or_notify_cancel():
            ask.answer.set_exception(error)
