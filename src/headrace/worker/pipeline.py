"""One pipeline, epoch by epoch: plan, run, stage, prepare, commit, complete.

After a crash the new owner first finishes what is prepared from its handles, in order, then runs
what is planned on the same slices. N + 1 is committed nowhere before N is committed everywhere.
At most `OPEN_MAX` epochs are open: one is committed while the next is staged, or one is staged
while the next is already granted.

`CommitThread` runs the second half of an epoch beside the first half of the next one. While Spark
stages epoch N + 1, this thread waits until N is recorded as prepared, then commits and completes
it. An execution has one such thread for all its epochs, which keeps them in order.

`EpochSizer` decides how many rows make an epoch, and when the next one is due. Nobody knows
beforehand how fast a job is, so the first epoch is small, and the epochs that ran tell how large
the next should be to take about `checkpoint.interval`. Each epoch has a fixed cost, and an interval
shorter than that can't be kept: then at least half of the time goes into rows, or a job would do
nothing but begin and end epochs. Without an interval, one epoch of a batch job reads everything
there is. A streaming job has an epoch every interval, also when no rows came.

Nothing here calls Spark: sources, transforms and sinks do, and the simulation passes in its own.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Collection, Sequence
from contextvars import copy_context
from dataclasses import dataclass, replace
from functools import partial
from statistics import fmean, linear_regression
from typing import TYPE_CHECKING

from headrace.clock import Clock
from headrace.connectors.connector import Sink, Source
from headrace.errors import ClaimLost
from headrace.model.jobs.epoch import OPEN_MAX, EpochStatus, Moment, now
from headrace.model.jobs.spec import EnvSpec, PipelineSpec
from headrace.protocol.messages import EpochCompleted, Json, PipelinePayload, SettleResult
from headrace.seams import seam
from headrace.transforms.registry import Transform
from headrace.worker.dataflow import (
    Dataflow,
    EpochPlanner,
    PlannedEpoch,
    RowCarrier,
    RowCounter,
)
from headrace.worker.execution import RUNNING, Execution
from headrace.worker.outbox import STOP_CHECK_INTERVAL_S, Posted
from headrace.worker.sinks import SinkGroup, rows_of
from headrace.worker.sources import SourceGroup

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

FIRST_ROWS = 100_000  # of each source, in the first epoch
ROWS_MIN = 1000
CHANGE_MAX = 4.0  # from one epoch to the next: a lucky one must not make the next endless
REMEMBERED_EPOCHS = 6  # from which the fixed cost and the cost of a row are estimated
ROWS_APART_MIN = 1.2  # ratio of the largest to the smallest, for an estimate
ROW_S_MIN = 1e-9  # lower bound for the cost of a row
FIXED_SHARE_MAX = 0.5  # of an epoch's time, for its fixed cost
STREAMING_INTERVAL_MS = 10_000  # when none is given
REST_MAX_S = 1.0  # between two checks of the commit thread, while nothing is due


@dataclass(frozen=True, slots=True)
class Plugins:
    """The plugins of a pipeline, in the order of its spec."""

    sources: Sequence[Source]
    transforms: Sequence[Transform]
    sinks: Sequence[Sink]
    counting: RowCounter
    carrier: RowCarrier


class Pipeline:
    """An execution of a pipeline: runs its epochs, or settles those that were left open."""

    def __init__(
        self,
        execution: Execution,
        payload: PipelinePayload,
        plugins: Plugins,
        session: SparkSession,
        clock: Clock,
    ) -> None:
        self._execution, self._restore, self._clock = execution, payload.restore, clock
        self._since = execution.since or now(clock)  # for epochs that were left open
        self._planner = EpochPlanner(plugins.sources, payload.restore, session, clock)
        self._sources = SourceGroup(plugins.sources, session, execution)
        self._sizer = EpochSizer(payload.env, clock)
        self._dataflow = Dataflow(
            payload.pipeline,
            plugins.sources,
            plugins.transforms,
            session,
            plugins.counting,
            plugins.carrier,
        )
        self._sinks = SinkGroup(execution, payload, plugins.sinks, session, self._dataflow.input_of)
        self._commit_thread = CommitThread(
            f"{execution.id}, tail", waiting=self._touch_while_committing
        )
        self._planning = threading.Lock()
        self._granting: deque[tuple[PlannedEpoch, Posted]] = deque()  # proposed, not begun
        self._marks_checked = False  # until no target is ahead of the store, nothing is planned
        self._over = False  # nothing more is planned
        self._bounded = all(source.bounded for source in plugins.sources)
        # Whether something was staged at every sink; a restore may have added a sink.
        self._written = all(sink.name in payload.restore.written for sink in plugins.sinks)
        self._open = len(payload.restore.open)
        self._staging: set[int] = set()  # begun by us, not known to be completed
        self._inherited = {left.epoch for left in payload.restore.open}
        # Rows written to the sink that has most.
        self._rows = max(payload.restore.written.values(), default=0)
        self._foresees_rows = writes_what_it_reads(payload.pipeline, plugins.transforms)

    def run(self) -> None:
        if self._restore.savepoint:
            self._execution.savepoint()
        try:
            self._run()
        except Exception as error:
            self._commit_thread.end()
            if self._execution.superseded or isinstance(error, ClaimLost):
                for epoch in sorted(self._staging):
                    self._sinks.sweep_after_ourselves(epoch)
            raise
        finally:
            self._commit_thread.end()
            self._close()

    def _close(self) -> None:
        self._sources.close()
        self._sinks.close()

    def _run(self) -> None:
        # The owner of the last completed epoch may have died before it told its sources.
        self._sources.tell_restored(self._restore.positions)
        if self._restore.epoch > 0:
            self._sinks.sweep(self._restore.epoch, {})  # its owner may have died before it swept
        left_open = [self._planner.resume(left.epoch, left.plan) for left in self._restore.open]
        planned = self._finish_prepared(left_open)
        if planned or self._planner.epoch < 0 or not self._planner.over:
            self._sinks.check_marks()  # else all is committed, and no target is needed
        self._marks_checked = True
        for work in planned:
            self._begin(work)
        if self._planner.epoch < 0:
            self._open += 1
            self._begin(self._planner.opening())
        if self._planner.epoch == 0:
            self._commit_thread.join()  # save modes are carried out before any epoch is planned
        while (work := self._next()) is not None:
            self._stage(work)
        self._execution.set_progress("committing", epoch=self._planner.epoch, rows=self._rows)
        self._commit_thread.join()
        self._execution.set_progress("completed", epoch=self._planner.epoch, rows=self._rows)
        self._sinks.sweep_again()
        self._sources.tell_again()
        if self._planner.over:
            self._sinks.finish()
        else:
            self._execution.saved = True

    def settle(self) -> Json:
        """Commit the epochs that an ended execution left prepared; abort those it left planned."""
        try:
            return self._settle()
        finally:
            self._close()

    def _settle(self) -> Json:
        self._sources.tell_restored(self._restore.positions)
        self._observe_targets()
        completed: list[EpochCompleted] = []
        aborted: list[int] = []
        for left in self._restore.open:
            work = self._planner.resume(left.epoch, left.plan)
            if left.status is EpochStatus.PREPARED:
                done = self._sinks.commit(work, left.handles or {}, self._since)
                self._sinks.sweep(left.epoch, left.handles or {})
                self._sources.tell_committed(work.plan, left.handles or {})
                completed.append(done)
            else:
                if not aborted:
                    self._sinks.check_marks(settling=True)
                self._sinks.abort(left.epoch, self._since)
                aborted.append(left.epoch)
        self._sinks.sweep_again()
        settled = SettleResult(completed=tuple(completed), aborted=tuple(aborted))
        return settled.model_dump(mode="json")

    def _finish_prepared(self, left_open: Sequence[PlannedEpoch]) -> Sequence[PlannedEpoch]:
        """Commit the prepared epochs, also where a target is ahead of the store: they were only
        ever committed from these handles. Returns the other epochs."""
        planned: list[PlannedEpoch] = []
        self._observe_targets()
        for work, left in zip(left_open, self._restore.open, strict=True):
            if left.status is EpochStatus.PREPARED:
                self._commit_thread.begin(
                    partial(self._finish, work, left.handles or {}, self._since)
                )
            else:
                planned.append(work)
        self._commit_thread.join()
        return planned

    def _observe_targets(self) -> None:
        if any(left.status is EpochStatus.PREPARED for left in self._restore.open):
            self._sinks.observe_targets()

    def _begin(self, work: PlannedEpoch) -> None:
        """Have an epoch recorded as planned, unless it is, and stage it."""
        proposed = self._execution.propose(work.epoch, work.plan)
        self._stage(self._granted(work, proposed))

    def _next(self) -> PlannedEpoch | None:
        """The next granted epoch; None when everything is read, or a savepoint ends the job."""
        self._execution.check()
        self._plan_ahead()
        while not self._granting:
            if self._is_over():
                return None
            self._execution.set_progress("waiting", epoch=self._planner.epoch, rows=self._rows)
            self._execution.rest(min(self._sizer.due_in_s, REST_MAX_S))
            self._commit_thread.check()
            self._plan_ahead()
        return self._granted(*self._granting.popleft())

    def _is_over(self) -> bool:
        """Whether no epoch is proposed, and none will be. From then on the commit thread plans none
        either."""
        with self._planning:
            wanted = not (self._planner.over or self._execution.saving)
            self._over = not self._granting and not wanted
            return self._over

    def _touch_while_committing(self) -> None:
        """A commit in progress is no stall: `checkpoint.timeout` limits how long it may take."""
        if self._execution.progress.committing is not None:
            self._execution.touch()

    def _plan_ahead(self) -> None:
        """Have the next epoch planned and granted while this one runs, if it is due."""
        with self._planning:
            open_max = OPEN_MAX if self._sizer.may_overlap else 1
            if (
                self._over
                or not self._marks_checked
                or self._open >= open_max
                or self._planner.over
            ):
                return
            if self._execution.saving or self._execution.stopping or self._sizer.due_in_s > 0:
                return
            work = self._planner.propose(rows_max=self._sizer.rows_max)
            self._open += 1
            self._sizer.began()
            self._granting.append((work, self._execution.propose(work.epoch, work.plan)))

    def _granted(self, work: PlannedEpoch, proposed: Posted) -> PlannedEpoch:
        plan = self._execution.granted_plan(proposed)
        if plan != work.plan:  # another execution planned it since this one was assigned
            claim = self._execution.claim
            raise ClaimLost(claim.task, claim.attempt)
        return work

    def _stage(self, work: PlannedEpoch) -> None:
        began_s = self._clock.monotonic_s()
        foreseen = work.rows if self._foresees_rows else None
        expected = None if foreseen is None else self._rows + foreseen
        self._execution.set_progress(RUNNING, epoch=work.epoch, rows=self._rows, expected=expected)
        seam("epoch running")
        if work.epoch > 0:
            self._plan_ahead()
        read: dict[str, int] = {}
        if work.epoch == 0:
            handles = self._sinks.survey(self._dataflow.empty())
        elif work.plan.slices or (self._bounded and not self._written):  # rows, or tables to make
            self._staging.add(work.epoch)
            with self._dataflow.frames_of(work.plan) as frames:
                handles = self._sinks.stage(work.epoch, frames)
                read = self._dataflow.rows_read()
                handles |= self._sources.learned(work.plan)
            self._written = True
        else:
            handles = {}
        self._rows += max((rows_of(handles, name) for name in handles), default=0)
        took_s = self._clock.monotonic_s() - began_s
        self._sizer.took(took_s, work.rows_of_largest)
        self._execution.wait(max(0.0, work.lasts_s - took_s))
        self._execution.set_progress(
            "preparing", epoch=work.epoch, rows=self._rows, expected=expected
        )
        since = now(self._clock)  # before the report is sent: never later than its answer
        posted = self._execution.prepare(work.epoch, handles, work.ready, read)
        done = replace(work, read=read)
        self._commit_thread.begin(partial(self._finish, done, handles, since, posted))

    def _finish(
        self, work: PlannedEpoch, handles: Json, since: Moment, posted: Posted | None = None
    ) -> None:
        """Commit and complete an epoch, in the commit thread. `posted`: the report that it is
        prepared, to be acknowledged first; None when it is recorded already."""
        if posted is not None:
            self._execution.wait_until_prepared(posted)
        self._execution.set_committing(work.epoch)
        self._execution.complete(self._sinks.commit(work, handles, since))
        self._execution.set_committing(None)
        self._staging.discard(work.epoch)
        with self._planning:
            self._open -= 1
        self._sizer.completed()
        try:
            self._plan_ahead()
        finally:
            if handles:
                alone = work.epoch not in self._inherited
                self._sinks.sweep(work.epoch, handles, alone=alone)
            self._sources.tell_committed(work.plan, handles)


def writes_what_it_reads(pipeline: PipelineSpec, transforms: Sequence[Transform]) -> bool:
    """Whether every sink gets exactly the rows that are read, so that their number is known before
    they are written. With several inputs, a sink may get a row twice, or only some of the rows."""
    following = (*pipeline.transforms, *pipeline.sinks)
    straight = len(pipeline.sources) == 1 and all(len(each.inputs) == 1 for each in following)
    return straight and not any(transform.has_conditions for transform in transforms)


class CommitThread:
    """A thread that does one piece of work at a time. Each execution has one, and ends it."""

    def __init__(self, name: str, *, waiting: Callable[[], None]) -> None:
        """`waiting` is called repeatedly in the thread that waits for the work to be done."""
        self._name, self._waiting = name, waiting
        self._thread: threading.Thread | None = None
        self._has_work, self._idle = threading.Event(), threading.Event()
        self._idle.set()
        self._over = False
        self._work: Callable[[], None] | None = None
        self._error: BaseException | None = None

    def begin(self, work: Callable[[], None]) -> None:
        """Start a piece of work once the one before is done. Raises what that one raised."""
        self.join()
        self._work = work
        self._idle.clear()
        if self._thread is None:
            # One for the whole execution: each thread that asks the JVM has a twin there. It runs
            # in our context, so that what it logs belongs to the same execution.
            self._thread = threading.Thread(
                target=copy_context().run, args=(self._main,), name=self._name, daemon=True
            )
            self._thread.start()
        self._has_work.set()

    def join(self) -> None:
        """Wait until the current work is done. This needs no timeout: whoever stops the execution
        stops the work, and every wait in it has a limit of its own."""
        while not self._idle.wait(STOP_CHECK_INTERVAL_S):
            self._waiting()
        self.check()

    def check(self) -> None:
        """Raise what the last piece of work raised, if it has ended."""
        if self._idle.is_set() and self._error is not None:
            error, self._error = self._error, None
            raise error

    def end(self) -> None:
        """Wait for the current work, then end the thread: nothing of an execution may run after its
        end, when its task may belong to another."""
        while not self._idle.wait(STOP_CHECK_INTERVAL_S):
            pass
        self._over = True
        self._has_work.set()

    def _main(self) -> None:
        while True:
            self._has_work.wait()
            self._has_work.clear()
            if self._over:
                return
            assert self._work is not None
            try:
                self._work()
            except BaseException as error:  # noqa: BLE001  raised again in the thread that joins
                self._error = error
            self._idle.set()


class EpochSizer:
    """Decides how many rows the next epoch reads of each source, and when it is due."""

    def __init__(self, env: EnvSpec, clock: Clock) -> None:
        self._clock = clock
        self._streaming = env.job_mode == "STREAMING"
        default = STREAMING_INTERVAL_MS if self._streaming else None
        interval_ms = env.checkpoint_interval_ms or default
        self._pause_s = (env.checkpoint_min_pause_ms or 0) / 1000
        # A batch job would do nothing in a pause between two epochs, so they take longer instead.
        self._interval_s = None if interval_ms is None else max(interval_ms / 1000, self._pause_s)
        self._rows = float(FIRST_ROWS)
        self._seen: deque[tuple[float, float]] = deque(maxlen=REMEMBERED_EPOCHS)  # rows, seconds
        self._fixed_s = 0.0  # the cost of an epoch without rows
        self._warm = False
        self._due_s = clock.monotonic_s()

    @property
    def rows_max(self) -> int | None:
        """Rows to plan of each source; None for all there are."""
        return None if self._interval_s is None else round(self._rows)

    @property
    def may_overlap(self) -> bool:
        """Whether an epoch may begin while the one before it is being committed."""
        return not (self._streaming and self._pause_s)

    @property
    def due_in_s(self) -> float:
        """How long to wait before the next epoch is planned."""
        return max(0.0, self._due_s - self._clock.monotonic_s())

    def began(self) -> None:
        """An epoch was planned: a streaming job plans the next one an interval later."""
        if self._streaming and self._interval_s is not None:
            self._due_s = self._clock.monotonic_s() + self._interval_s

    def completed(self) -> None:
        """An epoch is complete: the next one must not begin before `min-pause` is over."""
        if self._streaming:
            self._due_s = max(self._due_s, self._clock.monotonic_s() + self._pause_s)

    def took(self, seconds: float, rows: int | None) -> None:
        """Learn from an epoch: how long reading and staging it took, and the rows of its largest
        source, None when nobody counted them."""
        if self._interval_s is None or rows == 0:
            return
        self._seen.append((self._rows if rows is None else float(rows), max(seconds, 0.001)))
        self._fixed_s, row_s = _cost(self._seen, self._fixed_s)
        target_s = max(self._interval_s, self._fixed_s / FIXED_SHARE_MAX)
        fitting = (target_s - self._fixed_s) / row_s
        self._rows = max(
            ROWS_MIN, min(self._rows * CHANGE_MAX, max(self._rows / CHANGE_MAX, fitting))
        )
        if not self._warm:  # the first epoch pays for everything that happens once
            self._warm = True
            self._seen.clear()


def _cost(seen: Collection[tuple[float, float]], fixed_s: float) -> tuple[float, float]:
    """The fixed cost of an epoch and the cost of a row, in seconds, by linear regression. Epochs
    that are all of one size tell nothing new about the fixed cost."""
    rows, seconds = [r for r, _ in seen], [s for _, s in seen]
    mean_rows, mean_s = fmean(rows), fmean(seconds)
    if max(rows) >= ROWS_APART_MIN * min(rows):
        slope = max(linear_regression(rows, seconds).slope, ROW_S_MIN)
        fixed_s = max(0.0, mean_s - slope * mean_rows)
    fixed_s = min(fixed_s, *seconds)
    return fixed_s, max((mean_s - fixed_s) / mean_rows, ROW_S_MIN)
