"""One attempt of a task on this worker: its thread, its stop flag, and what it reports."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping
from typing import Any, Protocol

from headrace.errors import HeadraceError, Refused
from headrace.model.task import Claim
from headrace.protocol.messages import (
    Assignment,
    EpochCompleted,
    EpochPlanned,
    EpochPrepared,
    Json,
    Progress,
    TaskEnded,
)
from headrace.protocol.payloads import Plan
from headrace.seams import seam
from headrace.worker.outbox import Outbox

log = logging.getLogger(__name__)

ERROR_CHARACTERS_MAX = 2000
FIRST_LINES_MAX = 3
RUNNING = "running"  # the step in which Spark writes rows that can be counted


class Stopped(Exception):
    """The execution was told to stop. Never leaves this worker."""


class Run(Protocol):
    def __call__(self, execution: Execution) -> Mapping[str, Any] | None: ...


class Execution:
    """Made by the host when it is given a task; `run` is what the task does."""

    def __init__(
        self,
        assignment: Assignment,
        outbox: Outbox,
        run: Run,
        *,
        thread: Callable[[Callable[[], None], str], threading.Thread],
        after: Execution | None = None,
    ) -> None:
        self.assignment = assignment
        self.claim: Claim = assignment.claim
        self._outbox, self._run, self._after = outbox, run, after
        self._stop = threading.Event()
        self._silent = False
        self.ended = threading.Event()
        self.progress = Progress(step="starting")
        self.live_rows = 0  # of the step that runs now, as Spark last counted them
        self._thread = thread(self._main, self.id)

    @property
    def id(self) -> str:
        return self.claim.execution

    @property
    def stopping(self) -> bool:
        return self._stop.is_set()

    def start(self) -> None:
        self._thread.start()

    def stop(self, *, silently: bool = False) -> None:
        """Ask it to end. Silently: the worker goes, and says goodbye for all of it."""
        self._silent |= silently
        self._stop.set()

    def check(self) -> None:
        """Called between steps: Spark cancels only jobs that already run."""
        if self._stop.is_set():
            raise Stopped

    def says(
        self, step: str, *, epoch: int = 0, rows: int = 0, expected: int | None = None
    ) -> None:
        self.progress = Progress(
            step=step,
            epoch=epoch,
            rows=rows,
            rows_expected=expected,
            spark_application=self.progress.spark_application,
        )

    def plan(self, epoch: int, plan: Plan) -> Plan:
        """Have a plan recorded; the one that comes back is the one to run."""
        seam("before epoch is planned")
        slices: Json = plan.model_dump(mode="json")
        posted = self._outbox.post(
            lambda seq: EpochPlanned(seq=seq, claim=self.claim, epoch=epoch, plan=slices)
        )
        granted = posted.wait(self.check).plan
        seam("epoch planned")
        return Plan.model_validate(granted)

    def prepare(self, epoch: int, handles: Json) -> None:
        """Have the stage handles recorded. Only then may anything be committed."""
        seam("before epoch is prepared")
        posted = self._outbox.post(
            lambda seq: EpochPrepared(seq=seq, claim=self.claim, epoch=epoch, handles=handles)
        )
        posted.wait(self.check)
        seam("epoch prepared")

    def complete(self, done: EpochCompleted) -> None:
        seam("before epoch is completed")
        posted = self._outbox.post(lambda seq: done.model_copy(update={"seq": seq}))
        posted.wait(self.check)
        seam("epoch completed")

    def _main(self) -> None:
        try:
            if self._after is not None:
                self._after.ended.wait()  # the host cancels it again and again until it has
            end = self._outcome()
            if not self._silent:
                self._outbox.post(lambda seq: end.model_copy(update={"seq": seq}))
        finally:
            self.ended.set()

    def _outcome(self) -> TaskEnded:
        def ended(outcome: str, error: str | None = None, **more: object) -> TaskEnded:
            return TaskEnded.model_validate(
                {"seq": 0, "claim": self.claim, "outcome": outcome, "error": error, **more}
            )

        try:
            self.check()
            result = self._run(self)
        except Stopped:
            return ended("CANCELED")
        except Exception as error:
            if self.stopping:  # a cancelled Spark job raises whatever it likes
                return ended("CANCELED")
            log.exception("execution failed", extra={"execution": self.id})
            return ended("FAILED", _said(error), retry=not isinstance(error, Refused))
        return ended("SUCCESS", result=dict(result) if result is not None else None)


def _said(error: Exception) -> str:
    """The error in one line. Of a Java trace: what happened, and what caused it."""
    text = str(error) if isinstance(error, HeadraceError) else f"{type(error).__name__}: {error}"
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    told = [line for line in lines if not line.startswith(("at ", "... "))]
    causes = [line for line in told if line.startswith("Caused by:")]
    first = [line for line in told if not line.startswith("Caused by:")][:FIRST_LINES_MAX]
    return " ".join([*first, *causes[-1:]])[:ERROR_CHARACTERS_MAX]
