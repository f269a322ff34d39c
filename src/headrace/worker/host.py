"""What is active on this worker, and the conversation with the leader about it.

One sync is under way at a time. It says everything: what is held, what was finished, how many
slots are free; the answer says what to start, what to stop and what is acknowledged. Losing a
sync or its answer costs time, nothing else. The same host rides out a coordinator that is gone
for minutes: its executions go on, and wait where they need an answer.
"""

from __future__ import annotations

import logging
import threading
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence

from headrace.clock import Clock
from headrace.errors import HeadraceError, LaunchTaken, Refused, SparkDied, Unavailable
from headrace.model.deadline import now
from headrace.model.task import Claim, Lane, TaskKind
from headrace.protocol.messages import (
    REPORTS_PER_SYNC_MAX,
    Acknowledged,
    Answer,
    Assignment,
    Goodbye,
    Held,
    Progress,
    Registered,
    Seen,
    Sync,
)
from headrace.seams import seam
from headrace.worker.client import LeaderClient
from headrace.worker.execution import RUNNING, Execution, Run
from headrace.worker.identity import Identity
from headrace.worker.joblog import JobLog
from headrace.worker.outbox import ENDS_REMEMBERED_MAX, Outbox
from headrace.worker.redeploys import Redeploys, is_same_place
from headrace.worker.tending import Spark, Tending

log = logging.getLogger(__name__)

BUSY_SYNC_INTERVAL_S = 0.5  # while something runs: progress is shown live
IDLE_SYNC_INTERVAL_S = 3.0  # a heartbeat; work wakes the host long before
WAIT_TIMEOUT_S = 10.0  # of one parked wait
RETRY_PAUSE_S = 0.2  # after a coordinator did not answer, growing to the next
RETRY_PAUSE_MAX_S = 2.0
# Of all tries to say goodbye: a leader that is gone longer finds it out itself. An idle worker
# has less to say, and is to be gone within 10 s.
GOODBYE_TIMEOUT_S = 8.0
GOODBYE_IDLE_TIMEOUT_S = 3.0
GOODBYE_TRY_MIN_S = 0.2
STOP_TIMEOUT_S = 8.0  # for executions to end when the worker stops
TURN_MAX_S = 15 * 60.0  # so long after its start one waits for another of its launch to be gone
TURN_PAUSE_S = 5.0


class Host:
    def __init__(
        self,
        identity: Identity,
        client: LeaderClient,
        waits: LeaderClient,
        outbox: Callable[[Callable[[], None]], Outbox],
        runs: Mapping[TaskKind, Run],
        spark: Spark,
        clock: Clock,
        *,
        comes_anew: bool = True,
    ) -> None:
        """`comes_anew`: another process may have been the same launch before, as with pods."""
        self._me, self._client, self._waits = identity, client, waits
        self._runs, self._clock, self.lines = runs, clock, JobLog(clock)
        self._news = threading.Event()
        self._stopping = threading.Event()
        self._outbox = outbox(self._news.set)
        self._active: dict[Claim, Execution] = {}
        self._ended: OrderedDict[Claim, None] = OrderedDict()  # as an ordered set
        self._redeploys = Redeploys(identity.worker)
        self._seen, self._asked = Seen(), now(clock)
        self._syncs = 0
        self._registered = False
        self._turn_until_s = clock.monotonic_s() + (TURN_MAX_S if comes_anew else 0)
        self._tending = Tending(spark, lambda: list(self._active.values()), died=self.stop)

    def stop(self) -> None:
        """Ask the host to end. Safe to call from a signal handler."""
        self._stopping.set()
        self._news.set()
        self._client.hang_up()  # what it waits for is not needed any more, whoever is paused
        self._waits.hang_up()

    def run(self) -> None:
        """Serve until `stop`, then give everything back, also when the leader refuses us."""
        threading.Thread(target=self._wait_for_news, name="waiting", daemon=True).start()
        self._tending.start()
        try:
            self._serve()
        finally:
            self.stop()
            self._leave()
        if self._tending.jvm_died:
            raise SparkDied

    def _serve(self) -> None:
        pause_s = RETRY_PAUSE_S
        while not self._stopping.is_set():
            try:
                self._converse()
                pause_s = RETRY_PAUSE_S
            except LaunchTaken as error:
                self._wait_for_turn(error)
                continue
            except Unavailable as error:
                log.warning("coordinator away", extra={"reason": str(error)})
                # A round over all addresses takes one pause: dead ones must not keep the leader,
                # whose clock of our silence is running, waiting for long.
                self._stopping.wait(pause_s / self._client.addresses)
                pause_s = min(pause_s * 2, RETRY_PAUSE_MAX_S)
                continue
            busy = bool(self._active)
            self._news.wait(BUSY_SYNC_INTERVAL_S if busy else IDLE_SYNC_INTERVAL_S)
            self._news.clear()

    def _wait_for_turn(self, error: LaunchTaken) -> None:
        """Another one is registered for our launch: it died just now, or it is we who are one too
        many. One that has worked for long, and lost its place, always is."""
        if self._clock.monotonic_s() >= self._turn_until_s:
            raise error
        log.warning("registers later", extra={"reason": str(error)})
        self._stopping.wait(TURN_PAUSE_S)

    def _converse(self) -> None:
        if not self._registered:
            self._register()
        said, self._asked = self._say(), now(self._clock)
        seam("before sync")
        answer = self._client.sync(said)
        seam("sync answered")
        self._hear(answer)

    def _register(self) -> None:
        answer: Registered = self._client.register(self._me.introduction())
        self._registered = True
        log.info("registered", extra={"worker": self._me.worker, "term": answer.term})

    def _say(self) -> Sync:
        self._forget_ended()
        self._syncs += 1
        reports = self._outbox.pending(REPORTS_PER_SYNC_MAX)
        return Sync(
            worker=self._me.worker,
            sync=self._syncs,
            seen=self._seen,
            holds=tuple(
                Held(claim=claim, progress=self._progress(execution))
                for claim, execution in self._active.items()
            )
            # An end that is still to be said is held, also when it does not fit into this sync.
            + tuple(Held(claim=claim) for claim in self._outbox.unsaid_ends()),
            reports=tuple(reports),
            free=self._free(),
            lines=tuple(self.lines.pending()),
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
        return {
            Lane.SLOT: max(0, self._me.slots - used.count(Lane.SLOT)),
            Lane.CONTROL: max(0, self._me.control_slots - used.count(Lane.CONTROL)),
        }

    def _forget_ended(self) -> None:
        for claim in [c for c, execution in self._active.items() if execution.ended.is_set()]:
            del self._active[claim]
            self._ended[claim] = None
        while len(self._ended) > ENDS_REMEMBERED_MAX:
            self._ended.popitem(last=False)
        self.lines.end([execution.id for execution in self._active.values()])

    def _hear(self, answer: Answer) -> None:
        if answer.term < self._seen.term:
            log.warning("answer of an old leader", extra={"term": answer.term})
            return
        self._seen = Seen(term=answer.term, number=answer.number)
        self._outbox.acknowledge(answer.acknowledged)
        self.lines.acknowledge(answer.lines)
        if not answer.registered:
            self._lost_everything()
            return
        for claim in answer.stop:
            if (execution := self._active.get(claim)) is not None:
                log.info("told to stop", extra={"execution": execution.id})
                execution.stop()
                self._tending.look_soon()
        for claim in answer.savepoint:
            if (execution := self._active.get(claim)) is not None:
                execution.savepoint()
        for assignment in answer.assignments:
            self._take(assignment)

    def _take(self, assignment: Assignment) -> None:
        """Start it, unless it was started before: deploying twice is deploying once (D1, D2)."""
        claim = assignment.claim
        if claim in self._active:
            self._redeploys.note(assignment, term=self._seen.term, active=True)
            return
        if claim in self._ended:
            self._redeploys.note(assignment, term=self._seen.term, active=False)
            self._outbox.say_end_again(claim)
            return
        older = [e for e in self._active.values() if is_same_place(e.assignment, assignment)]
        for execution in older:
            execution.stop()
        run = self._runs[assignment.kind]
        died_of = self._tending.died_of
        execution = Execution(
            assignment, self._outbox, run, after=older, since=self._asked, died_of=died_of
        )
        self._active[claim] = execution
        self.lines.begin(assignment)
        log.info("task taken", extra={"execution": execution.id, "kind": assignment.kind})
        try:
            execution.start()
        except Exception as error:  # noqa: BLE001  reported, whatever it is
            execution.fail(error)
        self._news.set()  # say soon that it is held

    def _lost_everything(self) -> None:
        """The leader does not know this worker: whatever it ran is somebody else's by now."""
        log.warning("no longer registered", extra={"worker": self._me.worker})
        for execution in self._active.values():
            execution.stop(silently=True)
        self._registered = False

    def _wait_for_news(self) -> None:
        """Parked at the leader most of the time; wakes the host at once when there is work."""
        while not self._stopping.is_set():
            try:
                free: Sequence[Lane] = [lane for lane, n in self._free().items() if n > 0]
                rung = self._registered and self._waits.wait(
                    self._me.worker, self._me.group, free, timeout_s=WAIT_TIMEOUT_S
                )
            except HeadraceError as error:  # a refusal is for the conversation to act on
                log.debug("not waiting for news", extra={"reason": str(error)})
                rung = False
                self._stopping.wait(RETRY_PAUSE_S)
            if rung:
                self._news.set()
            elif not self._registered:
                self._stopping.wait(RETRY_PAUSE_S)

    def _leave(self) -> None:
        """Stop what runs, without a word about it, then say goodbye for all of it."""
        idle = not self._active
        for execution in self._active.values():
            execution.stop(leaving=True)
        deadline_s = self._clock.monotonic_s() + STOP_TIMEOUT_S
        for execution in self._active.values():
            left_s = max(0.0, deadline_s - self._clock.monotonic_s())
            if not execution.ended.wait(0 if self._tending.jvm_died else left_s):
                log.warning("execution did not stop", extra={"execution": execution.id})
        self._tending.end()
        self._say_goodbye(idle=idle)
        self._outbox.close()

    def _say_goodbye(self, *, idle: bool) -> None:
        reports = tuple(self._outbox.pending(REPORTS_PER_SYNC_MAX))
        lines = tuple(self.lines.pending())
        death = self._tending.death
        said = Goodbye(worker=self._me.worker, reports=reports, lines=lines, cause=death)
        limit_s = GOODBYE_TIMEOUT_S
        if idle and not reports:
            limit_s = min(limit_s, GOODBYE_IDLE_TIMEOUT_S)
        deadline_s = self._clock.monotonic_s() + limit_s
        pause_s = RETRY_PAUSE_S
        while self._registered:
            try:
                left_s = deadline_s - self._clock.monotonic_s()
                self._client.goodbye(said, timeout_s=max(left_s, GOODBYE_TRY_MIN_S))
            except HeadraceError as error:
                log.warning("goodbye not said", extra={"reason": str(error)})
                over = self._clock.monotonic_s() + pause_s > deadline_s
                if over or isinstance(error, Refused):
                    return
                threading.Event().wait(pause_s)
                pause_s *= 2
            else:
                taken = [Acknowledged(seq=report.seq, held=False) for report in reports]
                self._outbox.acknowledge(taken)
                return
