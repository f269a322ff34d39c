"""Messages between processes: each may be lost, late, or said twice, on either way."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from headrace.errors import HeadraceError
from tests.simulation.faults import AT_MESSAGE, DELAY, DROP, REPEAT, Faults
from tests.simulation.threads import Future
from tests.simulation.world import Crash, Process, the_world

LATENCY_S = (0.0005, 0.01)
REPEATED_AFTER_S = 1.5
Handler = Callable[[str, Any], Any]


class NoAnswer(Exception):
    """The other side is dead, or silent for too long."""


class Network:
    def __init__(self, faults: Faults) -> None:
        self._faults = faults
        self._handlers: dict[str, tuple[Process, Handler]] = {}

    def serve(self, address: str, process: Process, handler: Handler) -> None:
        self._handlers[address] = (process, handler)

    def call(self, address: str, verb: str, body: Any, *, timeout_s: float) -> Any:
        world = the_world()
        sender = world.process
        assert sender is not None
        if sender.dead:
            raise Crash  # what unwinds after a kill says nothing any more
        answer = Future()
        fault = self._faults.at(f"request {verb}", AT_MESSAGE, sender.actor)
        kind = fault.kind if fault else None
        seconds = fault.seconds if fault else 0.0
        if kind != DROP and sender.cut_until_s <= world.now_s:
            latency_s = sender.random.uniform(*LATENCY_S) + (seconds if kind == DELAY else 0)
            world.later(latency_s, lambda: self._deliver(address, verb, body, answer))
        if kind == REPEAT:
            world.later(REPEATED_AFTER_S, lambda: self._deliver(address, verb, body, Future()))
        try:
            return answer.result(timeout_s)
        except TimeoutError as error:
            raise NoAnswer(f"{address} does not answer {verb}") from error

    def _deliver(self, address: str, verb: str, body: Any, answer: Future) -> None:
        world = the_world()
        process, handler = self._handlers.get(address, (None, None))
        if process is None or handler is None or process.dead:
            answer.set_exception(NoAnswer(f"{address} is not there"))
            return
        if process.cut_until_s > world.now_s:
            return
        world.spawn(process, lambda: self._handle(process, handler, verb, body, answer), verb)

    def _handle(
        self, process: Process, handler: Handler, verb: str, body: Any, answer: Future
    ) -> None:
        world = the_world()
        try:
            result, error = handler(verb, body), None
        except HeadraceError as problem:
            result, error = None, problem
        fault = self._faults.at(f"answer {verb}", AT_MESSAGE[:2], process.actor)
        if (fault and fault.kind == DROP) or process.cut_until_s > world.now_s:
            return
        latency_s = process.random.uniform(*LATENCY_S) + (fault.seconds if fault else 0.0)

        def arrive() -> None:
            if error is not None:
                answer.set_exception(error)
            else:
                answer.set_result(result)

        world.later(latency_s, arrive)
