"""One execution, an attempt of a task on this worker: its thread, its stop flag and its reports."""

from __future__ import annotations

import itertools
import json
import logging
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol, assert_never

from headrace.errors import HeadraceError, Refused, StoreOlderThanTarget
from headrace.model.jobs.epoch import Moment
from headrace.model.task import JVM_ENDS, JVM_GONE, Claim, FailureCause
from headrace.model.text import shortened
from headrace.protocol.messages import (
    PAYLOAD_BYTES_MAX,
    REPORT_BYTES_PER_SYNC_MAX,
    Assignment,
    End,
    EpochCompleted,
    EpochPlan,
    EpochPlanned,
    EpochPrepared,
    Json,
    Progress,
    Report,
    TaskEnded,
    TaskGivenBack,
)
from headrace.seams import seam
from headrace.spark.errors import error_text, ran_out_of_memory
from headrace.worker.outbox import (
    CURRENT_EXECUTION,
    STOP_CHECK_INTERVAL_S,
    Outbox,
    Posted,
    redacted,
    secrets_of,
)

log = logging.getLogger(__name__)

ERROR_CHARACTERS_MAX = 2000
FIRST_LINES_MAX = 3
RUNNING = "running"  # the step in which Spark writes rows that can be counted
TOUCH_INTERVAL_S = 1.0  # while it waits on purpose: far below any stall timeout


class ExecutionStopped(Exception):
    """The execution is to stop. This exception never leaves the worker."""


class NotForThisWorker(Exception):
    """This worker can't run a task that was assigned to it, and has begun nothing of it. The task
    is given back with this reason, and is another worker's. `whole_kind`: no task of its kind can
    be run here."""

    def __init__(self, reason: str, *, whole_kind: bool = False) -> None:
        self.whole_kind = whole_kind
        super().__init__(reason)


class Run(Protocol):
    """What a kind of task does. Returns the result that is reported with its end. Raises
    NotForThisWorker before it has any effect, or not at all."""

    def __call__(self, execution: Execution) -> Mapping[str, Any] | None: ...


class Execution:
    """An attempt of a task, made by the sync loop when it is assigned; `run` does the work."""

    def __init__(
        self,
        assignment: Assignment,
        outbox: Outbox,
        run: Run,
        *,
        after: Sequence[Execution] = (),
        since: Moment | None = None,
        died_of: Callable[[], FailureCause | None] = lambda: None,
    ) -> None:
        """`after`: older attempts of the task, which must have ended before this one begins.
        `since`: when the sync was sent whose answer assigned the task. `died_of`: tells what ended
        the JVM, if anything did."""
        self.assignment = assignment
        self.claim: Claim = assignment.claim
        self._outbox, self._run, self._after, self.since = outbox, run, after, since
        self._died_of = died_of
        self._stop = threading.Event()
        self._interrupted = threading.Event()  # it is to stop, or to end with a savepoint
        self._saving = self._silent = False
        self.superseded = False  # the leader stopped it: others may work on its epochs by now
        self.saved = False  # it ends with a savepoint, before all its work is done
        self.ended = threading.Event()
        self._progress_lock = threading.Lock()
        self.progress = Progress(step="starting")
        self.live_rows = 0  # rows of the current step, as Spark last counted them
        self._activity_numbers = itertools.count(1)  # thread-safe
        self.activity = next(self._activity_numbers)
        # A plain thread: pyspark's own asks the JVM when it is started, and this one is started by
        # the thread that syncs with the leader. The task itself sets tag and pool.
        self._thread = threading.Thread(target=self._main, name=self.id, daemon=True)

    @property
    def id(self) -> str:
        return self.claim.execution

    @property
    def stopping(self) -> bool:
        return self._stop.is_set()

    def start(self) -> None:
        self._thread.start()

    def fail(self, error: Exception) -> None:
        """Report that the execution could not even be started."""
        self._end(self._failed(error))

    def stop(self, *, silently: bool = False, leaving: bool = False) -> None:
        """Ask it to end. `silently`: nobody needs a report of its end any more. `leaving`: the
        worker ends, gives all its tasks back by one goodbye, and has no time to clean up."""
        self._silent |= silently or leaving
        self.superseded |= not leaving
        self._stop.set()
        self._interrupted.set()

    def savepoint(self) -> None:
        """Ask it to finish what is open, and to end there. Idempotent."""
        self._saving = True
        self._interrupted.set()

    @property
    def saving(self) -> bool:
        return self._saving

    def check(self) -> None:
        """Raise ExecutionStopped if it is to stop. Called between steps, since Spark cancels only
        jobs that already run."""
        if self._stop.is_set():
            raise ExecutionStopped

    def touch(self) -> None:
        """Give the leader a sign of life (D5): something moved, or waits on purpose."""
        self.activity = next(self._activity_numbers)

    def wait(self, seconds: float) -> None:
        """Pause on purpose. Raises ExecutionStopped as soon as it is to stop."""
        self._wait_for(self._stop, seconds)

    def rest(self, seconds: float) -> None:
        """As `wait`, and returns early when it is to end with a savepoint."""
        self._wait_for(self._interrupted, seconds)

    def _wait_for(self, event: threading.Event, left_s: float) -> None:
        while left_s > 0 and not event.wait(min(left_s, TOUCH_INTERVAL_S)):
            left_s -= TOUCH_INTERVAL_S
            self.touch()
        self.check()

    def _check_waiting(self) -> None:
        """Called while no coordinator has answered: waiting for one is no stall."""
        self.touch()
        self.check()

    def set_progress(
        self, step: str, *, epoch: int = 0, rows: int = 0, expected: int | None = None
    ) -> None:
        self.touch()
        changes = {"step": step, "epoch": epoch, "rows": rows, "rows_expected": expected}
        with self._progress_lock:
            self.progress = self.progress.model_copy(update=changes)

    def set_committing(self, epoch: int | None) -> None:
        """Show which epoch is being committed, beside the step that the next one is in."""
        self.touch()
        with self._progress_lock:
            self.progress = self.progress.model_copy(update={"committing": epoch})

    def propose(self, epoch: int, plan: EpochPlan) -> Posted:
        """Send a plan to be recorded. The epoch may run once `granted_plan` returns."""
        seam("before epoch is planned")
        slices = _size_checked("plan", epoch, plan.model_dump(mode="json"))
        return self._outbox.post(
            lambda seq: EpochPlanned(seq=seq, claim=self.claim, epoch=epoch, plan=slices)
        )

    def granted_plan(self, proposed: Posted) -> EpochPlan:
        """Wait until a plan is recorded; returns the recorded plan, which is the one to run."""
        granted_plan = EpochPlan.model_validate(proposed.wait(self._check_waiting).plan)
        seam("epoch planned")
        self._log_report("epoch planned", proposed.report, news=bool(granted_plan.slices))
        return granted_plan

    def prepare(
        self,
        epoch: int,
        handles: Json,
        ready: Sequence[str] = (),
        read: Mapping[str, int] | None = None,
    ) -> Posted:
        """Send the stage handles, the sources that have read everything, and the rows read, to be
        recorded."""
        seam("before epoch is prepared")
        _size_checked("stage handles", epoch, handles)
        return self._outbox.post(
            lambda seq: EpochPrepared(
                seq=seq,
                claim=self.claim,
                epoch=epoch,
                handles=handles,
                ready=tuple(ready),
                read=None if read is None else dict(read),
            )
        )

    def wait_until_prepared(self, posted: Posted) -> None:
        """Wait until the handles are recorded. No sink may commit before that."""
        posted.wait(self._check_waiting)
        seam("epoch prepared")
        self._log_report("epoch prepared", posted.report, news=_is_worth_logging(posted.report))

    def complete(self, done: EpochCompleted) -> None:
        seam("before epoch is completed")
        posted = self._outbox.post(lambda seq: done.model_copy(update={"seq": seq}))
        posted.wait(self._check_waiting)
        seam("epoch completed")
        rows = {"rows_in": done.rows_in, "rows_out": done.rows_out}
        self._log_report("epoch completed", done, news=_is_worth_logging(done), **rows)

    def _log_report(self, message: str, report: Report, *, news: bool, **facts: int) -> None:
        """Log for people. An epoch in which nothing came is not worth a line of the job's log."""
        about = {"execution": self.id, "epoch": getattr(report, "epoch", None)}
        log.log(logging.INFO if news else logging.DEBUG, message, extra={**about, **facts})

    def _main(self) -> None:
        CURRENT_EXECUTION.set(self.id)
        try:
            end = self._outcome()
        except (Exception, SystemExit) as error:
            # Whatever it was: an execution without an end would hold its slot for ever.
            log.exception("execution's end could not be told", extra={"execution": self.id})
            kind = type(error).__name__  # its message may hold secrets
            end = self._ended("FAILED", error=f"its end could not be told: {kind}; see its log")
        self._end(end)

    def _end(self, end: End) -> None:
        try:
            if not self._silent:
                self._outbox.post(lambda seq: end.model_copy(update={"seq": seq}))
        finally:
            self.ended.set()

    def _outcome(self) -> End:
        try:
            self._wait_for_older()
            result = self._run(self)
        except ExecutionStopped:
            return self._ended("CANCELED")
        except NotForThisWorker as error:
            return self._given_back(error)
        except Exception as error:  # noqa: BLE001  reported, whatever it is
            if self.stopping:  # a cancelled Spark job may raise anything
                return self._ended("CANCELED")
            return self._failed(error, self._jvm_failure(error))
        outcome = "SAVEPOINT" if self.saved else "SUCCESS"
        end = self._ended(outcome, result=dict(result) if result is not None else None)
        return self._failure_if_too_large(end) or end

    def _given_back(self, error: NotForThisWorker) -> TaskGivenBack:
        log.warning("task given back", extra={"execution": self.id, "reason": str(error)})
        reason = shortened(str(error), ERROR_CHARACTERS_MAX)
        return TaskGivenBack(seq=0, claim=self.claim, reason=reason, whole_kind=error.whole_kind)

    def _failure_if_too_large(self, end: TaskEnded) -> TaskEnded | None:
        """A failure instead of an end that no coordinator accepts, which every worker of this home
        would report for ever; None when it fits."""
        size = len(end.model_dump_json().encode())
        if size <= REPORT_BYTES_PER_SYNC_MAX:
            return None
        return self._failed(
            Refused(
                f"what it found takes {size} bytes to tell, and {REPORT_BYTES_PER_SYNC_MAX} are "
                "the limit; ask for less at a time"
            )
        )

    def _wait_for_older(self) -> None:
        """Wait for the older attempts; the sync loop cancels their jobs until they have ended."""
        for older in self._after:
            while not older.ended.wait(STOP_CHECK_INTERVAL_S):
                self.check()
        self.check()

    def _failed(self, error: Exception, loss: FailureCause | None = None) -> TaskEnded:
        """`loss`: what ended the JVM, of which `error` is only a consequence."""
        refused = isinstance(error, Refused)  # explained to the user in full: no traceback
        traced = None if refused or loss is not None else error
        facts = {"execution": self.id, "reason": error_text(error)}
        log.error("execution failed", extra=facts, exc_info=traced)
        text = redacted(error_line(error), secrets_of(self.assignment.payload))
        if loss is not None:
            message = f"Spark's JVM {JVM_ENDS.get(loss, JVM_GONE)}: {text}"[:ERROR_CHARACTERS_MAX]
            return self._ended("FAILED", error=message, cause=loss)
        # Trying again can't help: the store stays older than its target.
        older = isinstance(error, StoreOlderThanTarget)
        cause = FailureCause.STORE_OLDER if older else FailureCause.ERROR
        return self._ended("FAILED", error=text, retry=not refused, cause=cause)

    def _jvm_failure(self, error: Exception) -> FailureCause | None:
        """What ended the JVM, if it died. It asks the JVM, so the sync loop never calls it."""
        if (death := self._died_of()) is not None:
            return death
        return FailureCause.OUT_OF_MEMORY if ran_out_of_memory(error) else None

    def _ended(self, outcome: str, **more: object) -> TaskEnded:
        return TaskEnded.model_validate({"seq": 0, "claim": self.claim, "outcome": outcome, **more})


def _is_worth_logging(report: Report) -> bool:
    match report:
        case EpochPrepared():
            return bool(report.handles)
        case EpochCompleted():
            return bool(report.commits or report.rows_in)
        case EpochPlanned() | TaskEnded() | TaskGivenBack():
            return True
    assert_never(report)


def _size_checked(what: str, epoch: int, content: Json) -> Json:
    size = len(json.dumps(content).encode())
    if size > PAYLOAD_BYTES_MAX:
        raise Refused(
            f"the {what} of epoch {epoch} takes {size} bytes, and {PAYLOAD_BYTES_MAX} are the "
            "limit; give the job fewer sources or sinks, or shorter options"
        )
    return content


def error_line(error: Exception) -> str:
    """The error in one line. A Java stack trace is reduced to its message and last cause."""
    message = error_text(error)
    text = message if isinstance(error, HeadraceError) else f"{type(error).__name__}: {message}"
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    kept = [line for line in lines if not line.startswith(("at ", "... "))]
    causes = [line for line in kept if line.startswith("Caused by:")]
    first = [line for line in kept if not line.startswith("Caused by:")][:FIRST_LINES_MAX]
    return shortened(" ".join([*first, *causes[-1:]]), ERROR_CHARACTERS_MAX)
