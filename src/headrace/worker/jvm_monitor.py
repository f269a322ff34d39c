"""The JVM monitor: everything that asks the JVM while tasks run, in a thread of its own.

A long pause of the JVM must not look like the death of the worker, so the thread that syncs with
the leader never asks the JVM anything.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from headrace.model.task import JVM_ENDS, JVM_GONE, FailureCause
from headrace.worker.execution import RUNNING, Execution

log = logging.getLogger(__name__)

JVM_POLL_INTERVAL_S = 0.5  # between two checks of the JVM

# A value that changes when a Spark task has finished, or a job has begun.
TasksFinished = tuple[int, int]


@dataclass(frozen=True, slots=True)
class Spark:
    """The calls of Spark that are needed here; all others are made by the runner."""

    alive: Callable[[], bool]
    cancel: Callable[[str], None]
    rows_written: Callable[[str], int | None]
    tasks_finished: Callable[[str], TasksFinished]
    died_of: Callable[[], FailureCause] = lambda: FailureCause.LOST  # asked once it is not alive


class JvmMonitor:
    """Watches the JVM, cancels Spark jobs of stopped executions and counts rows of active ones."""

    def __init__(
        self,
        spark: Spark,
        active: Callable[[], Sequence[Execution]],
        *,
        on_death: Callable[[], None],
    ) -> None:
        self._spark, self._active, self._on_death = spark, active, on_death
        self._soon = threading.Event()
        self._over = threading.Event()
        self._finished: dict[str, TasksFinished] = {}  # by execution, as last read
        self._death_lock = threading.Lock()
        self.death: FailureCause | None = None  # what the JVM died of; None while it lives

    @property
    def jvm_died(self) -> bool:
        return self.death is not None

    def start(self) -> None:
        threading.Thread(target=self._main, name="tending", daemon=True).start()

    def check_soon(self) -> None:
        self._soon.set()

    def end(self) -> None:
        self._over.set()

    def died_of(self) -> FailureCause | None:
        """What the JVM died of, for an execution that failed; None when the JVM lives."""
        if self.death is None and not self._is_alive():
            self._record_death()
        return self.death

    def _record_death(self) -> None:
        """Note what the JVM died of, and stop the sync loop before any execution reports its
        failure: this worker must get no more tasks."""
        with self._death_lock:
            # Another thread was first, or the JVM is being stopped on purpose.
            if self.death is not None or self._over.is_set():
                return
            self.death = self._spark.died_of()
        reason = f"it {JVM_ENDS.get(self.death, JVM_GONE)}"
        log.error("Spark's JVM is gone", extra={"cause": self.death, "reason": reason})
        self._on_death()

    def _main(self) -> None:
        while not self._over.is_set():
            self._soon.wait(JVM_POLL_INTERVAL_S)
            self._soon.clear()
            if not self._is_alive():
                self._record_death()
                return
            active = self._active()
            ids = {execution.id for execution in active}
            self._finished = {id_: seen for id_, seen in self._finished.items() if id_ in ids}
            for execution in active:
                try:
                    self._check_execution(execution)
                except Exception:
                    log.exception("Spark did not answer", extra={"execution": execution.id})

    def _is_alive(self) -> bool:
        try:
            return self._spark.alive()
        except Exception:
            log.exception("Spark could not be asked whether it lives")
            return False

    def _check_execution(self, execution: Execution) -> None:
        if execution.stopping:
            self._spark.cancel(execution.id)  # at every check: it only hits jobs that run now
            return
        finished = self._spark.tasks_finished(execution.id)
        if self._finished.get(execution.id) != finished:
            self._finished[execution.id] = finished
            execution.touch()
        if execution.progress.step == RUNNING:
            rows = self._spark.rows_written(execution.id) or 0
            if rows != execution.live_rows:
                execution.live_rows = rows
                execution.touch()
