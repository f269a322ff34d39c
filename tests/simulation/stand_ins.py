"""Everything of the product that is replaced in a history, in one place. The rest is real.

Replaced: threads and what goes with them, the clock (injected), files' durability, the hint and
the wake-up of the store. Spark and what it reaches is injected, too: table tasks are given a format
that is the model of a lake (`lake_format`). Not replaced: every statement of the store, election,
fence, writer, dispatch, reconcile, the loops of tables, the worker's sync loop, executions, outbox,
pipelines and table tasks.
"""

from __future__ import annotations

import ast
import asyncio
import os
import sys
import threading
import time
import uuid
from collections.abc import Callable, Generator, Iterable, Mapping
from contextlib import ExitStack, contextmanager
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

from greenlet import getcurrent
from sqlalchemy import Engine

import headrace
from headrace import seams
from headrace.coordinator import service
from headrace.coordinator.sync import notifier
from headrace.store.core.transactions import Term
from tests.simulation import threads
from tests.simulation.database import Database
from tests.simulation.faults import AT_SEAM, Faults
from tests.simulation.world import Crash, Fiber, the_world

_SOURCE = Path(headrace.__file__).parent
_OF_GROUPS = _SOURCE / "coordinator" / "groups"
GIVE_WAY = 0.3  # how often a seam lets others in

THREADING = SimpleNamespace(
    Event=threads.Event,
    Lock=threads.Lock,
    Thread=threads.Thread,
    current_thread=threads.current_thread,
)
QUEUE = SimpleNamespace(SimpleQueue=threads.SimpleQueue, Empty=threads.Empty)
# By the name that a module of the product knows it by.
_BY_NAME: Mapping[str, object] = {
    "threading": THREADING,
    "queue": QUEUE,
    "Event": threads.Event,
    "Lock": threads.Lock,
    "Future": threads.Future,
    "ThreadPoolExecutor": threads.Pool,
}
_REAL = {"threading", "queue", "concurrent.futures._base", "concurrent.futures.thread"}


class SimulatedTakeoverLock:
    """The take-over hint of one process: a dead one has let go of it."""

    holder: Any = None  # of all of them: the process that has it

    def __init__(self) -> None:
        self._process = the_world().process

    def try_acquire(self) -> bool:
        if SimulatedTakeoverLock.holder is None or SimulatedTakeoverLock.holder.dead:
            SimulatedTakeoverLock.holder = self._process
        return SimulatedTakeoverLock.holder is self._process

    def release(self) -> None:
        if SimulatedTakeoverLock.holder is self._process:
            SimulatedTakeoverLock.holder = None


class Waker:
    """Rings when a command was committed, as PostgreSQL's NOTIFY does."""

    everybody: list[Waker] = []  # noqa: RUF012  emptied for each history

    def __init__(self) -> None:
        self._rung, self._closed = threads.Event(), False
        Waker.everybody.append(self)

    def ring(self) -> None:
        self._rung.set()

    def wait(self, timeout_s: float) -> bool:
        rung = self._rung.wait(timeout_s) and not self._closed
        self._rung.clear()
        return rung

    def close(self) -> None:
        self._closed = True
        self._rung.set()


class _Nonces:
    """`os` for whoever encrypts: the same bytes in each run of a seed."""

    def urandom(self, count: int) -> bytes:
        return bytes(count)


class _Files:
    """`os` for a process: what it has open is closed when it dies. A disk here never loses."""

    def __getattr__(self, name: str) -> Any:
        return getattr(os, name)

    def open(self, path: Any, flags: int, mode: int = 0o777) -> int:
        process = the_world().process
        if process is not None and process.dead:
            raise Crash
        file = os.open(path, flags, mode)
        if process is not None:
            process.at_death.append(lambda: self._close_left(file))
            self._open.add(file)
        return file

    def close(self, file: int) -> None:
        self._open.discard(file)
        os.close(file)

    def fsync(self, file: int) -> None:
        pass

    def __init__(self) -> None:
        self._open: set[int] = set()

    def _close_left(self, file: int) -> None:
        if file in self._open:
            self.close(file)


class _Loop:
    """The event loop, as far as the bell needs one: all of it runs in fibers."""

    def is_closed(self) -> bool:
        return False

    def call_soon_threadsafe(self, call: Any, *args: Any) -> None:
        call(*args)


class _AsyncEvent(threads.Event):
    def wait(self, timeout: float | None = None) -> Any:  # a coroutine's awaitable is itself here
        return self

    def blocking(self, timeout_s: float) -> bool:
        return super().wait(timeout_s)


def _parked(made: Callable[..., object]) -> Callable[..., object]:
    """A wait's event is made by a default that was bound when the class was: ours instead."""
    return lambda *given: made(*given, woken=_AsyncEvent())


async def _wait_for(event: _AsyncEvent, timeout_s: float) -> None:
    if not event.blocking(timeout_s):
        raise TimeoutError


ASYNCIO = SimpleNamespace(
    Event=_AsyncEvent,
    get_running_loop=_Loop,
    wait_for=_wait_for,
    AbstractEventLoop=asyncio.AbstractEventLoop,
)


def awaited(coroutine: Any) -> Any:
    """Run a coroutine of the product in this fiber. It never yields to a loop: it waits here."""
    try:
        coroutine.send(None)
    except StopIteration as done:
        return done.value
    raise AssertionError("a coroutine waits for a loop, and there is none")


@cache
def seam_names() -> tuple[str, ...]:
    """Every seam there is, taken from the source, but those of groups, which lives crash at,
    those of starting real processes, where tests/containers kills, and those of a key that
    somebody changes, where tests/store does."""
    apart = (_SOURCE / "containers", _SOURCE / "store" / "key_change.py", _OF_GROUPS)
    files = _SOURCE.rglob("*.py")
    return _seams_in(file for file in files if not any(file.is_relative_to(f) for f in apart))


@cache
def group_seam_names() -> tuple[str, ...]:
    return _seams_in(_OF_GROUPS.rglob("*.py"))


def _seams_in(files: Iterable[Path]) -> tuple[str, ...]:
    found: set[str] = set()
    for file in files:
        for node in ast.walk(ast.parse(file.read_text())):
            match node:
                case ast.Call(func=ast.Name(id="seam"), args=[ast.Constant(value=str(name))]):
                    found.add(name)
                case _:
                    pass
    return tuple(sorted(found))


def pass_seam(name: str, faults: Faults, database: Database) -> None:
    world = the_world()
    process = world.process
    if process is None or process.dead:
        return
    inside = database.wire.in_transaction
    faults.meet(name, AT_SEAM[:1] if inside else AT_SEAM)
    if not inside and process.random.random() < GIVE_WAY:
        world.sleep(0)


def _stand_ins(database: Database) -> Mapping[str, object]:
    def answer(value: object) -> Callable[..., object]:
        return lambda *_args, **_options: value

    def made(kind: type) -> Callable[..., object]:
        return lambda *_args, **_options: kind()

    in_service, files = f"{service.__name__}.", _Files()
    return {
        in_service + "open_store": answer(database.engine),
        in_service + "prepare_store": answer(None),
        in_service + "open_takeover_lock": made(SimulatedTakeoverLock),
        in_service + "begin_time": _of_its_term(service.begin_time),
        "headrace.store.core.leases.this_process": _process_name,
        "headrace.coordinator.leadership.term.open_waker": made(Waker),
        "headrace.coordinator.sync.notifier.asyncio": ASYNCIO,
        "headrace.coordinator.sync.notifier._Wait": _parked(vars(notifier)["_Wait"]),
        "headrace.store.core.notifications.notify": _ring_soon,
        "headrace.store.core.encryption.os": _Nonces(),
        "headrace.worker.outbox.os": files,
        "headrace.worker.scratch.os": files,
        # Whatever would make two runs of one seed differ.
        "uuid.uuid4": _banned(uuid.uuid4),
        "time.sleep": _banned(time.sleep),
        "threading.Thread.start": _banned(threading.Thread.start),
    }


def _of_its_term(begin: Callable[..., None]) -> Callable[..., None]:
    """The coordinator's own thread writes for a term before that has threads."""

    def begins(engine: Engine, term: Term, *args: object, **options: object) -> None:
        fiber = the_world().fiber
        fiber.term = term.epoch
        try:
            begin(engine, term, *args, **options)
        finally:
            fiber.term = None

    return begins


def _banned(real: Callable[..., Any]) -> Callable[..., Any]:
    """For fibers. Other threads of this process may do as they like."""

    def refuse(*args: Any, **options: Any) -> Any:
        where = getcurrent()
        assert not isinstance(where, Fiber), f"{real.__qualname__} is never the same twice"
        return real(*args, **options)

    return refuse


@contextmanager
def installed(database: Database, constants: Mapping[str, object]) -> Generator[None]:
    """Replace all of it, for as many histories as one likes."""
    with ExitStack() as stack:
        for name, module in sorted(sys.modules.items()):
            if name.startswith("headrace."):
                for attribute, stand_in in _BY_NAME.items():
                    known = getattr(module, attribute, None)
                    real = getattr(known, "__module__", getattr(known, "__name__", ""))
                    if known is not None and real in _REAL:
                        stack.enter_context(patch.object(module, attribute, stand_in))
        for path, stand_in in _stand_ins(database).items():
            stack.enter_context(patch(path, stand_in))
        for path, value in constants.items():
            stack.enter_context(patch(path, value))
        stack.callback(seams.disarm_all)
        yield


def arm_seams(faults: Faults, database: Database) -> None:
    seams.disarm_all()
    for name in (*seam_names(), *group_seam_names()):
        seams.arm(name, lambda name=name: pass_seam(name, faults, database))


def _process_name() -> str:
    process = the_world().process
    assert process is not None
    return f"{process.actor}.{process.life}"


def _ring_soon(_conn: object) -> None:
    the_world().later(0, _ring)


def _ring() -> None:
    for waker in Waker.everybody:
        waker.ring()


def forget() -> None:
    """What stand-ins remember of the last history."""
    SimulatedTakeoverLock.holder = None
    Waker.everybody.clear()
