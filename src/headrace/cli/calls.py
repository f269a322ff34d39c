"""Calls that can be left: a coordinator that hangs keeps nobody who wants to leave.

A call tries several addresses several times, and a socket counts its timeout anew with every step,
so a call is made in a thread of its own, and that is left. The process does not wait for it.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future, wait
from math import inf
from threading import Thread
from typing import TypeVar

from headrace.cli.interrupts import Interrupts, Stopped
from headrace.clock import SystemClock
from headrace.errors import CoordinatorUnavailable

LOOK_S = 0.05  # how soon a wish to stop is seen

T = TypeVar("T")


class CallLeft(CoordinatorUnavailable):
    """It was not answered in time. Whoever was asked may still act on it."""


def leavable(
    call: Callable[[], T], *, wanted: Interrupts | None = None, limit_s: float | None = None
) -> T:
    """What the call returns or raises. Stopped as soon as a stop is `wanted`, CallLeft once
    `limit_s` is over; with neither time nor leave to begin, it is not made at all."""
    clock = SystemClock()
    until_s = inf if limit_s is None else clock.monotonic_s() + limit_s
    begun: Future[T] | None = None
    while begun is None or not begun.done():
        if wanted is not None and wanted.wait(0):
            raise Stopped
        if (left_s := until_s - clock.monotonic_s()) <= 0:
            raise CallLeft(f"no coordinator answered within {limit_s:.1f} s")
        begun = begun or _begun(call)
        wait([begun], timeout=min(LOOK_S, left_s))
    return begun.result()


def _begun(call: Callable[[], T]) -> Future[T]:
    future: Future[T] = Future()

    def run() -> None:
        try:
            future.set_result(call())
        except Exception as error:  # noqa: BLE001 - raised again where it is waited for
            future.set_exception(error)

    Thread(target=run, name="coordinator call", daemon=True).start()
    return future
