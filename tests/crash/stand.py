"""One coordinator and one worker, either or both of which are killed, and then started again.

The next coordinator listens where the last one did, so that the worker, clients and tests go on
asking the same address.
"""

from __future__ import annotations

import signal
from collections.abc import Sequence
from enum import StrEnum

import pytest

from tests.crash.cluster import END_MAX_S, Cluster, Process, free_port, until

# Long enough for a living worker on a busy machine, and over before the next one has a session.
HEARTBEAT_TIMEOUT_S = 15
SPARK_START_MAX_S = 600.0


class Victim(StrEnum):
    COORDINATOR = "coordinator"
    WORKER = "worker"
    BOTH = "both"

    @property
    def holds_the_worker(self) -> bool:
        return self is not Victim.COORDINATOR

    @property
    def holds_the_coordinator(self) -> bool:
        return self is not Victim.WORKER


def victims(usual: Victim) -> pytest.MarkDecorator:
    """Kill the usual one; the full matrix kills each."""
    matrix = [
        pytest.param(victim, id=victim, marks=() if victim is usual else pytest.mark.matrix)
        for victim in Victim
    ]
    return pytest.mark.parametrize("victim", matrix)


class Stand:
    coordinator: Process
    worker: Process

    def __init__(
        self, made: Cluster, *, under: Sequence[str] = (), options: Sequence[str] = ()
    ) -> None:
        """`under`: the Python module, with its arguments, that runs `headrace`; `options`: of
        coordinators."""
        self.made, self._under, self._options = made, under, options
        self._port, self._slots, self._started = free_port(), 1, 0

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._port}"

    def start(self, *, slots: int = 1, worker_seams: str = "") -> None:
        self._slots = slots
        self.start_worker(seams=worker_seams)  # its Spark takes longest, and can wait
        self.start_coordinator()

    def start_coordinator(self, *, wait: bool = True) -> None:
        """`wait` until it answers; one that is to die at its start may never do."""
        timeout = ("--heartbeat-timeout", str(HEARTBEAT_TIMEOUT_S))
        self.coordinator = self.made.coordinator(
            self._name("coordinator"),
            *timeout,
            *self._options,
            port=self._port,
            wait=wait,
            under=self._under,
        )

    def start_worker(self, *, seams: str = "") -> None:
        self.worker = self.made.worker(
            self._name("worker"), self.url, seams=seams, slots=self._slots, under=self._under
        )

    def _name(self, kind: str) -> str:
        self._started += 1
        return f"{kind}-{self._started}"

    def kill(self, victim: Victim) -> None:
        """Nothing of what is killed is left when this returns."""
        killed = [
            *([self.coordinator] if victim.holds_the_coordinator else []),
            *([self.worker] if victim.holds_the_worker else []),
        ]
        for process in killed:
            process.signal(signal.SIGKILL)
        for process in killed:
            process.popen.wait(END_MAX_S)

    def start_again(self, victim: Victim, *, wait: bool = True) -> None:
        if victim.holds_the_worker:
            self.start_worker()
        if victim.holds_the_coordinator:
            self.start_coordinator(wait=wait)

    def strike(self, victim: Victim, *, wait: bool = True) -> None:
        self.kill(victim)
        self.start_again(victim, wait=wait)

    def await_stopped_worker(self) -> None:
        """Until it stands still at a seam. Its leader counts its silence from now on."""
        until(self.worker.stopped, limit_s=SPARK_START_MAX_S, what="the worker stops at its seam")

    def strike_stopped_worker(self, victim: Victim) -> None:
        """Kill while the worker stands still at a seam; one that is spared goes on from there."""
        self.kill(victim)
        if not victim.holds_the_worker:
            self.worker.signal(signal.SIGCONT)
        self.start_again(victim)
