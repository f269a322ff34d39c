"""One attempt of a task on this worker: its thread, its stop flag, and what it reports."""

from __future__ import annotations

import itertools
import json
import logging
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

from headrace.errors import HeadraceError, Refused, StoreOlderThanTarget
from headrace.formats.spark_errors import ran_out_of_memory, words_of
from headrace.model.deadline import Moment
from headrace.model.task import JVM_ENDS, JVM_GONE, Claim, FailureCause
from headrace.model.text import shortened
from headrace.protocol.messages import (
    PAYLOAD_BYTES_MAX,
    REPORT_BYTES_PER_SYNC_MAX,
    Assignment,
    EpochCompleted,
    EpochPlanned,
    EpochPrepared,
    Json,
    Progress,
    Report,
    TaskEnded,
)
from headrace.protocol.payloads import Plan
from headrace.seams import seam
from headrace.worker.joblog import SPEAKING, redacted, secrets_of
from headrace.worker.outbox import LOOK_INTERVAL_S, Outbox, Posted

log = logging.getLogger(__name__)

ERROR_CHARACTERS_MAX = 2000
FIRST_LINES_MAX = 3
RUNNING = "running"  # the step in which Spark writes rows that can be counted
TOUCH_INTERVAL_S = 1.0  # while it waits on purpose: far below any timeout for standing still


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
        after: Sequence[Execution] = (),
        since: Moment | None = None,
        died_of: Callable[[], FailureCause | None] = lambda: None,
    ) -> None:
        """`after`: older attempts of the task, which must have ended before this one begins.
        `since`: the leader was asked then, and gave the task. `died_of`: what ended the JVM, if
        anything did."""
        self.assignment = assignment
        self.claim: Claim = assignment.claim
        self._outbox, self._run, self._after, self.since = outbox, run, after, since
        self._died_of = died_of
        self._stop = threading.Event()
        self._called = threading.Event()  # to stop, or to end with a savepoint
        self._saving = self._silent = False
        self.superseded = False  # the leader had it stopped: others may work on its epochs by now
        self.saved = False  # it ends with a savepoint: what it was given is not all done
        self.ended = threading.Event()
        self._saying = threading.Lock()
        self.progress = Progress(step="starting")
        self.live_rows = 0  # of the step that runs now, as Spark last counted them
        self._signs = itertools.count(1)  # safe between threads
        self.activity = next(self._signs)
        # A plain thread: pyspark's own asks the JVM when it is started, and the thread that
        # speaks with the leader starts this one. Tag and pool are set by the task itself.
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
        """It could not even be started."""
        self._end(self._failed(error))

    def stop(self, *, silently: bool = False, leaving: bool = False) -> None:
        """Ask it to end. Silently: its end is nobody's concern any more. Leaving: the worker goes,
        says goodbye for all of it, and has no time to clear up."""
        self._silent |= silently or leaving
        self.superseded |= not leaving
        self._stop.set()
        self._called.set()

    def savepoint(self) -> None:
        """Ask it to finish what is open, and to end there. Said twice it is said once."""
        self._saving = True
        self._called.set()

    @property
    def saving(self) -> bool:
        return self._saving

    def check(self) -> None:
        """Called between steps: Spark cancels only jobs that already run."""
        if self._stop.is_set():
            raise Stopped

    def touch(self) -> None:
        """A sign of life, for the leader to see (D5): something moved, or waits on purpose."""
        self.activity = next(self._signs)

    def wait(self, seconds: float) -> None:
        """Pause on purpose, unless it is to stop."""
        self._wait_for(self._stop, seconds)

    def rest(self, seconds: float) -> None:
        """As `wait`, until it is called to end with a savepoint, too."""
        self._wait_for(self._called, seconds)

    def _wait_for(self, called: threading.Event, left_s: float) -> None:
        while left_s > 0 and not called.wait(min(left_s, TOUCH_INTERVAL_S)):
            left_s -= TOUCH_INTERVAL_S
            self.touch()
        self.check()

    def _check_waiting(self) -> None:
        """While no coordinator has answered: that is no standstill of ours."""
        self.touch()
        self.check()

    def says(
        self, step: str, *, epoch: int = 0, rows: int = 0, expected: int | None = None
    ) -> None:
        self.touch()
        news = {"step": step, "epoch": epoch, "rows": rows, "rows_expected": expected}
        with self._saying:
            self.progress = self.progress.model_copy(update=news)

    def commits(self, epoch: int | None) -> None:
        """Say which epoch is being committed, beside whatever step the next one is in."""
        self.touch()
        with self._saying:
            self.progress = self.progress.model_copy(update={"committing": epoch})

    def propose(self, epoch: int, plan: Plan) -> Posted:
        """Have a plan recorded. It may run once it is `granted`."""
        seam("before epoch is planned")
        slices = _fits("plan", epoch, plan.model_dump(mode="json"))
        return self._outbox.post(
            lambda seq: EpochPlanned(seq=seq, claim=self.claim, epoch=epoch, plan=slices)
        )

    def granted(self, proposed: Posted) -> Plan:
        """Wait until a plan is recorded; the one that comes back is the one to run."""
        granted = Plan.model_validate(proposed.wait(self._check_waiting).plan)
        seam("epoch planned")
        self._tell("epoch planned", proposed.report, news=bool(granted.slices))
        return granted

    def prepare(
        self,
        epoch: int,
        handles: Json,
        ready: Sequence[str] = (),
        read: Mapping[str, int] | None = None,
    ) -> Posted:
        """Have the stage handles recorded, who has read everything, and how much was read."""
        seam("before epoch is prepared")
        _fits("stage handles", epoch, handles)
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

    def prepared(self, said: Posted) -> None:
        """Wait until the handles are recorded. Only then commit."""
        said.wait(self._check_waiting)
        seam("epoch prepared")
        self._tell("epoch prepared", said.report, news=_has_news(said.report))

    def complete(self, done: EpochCompleted) -> None:
        seam("before epoch is completed")
        posted = self._outbox.post(lambda seq: done.model_copy(update={"seq": seq}))
        posted.wait(self._check_waiting)
        seam("epoch completed")
        rows = {"rows_in": done.rows_in, "rows_out": done.rows_out}
        self._tell("epoch completed", done, news=_has_news(done), **rows)

    def _tell(self, message: str, report: Report, *, news: bool, **facts: int) -> None:
        """For people. An epoch in which nothing came is not worth a line of the job's log."""
        about = {"execution": self.id, "epoch": getattr(report, "epoch", None)}
        log.log(logging.INFO if news else logging.DEBUG, message, extra={**about, **facts})

    def _main(self) -> None:
        SPEAKING.set(self.id)
        try:
            end = self._outcome()
        except (Exception, SystemExit) as error:
            # Whatever it was: one that never ended would be held, and its slot taken, for ever.
            log.exception("execution's end could not be told", extra={"execution": self.id})
            kind = type(error).__name__  # its words may hold secrets
            end = self._ended("FAILED", error=f"its end could not be told: {kind}; see its log")
        self._end(end)

    def _end(self, end: TaskEnded) -> None:
        try:
            if not self._silent:
                self._outbox.post(lambda seq: end.model_copy(update={"seq": seq}))
        finally:
            self.ended.set()

    def _outcome(self) -> TaskEnded:
        try:
            self._wait_for_older()
            result = self._run(self)
        except Stopped:
            return self._ended("CANCELED")
        except Exception as error:  # noqa: BLE001  reported, whatever it is
            if self.stopping:  # a cancelled Spark job raises whatever it likes
                return self._ended("CANCELED")
            return self._failed(error, self._loss(error))
        outcome = "SAVEPOINT" if self.saved else "SUCCESS"
        end = self._ended(outcome, result=dict(result) if result is not None else None)
        return self._too_large(end) or end

    def _too_large(self, end: TaskEnded) -> TaskEnded | None:
        """One that no coordinator takes would be said for ever, by every worker of this home."""
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
        """The host cancels them again and again until they have ended."""
        for older in self._after:
            while not older.ended.wait(LOOK_INTERVAL_S):
                self.check()
        self.check()

    def _failed(self, error: Exception, loss: FailureCause | None = None) -> TaskEnded:
        """`loss`: the JVM went with it, and whatever was raised is a consequence."""
        refused = isinstance(error, Refused)  # said to the user in full; nothing for us to trace
        traced = None if refused or loss is not None else error
        facts = {"execution": self.id, "reason": words_of(error)}
        log.error("execution failed", extra=facts, exc_info=traced)
        told = redacted(said(error), secrets_of(self.assignment.payload))
        if loss is not None:
            text = f"Spark's JVM {JVM_ENDS.get(loss, JVM_GONE)}: {told}"[:ERROR_CHARACTERS_MAX]
            return self._ended("FAILED", error=text, cause=loss)
        # An older store does not grow younger: what it completed before is no reason to try again.
        older = isinstance(error, StoreOlderThanTarget)
        cause = FailureCause.STORE_OLDER if older else FailureCause.ERROR
        return self._ended("FAILED", error=told, retry=not refused, cause=cause)

    def _loss(self, error: Exception) -> FailureCause | None:
        """What became of the JVM, if anything did. It is asked, so never by the host's thread."""
        if (death := self._died_of()) is not None:
            return death
        return FailureCause.OUT_OF_MEMORY if ran_out_of_memory(error) else None

    def _ended(self, outcome: str, **more: object) -> TaskEnded:
        return TaskEnded.model_validate({"seq": 0, "claim": self.claim, "outcome": outcome, **more})


def _has_news(report: Report) -> bool:
    match report:
        case EpochPrepared():
            return bool(report.handles)
        case EpochCompleted():
            return bool(report.commits or report.rows_in)
        case _:
            return True


def _fits(what: str, epoch: int, content: Json) -> Json:
    size = len(json.dumps(content).encode())
    if size > PAYLOAD_BYTES_MAX:
        raise Refused(
            f"the {what} of epoch {epoch} takes {size} bytes, and {PAYLOAD_BYTES_MAX} are the "
            "limit; give the job fewer sources or sinks, or shorter options"
        )
    return content


def said(error: Exception) -> str:
    """The error in one line. Of a Java trace: what happened, and what caused it."""
    words = words_of(error)
    text = words if isinstance(error, HeadraceError) else f"{type(error).__name__}: {words}"
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    told = [line for line in lines if not line.startswith(("at ", "... "))]
    causes = [line for line in told if line.startswith("Caused by:")]
    first = [line for line in told if not line.startswith("Caused by:")][:FIRST_LINES_MAX]
    return shortened(" ".join([*first, *causes[-1:]]), ERROR_CHARACTERS_MAX)
