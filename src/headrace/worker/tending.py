"""All that asks the JVM while tasks run, in a thread of its own.

A long pause of the JVM must not look like the death of the worker, so the conversation with the
leader never asks it anything.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from headrace.model.task import JVM_ENDS, JVM_GONE, FailureCause
from headrace.worker.execution import RUNNING, Execution

log = logging.getLogger(__name__)

TEND_INTERVAL_S = 0.5  # between two looks at the JVM

# Another one than before means that a Spark task has finished, or that a job has begun.
TasksFinished = tuple[int, int]


@dataclass(frozen=True, slots=True)
class Spark:
    """What is needed of the engine here; the rest is the runner's business."""

    alive: Callable[[], bool]
    cancel: Callable[[str], None]
    rows_written: Callable[[str], int | None]
    tasks_finished: Callable[[str], TasksFinished]
    died_of: Callable[[], FailureCause] = lambda: FailureCause.LOST  # once it is not alive


class Tending:
    """Looks after the JVM, and has it cancel and count for the executions that are active."""

    def __init__(
        self,
        spark: Spark,
        active: Callable[[], Sequence[Execution]],
        *,
        died: Callable[[], None],
    ) -> None:
        self._spark, self._active, self._died = spark, active, died
        self._soon = threading.Event()
        self._over = threading.Event()
        self._finished: dict[str, TasksFinished] = {}  # by execution, as Spark last said
        self._finding_out = threading.Lock()
        self.death: FailureCause | None = None  # of the JVM

    @property
    def jvm_died(self) -> bool:
        return self.death is not None

    def start(self) -> None:
        threading.Thread(target=self._main, name="tending", daemon=True).start()

    def look_soon(self) -> None:
        self._soon.set()

    def end(self) -> None:
        self._over.set()

    def died_of(self) -> FailureCause | None:
        """Of an execution that failed: what the JVM died of under it; None: the JVM lives."""
        if self.death is None and not self._is_alive():
            self._end_with_it()
        return self.death

    def _end_with_it(self) -> None:
        """Before anything is said of what died with it: nobody gives tasks to us any more."""
        with self._finding_out:
            # Somebody else has found out; or it is being stopped, since nobody needs it.
            if self.death is not None or self._over.is_set():
                return
            self.death = self._spark.died_of()
        reason = f"it {JVM_ENDS.get(self.death, JVM_GONE)}"
        log.error("Spark's JVM is gone", extra={"cause": self.death, "reason": reason})
        self._died()

    def _main(self) -> None:
        while not self._over.is_set():
            self._soon.wait(TEND_INTERVAL_S)
            self._soon.clear()
            if not self._is_alive():
                self._end_with_it()
                return
            active = self._active()
            ids = {execution.id for execution in active}
            self._finished = {id_: seen for id_, seen in self._finished.items() if id_ in ids}
            for execution in active:
                try:
                    self._ask(execution)
                except Exception:
                    log.exception("Spark did not answer", extra={"execution": execution.id})

    def _is_alive(self) -> bool:
        try:
            return self._spark.alive()
        except Exception:
            log.exception("Spark could not be asked whether it lives")
            return False

    def _ask(self, execution: Execution) -> None:
        if execution.stopping:
            self._spark.cancel(execution.id)  # again and again: it only hits jobs that run
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
