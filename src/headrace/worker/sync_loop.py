"""The sync loop: the active tasks of this worker, and the syncs with the leader about them.

One sync is under way at a time. It carries everything: what is held, what was finished, how many
slots are free; the answer says what to start, what to stop and what is acknowledged. Losing a sync
or its answer costs time, nothing else. The loop survives a coordinator that is gone for minutes:
its executions go on, and wait where they need an answer.

A task that is deployed again gets the same answer as before and one line in the log (D6). One of a
kind that is unknown here is given back.

It speaks the newest version of the protocol that this program and the leader have in common. A
leader that came up with a newer program is told again who this worker is, in its words.
"""

from __future__ import annotations

import logging
import os
import re
import socket
import threading
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence

from headrace import __version__
from headrace.clock import Clock
from headrace.containers.container import DRIVER_MEMORY
from headrace.containers.launch_claims import WorkerLaunch
from headrace.errors import (
    HeadraceError,
    LaunchTaken,
    ProtocolRefused,
    Refused,
    SparkDied,
    Unavailable,
)
from headrace.logs import Once
from headrace.model.jobs.epoch import now
from headrace.model.task import Claim, Lane, Location, TaskKind
from headrace.protocol.messages import (
    REPORTS_PER_SYNC_MAX,
    Acknowledged,
    Answer,
    Assignment,
    Goodbye,
    Held,
    LastAnswerSeen,
    Progress,
    Register,
    Registered,
    Sync,
)
from headrace.protocol.versions import SPOKEN, WireVersions
from headrace.seams import seam
from headrace.worker.client import LeaderClient
from headrace.worker.execution import RUNNING, Execution, NotForThisWorker, Run
from headrace.worker.jvm_monitor import JvmMonitor, Spark
from headrace.worker.outbox import ENDS_REMEMBERED_MAX, JobLog, Outbox
from headrace.worker.plugins import installed_plugins
from headrace.worker.spoken_version import SpokenVersion

log = logging.getLogger(__name__)

CONTROL_SLOTS = 2  # the lane beside the slots, for short control tasks
_MEMORY = re.compile(r"(?P<number>\d{1,15})(?P<unit>[kmgt]?)b?")
_UNITS_MB = {"k": 1 / 1024, "m": 1, "g": 1024, "t": 1024 * 1024}
BUSY_SYNC_INTERVAL_S = 0.5  # while something runs: progress is shown live
TAKES_ON_S = 60.0  # a worker that wants to leave when idle still takes tasks for so long,
HOLDS_BACK_S = 300.0  # then none for so long, and so on until it is idle
IDLE_SYNC_INTERVAL_S = 3.0  # a heartbeat; new work wakes the loop long before
WAIT_TIMEOUT_S = 10.0  # of one long poll
RETRY_PAUSE_S = 0.2  # back-off after a coordinator did not answer: doubled each time
RETRY_PAUSE_MAX_S = 2.0
# For all tries to say goodbye: a leader that is away for longer notices by itself. An idle worker
# has less to report, and is promised to be gone within 10 s.
GOODBYE_TIMEOUT_S = 8.0
GOODBYE_IDLE_TIMEOUT_S = 3.0
GOODBYE_TRY_MIN_S = 0.2
STOP_TIMEOUT_S = 8.0  # for executions to end when the worker stops
TURN_MAX_S = 15 * 60.0  # after its start: how long it waits for another worker of its launch to end
TURN_PAUSE_S = 5.0


def registration_of(
    me: str,
    group: str,
    slots: int,
    spark_application: str,
    launch: WorkerLaunch | None,
    *,
    memory_mb: int,
) -> Register:
    """What this process tells the leader about itself."""
    return Register(
        worker=me,
        group=group,
        slots=slots,
        control_slots=CONTROL_SLOTS,
        version=__version__,
        host=socket.gethostname(),
        pid=os.getpid(),
        spark_application=spark_application,
        resource=launch.resource if launch else None,
        launch=launch.number if launch else 0,
        memory_mb=memory_mb,
        plugins=installed_plugins(),
    )


class SyncLoop:
    """Runs the tasks that the leader assigns, and syncs with the leader until it is stopped."""

    def __init__(
        self,
        me: Register,
        client: LeaderClient,
        waits: LeaderClient,
        outbox: Callable[[Callable[[], None]], Outbox],
        runs: Mapping[TaskKind, Run],
        spark: Spark,
        clock: Clock,
        *,
        may_replace_earlier_process: bool = True,
        spoken: WireVersions | None = None,
        leaves_when_idle: Callable[[], bool] = lambda: False,
    ) -> None:
        """`me`: what this worker tells the leader about itself when it registers. `spoken`: None
        for the versions that this program speaks.

        `may_replace_earlier_process`: another process may have been this launch before, as with
        pods, so that it waits for the leader to forget that one. `leaves_when_idle`: asked while
        nothing runs; True ends the loop as `stop` does."""
        self._me, self._client, self._waits = me, client, waits
        self._runs, self._clock, self.job_log = runs, clock, JobLog(clock)
        self._news = threading.Event()
        self._stopping = threading.Event()
        self._outbox = outbox(self._news.set)
        self._active: dict[Claim, Execution] = {}
        self._ended: OrderedDict[Claim, None] = OrderedDict()  # as an ordered set
        self._repeated_deployments = RepeatedDeployments(me.worker)
        self._leaves_when_idle, self.left_when_idle = leaves_when_idle, False
        self._seen, self._sync_sent_at = LastAnswerSeen(), now(clock)
        self._syncs = 0
        self._registered = False
        self._version = SpokenVersion(spoken or SPOKEN)
        self._wants_to_leave_s: float | None = None  # since then, by the monotonic clock
        self._turn_until_s = clock.monotonic_s() + (
            TURN_MAX_S if may_replace_earlier_process else 0
        )
        self._jvm_monitor = JvmMonitor(
            spark, lambda: list(self._active.values()), on_death=self.stop
        )

    def stop(self) -> None:
        """Ask the loop to end. Safe to call from a signal handler."""
        self._stopping.set()
        self._news.set()
        self._client.hang_up()  # nobody needs its answer any more, and the leader may be paused
        self._waits.hang_up()

    def run(self) -> None:
        """Serve until `stop` or until the leader refuses this worker, then give everything back."""
        threading.Thread(target=self._wait_for_news, name="waiting", daemon=True).start()
        self._jvm_monitor.start()
        try:
            self._serve()
        finally:
            self.stop()
            self._leave()
        if self._jvm_monitor.jvm_died:
            raise SparkDied

    def _serve(self) -> None:
        pause_s = RETRY_PAUSE_S
        while not self._stopping.is_set():
            try:
                self._sync_once()
                pause_s = RETRY_PAUSE_S
            except LaunchTaken as error:
                self._wait_for_turn(error)
                continue
            except ProtocolRefused as error:
                self._version.agree(error)
                continue
            except Unavailable as error:
                log.warning("coordinator away", extra={"reason": str(error)})
                # A round over all addresses takes one pause: dead ones must not delay the next
                # heartbeat, for the leader measures how long this worker is silent.
                self._stopping.wait(pause_s / self._client.addresses)
                pause_s = min(pause_s * 2, RETRY_PAUSE_MAX_S)
                continue
            busy = bool(self._active)
            if not busy and not self._outbox.pending(1) and self._leaves_when_idle():
                self.left_when_idle = True
                return
            self._news.wait(BUSY_SYNC_INTERVAL_S if busy else IDLE_SYNC_INTERVAL_S)
            self._news.clear()

    def _wait_for_turn(self, error: LaunchTaken) -> None:
        """Another worker is registered for our launch: either it has just died, or this process is
        one too many. A worker that ran for long and lost its place is always one too many."""
        if self._clock.monotonic_s() >= self._turn_until_s:
            raise error
        log.warning("registers later", extra={"reason": str(error)})
        self._stopping.wait(TURN_PAUSE_S)

    def _sync_once(self) -> None:
        if not (self._registered and self._version.is_introduced):
            self._register()
        message, self._sync_sent_at = self._next_sync(), now(self._clock)
        seam("before sync")
        answer = self._client.sync(message)
        seam("sync answered")
        self._apply_answer(answer)

    def _register(self) -> None:
        me = self._me.model_copy(update={"protocol": self._version.now})
        answer: Registered = self._client.register(me)
        self._version.note_introduced()
        self._registered = True
        log.info("registered", extra={"worker": self._me.worker, "term": answer.term})

    def _next_sync(self) -> Sync:
        self._forget_ended()
        self._syncs += 1
        reports = self._outbox.pending(REPORTS_PER_SYNC_MAX)
        return Sync(
            protocol=self._version.now,
            worker=self._me.worker,
            sync=self._syncs,
            seen=self._seen,
            holds=tuple(
                Held(claim=claim, progress=self._progress(execution))
                for claim, execution in self._active.items()
            )
            # An unacknowledged end counts as held, also when it does not fit into this sync.
            + tuple(Held(claim=claim) for claim in self._outbox.unacknowledged_ends()),
            reports=tuple(reports),
            free=self._free(),
            lines=tuple(self.job_log.pending()),
        )

    def _progress(self, execution: Execution) -> Progress:
        progress = execution.progress
        live = execution.live_rows if progress.step == RUNNING else 0
        return progress.model_copy(
            update={
                "rows": progress.rows + live,
                "activity": execution.activity,
                "spark_application": self._me.spark_application,
            }
        )

    def _free(self) -> dict[Lane, int]:
        used = [execution.assignment.lane for execution in list(self._active.values())]
        slots = 0 if self._holds_back() else self._me.slots
        return {
            Lane.SLOT: max(0, slots - used.count(Lane.SLOT)),
            Lane.CONTROL: max(0, self._me.control_slots - used.count(Lane.CONTROL)),
        }

    def _holds_back(self) -> bool:
        """Whether no further task is taken, so that this worker becomes idle and can leave.

        Only for a while, time and again: a task that never ends must not keep the slots beside it
        empty for ever.
        """
        if not self._leaves_when_idle():
            self._wants_to_leave_s = None
            return False
        now_s = self._clock.monotonic_s()
        if self._wants_to_leave_s is None:
            self._wants_to_leave_s = now_s
        waited_s = (now_s - self._wants_to_leave_s) % (TAKES_ON_S + HOLDS_BACK_S)
        return waited_s >= TAKES_ON_S

    def _forget_ended(self) -> None:
        for claim in [c for c, execution in self._active.items() if execution.ended.is_set()]:
            del self._active[claim]
            self._ended[claim] = None
        while len(self._ended) > ENDS_REMEMBERED_MAX:
            self._ended.popitem(last=False)
        self.job_log.end([execution.id for execution in self._active.values()])

    def _apply_answer(self, answer: Answer) -> None:
        if answer.term < self._seen.term:
            log.warning("answer of an old leader", extra={"term": answer.term})
            return
        self._seen = LastAnswerSeen(term=answer.term, number=answer.number)
        self._outbox.acknowledge(answer.acknowledged)
        self.job_log.acknowledge(answer.lines)
        self._version.follow(answer.protocol)
        if not answer.registered:
            self._lost_everything()
            return
        for claim in answer.stop:
            if (execution := self._active.get(claim)) is not None:
                log.info("told to stop", extra={"execution": execution.id})
                execution.stop()
                self._jvm_monitor.check_soon()
        for claim in answer.savepoint:
            if (execution := self._active.get(claim)) is not None:
                execution.savepoint()
        for assignment in answer.assignments:
            self._start_task(assignment)

    def _start_task(self, assignment: Assignment) -> None:
        """Start a task unless it was started before: deploying is idempotent (D1, D2)."""
        claim = assignment.claim
        if claim in self._active:
            self._repeated_deployments.note(assignment, term=self._seen.term, active=True)
            return
        if claim in self._ended:
            self._repeated_deployments.note(assignment, term=self._seen.term, active=False)
            self._outbox.report_end_again(claim)
            return
        older = [e for e in self._active.values() if is_same_place(e.assignment, assignment)]
        for execution in older:
            execution.stop()
        run = self._run_of(assignment)
        died_of = self._jvm_monitor.died_of
        execution = Execution(
            assignment, self._outbox, run, after=older, since=self._sync_sent_at, died_of=died_of
        )
        self._active[claim] = execution
        self.job_log.begin(assignment)
        log.info("task taken", extra={"execution": execution.id, "kind": assignment.kind})
        try:
            execution.start()
        except Exception as error:  # noqa: BLE001  reported, whatever it is
            execution.fail(error)
        self._news.set()  # tell the leader soon that it is held

    def _run_of(self, assignment: Assignment) -> Run:
        """What this kind of task does here. Where it is unknown it does nothing, but gives back."""
        kind, lane = assignment.kind, assignment.lane
        if isinstance(kind, TaskKind) and isinstance(lane, Lane) and kind in self._runs:
            return self._runs[kind]
        reason = (
            f"worker {self._me.worker}, headrace {self._me.version}, does not know what to do for "
            f"a {kind} task in lane {lane}; upgrade it"
        )

        def give_back(execution: Execution) -> None:  # noqa: ARG001
            raise NotForThisWorker(reason, whole_kind=True)

        return give_back

    def _lost_everything(self) -> None:
        """Stop everything: the leader does not know this worker, and others have its tasks."""
        log.warning("no longer registered", extra={"worker": self._me.worker})
        for execution in self._active.values():
            execution.stop(silently=True)
        self._registered = False

    def _wait_for_news(self) -> None:
        """Long-poll the leader in a thread of its own; wake the loop at once when there is work."""
        while not self._stopping.is_set():
            try:
                free: Sequence[Lane] = [lane for lane, n in self._free().items() if n > 0]
                woken = self._registered and self._waits.wait(
                    self._me.worker, self._me.group, free, timeout_s=WAIT_TIMEOUT_S
                )
            except HeadraceError as error:  # it is for the syncs to act on a refusal
                log.debug("not waiting for news", extra={"reason": str(error)})
                woken = False
                self._stopping.wait(RETRY_PAUSE_S)
            if woken:
                self._news.set()
            elif not self._registered:
                self._stopping.wait(RETRY_PAUSE_S)

    def _leave(self) -> None:
        """Stop all executions without reporting their ends, then give them back by one goodbye."""
        idle = not self._active
        for execution in self._active.values():
            execution.stop(leaving=True)
        deadline_s = self._clock.monotonic_s() + STOP_TIMEOUT_S
        for execution in self._active.values():
            left_s = max(0.0, deadline_s - self._clock.monotonic_s())
            if not execution.ended.wait(0 if self._jvm_monitor.jvm_died else left_s):
                log.warning("execution did not stop", extra={"execution": execution.id})
        self._jvm_monitor.end()
        self._say_goodbye(idle=idle)
        self._outbox.close()

    def _say_goodbye(self, *, idle: bool) -> None:
        reports = tuple(self._outbox.pending(REPORTS_PER_SYNC_MAX))
        lines = tuple(self.job_log.pending())
        message = Goodbye(
            protocol=self._version.now,
            worker=self._me.worker,
            reports=reports,
            lines=lines,
            cause=self._jvm_monitor.death,
        )
        limit_s = GOODBYE_TIMEOUT_S
        if idle and not reports:
            limit_s = min(limit_s, GOODBYE_IDLE_TIMEOUT_S)
        deadline_s = self._clock.monotonic_s() + limit_s
        pause_s = RETRY_PAUSE_S
        while self._registered:
            try:
                left_s = deadline_s - self._clock.monotonic_s()
                self._client.goodbye(message, timeout_s=max(left_s, GOODBYE_TRY_MIN_S))
            except HeadraceError as error:
                log.warning("goodbye not said", extra={"reason": str(error)})
                over = self._clock.monotonic_s() + pause_s > deadline_s
                if over or isinstance(error, Refused):
                    return  # also in another version: the leader notices by itself
                threading.Event().wait(pause_s)
                pause_s *= 2
            else:
                taken = [Acknowledged(seq=report.seq, held=False) for report in reports]
                self._outbox.acknowledge(taken)
                return


class RepeatedDeployments:
    """Logs tasks that the leader deploys to this worker again (D6)."""

    def __init__(self, worker: str) -> None:
        self._worker = worker
        self._once = Once()

    def note(self, assignment: Assignment, *, term: int, active: bool) -> None:
        """Log it once for each execution and term, however often the leader repeats itself."""
        if not self._once.first((assignment.claim, term)):
            return
        at = location_of(assignment)
        log.warning(
            "task deployed again, it is active" if active else "task deployed again, it has ended",
            extra={
                "job": at and at.job,
                "pipeline": at and at.pipeline,
                "task_group": at and at.task_group,
                "execution": assignment.claim.execution,
                "worker": self._worker,
                "term": term,
            },
        )


def location_of(assignment: Assignment) -> Location | None:
    """The location at which a pipeline is deployed; None for every other kind of task."""
    job, pipeline = assignment.payload.get("job"), assignment.payload.get("pipeline")
    if assignment.kind is not TaskKind.PIPELINE or not isinstance(pipeline, dict):
        return None
    number = pipeline.get("number")
    if not isinstance(job, str) or not isinstance(number, int):
        return None
    return Location(job, number)


def is_same_place(one: Assignment, other: Assignment) -> bool:
    """Whether only one of the two may run at a time: attempts of one task, or tasks of one
    location, since a restored job has new tasks."""
    at = location_of(one)
    return one.claim.task == other.claim.task or (at is not None and at == location_of(other))


def memory_mb(conf: Mapping[str, str]) -> int:
    """The heap of the driver, written as Spark takes it (512m, 4g); 0 when it is left to Spark."""
    match = _MEMORY.fullmatch(conf.get(DRIVER_MEMORY, "").strip().lower())
    if match is None:
        return 0
    return int(int(match["number"]) * _UNITS_MB[match["unit"] or "m"])
