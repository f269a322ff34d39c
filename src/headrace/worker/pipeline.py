"""One pipeline, epoch by epoch: plan, run, stage, prepare, commit, complete.

After a crash the new owner first finishes what is prepared from its handles, in order, then runs
what is planned on the same slices. N + 1 is committed nowhere before N is committed everywhere.
At most `OPEN_MAX` epochs are open: one is committed while the next is staged, or one is staged
while the next is granted already.

Nothing here asks Spark for anything: sources, transforms and sinks do, and the simulation gives
this code others of its own.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

from headrace.clock import Clock
from headrace.connectors.connector import Sink, Source
from headrace.errors import ClaimLost
from headrace.model.deadline import Moment, now
from headrace.model.epoch import OPEN_MAX, EpochStatus
from headrace.model.jobspec import PipelineSpec
from headrace.protocol.messages import EpochCompleted, Json
from headrace.protocol.payloads import PipelinePayload, Settled
from headrace.seams import seam
from headrace.transforms.transform import Transform
from headrace.worker.execution import RUNNING, Execution
from headrace.worker.frames import Counting, Frames
from headrace.worker.outbox import Posted
from headrace.worker.pace import Pace
from headrace.worker.planning import Planner, Work
from headrace.worker.sinks import Sinks, rows_of
from headrace.worker.tail import Tail

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

REST_MAX_S = 1.0  # between two looks at the tail, while nothing is due


@dataclass(frozen=True, slots=True)
class Plugins:
    """What a pipeline is made of, in the order of its spec."""

    sources: Sequence[Source]
    transforms: Sequence[Transform]
    sinks: Sequence[Sink]
    counting: Counting


def writes_what_it_reads(pipeline: PipelineSpec, transforms: Sequence[Transform]) -> bool:
    """Whether every sink is given just the rows that are read: then their number is known before
    they are written. Several inputs may bring the same row twice, or a part of all."""
    following = (*pipeline.transforms, *pipeline.sinks)
    straight = len(pipeline.sources) == 1 and all(len(each.inputs) == 1 for each in following)
    return straight and not any(transform.has_conditions for transform in transforms)


class Pipeline:
    def __init__(
        self,
        execution: Execution,
        payload: PipelinePayload,
        plugins: Plugins,
        session: SparkSession,
        clock: Clock,
    ) -> None:
        self._execution, self._restore, self._clock = execution, payload.restore, clock
        self._since = execution.since or now(clock)  # of what an execution before it left open
        self._planner = Planner(plugins.sources, payload.restore, clock)
        self._pace = Pace(payload.env, clock)
        self._frames = Frames(
            payload.pipeline, plugins.sources, plugins.transforms, session, plugins.counting
        )
        self._sinks = Sinks(execution, payload, plugins.sinks, session)
        self._tail = Tail(f"{execution.id}, tail", waiting=self._wait_for_tail)
        self._planning = threading.Lock()
        self._granting: deque[tuple[Work, Posted]] = deque()  # proposed, and not begun
        self._checked = False  # no target is ahead of the store; before that nothing is planned
        self._over = False  # nothing more is planned
        self._bounded = all(source.bounded for source in plugins.sources)
        # Something was staged at every sink; a restore may have added one.
        self._written = all(sink.name in payload.restore.written for sink in plugins.sinks)
        self._open = len(payload.restore.open)
        self._staging: set[int] = set()  # begun by us, and not known to be completed
        self._inherited = {left.epoch for left in payload.restore.open}
        self._rows = max(payload.restore.written.values(), default=0)  # at the fullest sink
        self._foresees_rows = writes_what_it_reads(payload.pipeline, plugins.transforms)

    def run(self) -> None:
        if self._restore.savepoint:
            self._execution.savepoint()
        try:
            self._run()
        except Exception as error:
            self._tail.end()
            if self._execution.superseded or isinstance(error, ClaimLost):
                for epoch in sorted(self._staging):
                    self._sinks.sweep_after_ourselves(epoch)
            raise
        finally:
            self._tail.end()

    def _run(self) -> None:
        if self._restore.epoch > 0:
            self._sinks.sweep(self._restore.epoch, {})  # its owner may have died before it could
        left_open = [self._planner.resume(left.epoch, left.plan) for left in self._restore.open]
        planned = self._finish_prepared(left_open)
        if planned or self._planner.epoch < 0 or not self._planner.over:
            self._sinks.check_marks()  # else all is committed, and no target is needed any more
        self._checked = True
        for work in planned:
            self._begin(work)
        if self._planner.epoch < 0:
            self._open += 1
            self._begin(self._planner.opening())
        if self._planner.epoch == 0:
            self._tail.join()  # no epoch is planned before targets are as save modes ask
        while (work := self._next()) is not None:
            self._stage(work)
        self._execution.says("committing", epoch=self._planner.epoch, rows=self._rows)
        self._tail.join()
        self._execution.says("completed", epoch=self._planner.epoch, rows=self._rows)
        self._sinks.sweep_again()
        if self._planner.over:
            self._sinks.close()
        else:
            self._execution.saved = True

    def settle(self) -> Json:
        """Finish what an ended execution left prepared; abort what it left planned."""
        self._see_targets()
        completed: list[EpochCompleted] = []
        aborted: list[int] = []
        for left in self._restore.open:
            work = self._planner.resume(left.epoch, left.plan)
            if left.status is EpochStatus.PREPARED:
                done = self._sinks.commit(work, left.handles or {}, self._since)
                self._sinks.sweep(left.epoch, left.handles or {})
                completed.append(done)
            else:
                if not aborted:
                    self._sinks.check_marks(settling=True)
                self._sinks.abort(left.epoch, self._since)
                aborted.append(left.epoch)
        self._sinks.sweep_again()
        settled = Settled(completed=tuple(completed), aborted=tuple(aborted))
        return settled.model_dump(mode="json")

    def _finish_prepared(self, left_open: Sequence[Work]) -> Sequence[Work]:
        """Commit what is prepared, also where a target is ahead of the store: it was only ever
        committed from these handles. Returns the others."""
        planned: list[Work] = []
        self._see_targets()
        for work, left in zip(left_open, self._restore.open, strict=True):
            if left.status is EpochStatus.PREPARED:
                self._tail.begin(partial(self._finish, work, left.handles or {}, self._since))
            else:
                planned.append(work)
        self._tail.join()
        return planned

    def _see_targets(self) -> None:
        if any(left.status is EpochStatus.PREPARED for left in self._restore.open):
            self._sinks.see()

    def _begin(self, work: Work) -> None:
        """Have it planned, unless it is, and stage it."""
        proposed = self._execution.propose(work.epoch, work.plan)
        self._stage(self._granted(work, proposed))

    def _next(self) -> Work | None:
        """The next epoch, granted. None: there is nothing more to do, or not for now."""
        self._execution.check()
        self._plan_ahead()
        while not self._granting:
            if self._is_over():
                return None
            self._execution.says("waiting", epoch=self._planner.epoch, rows=self._rows)
            self._execution.rest(min(self._pace.due_in_s, REST_MAX_S))
            self._tail.check()
            self._plan_ahead()
        return self._granted(*self._granting.popleft())

    def _is_over(self) -> bool:
        """Whether nothing is granted, and nothing will be. Whoever plans beside us hears of it."""
        with self._planning:
            wanted = not (self._planner.over or self._execution.saving)
            self._over = not self._granting and not wanted
            return self._over

    def _wait_for_tail(self) -> None:
        """How long a commit may take is for `checkpoint.timeout` to say: it is no standstill."""
        if self._execution.progress.committing is not None:
            self._execution.touch()

    def _plan_ahead(self) -> None:
        """Have the next epoch planned and granted while this one runs, if it is due."""
        with self._planning:
            open_max = OPEN_MAX if self._pace.may_overlap else 1
            if self._over or not self._checked or self._open >= open_max or self._planner.over:
                return
            if self._execution.saving or self._execution.stopping or self._pace.due_in_s > 0:
                return
            work = self._planner.propose(rows_max=self._pace.rows_max)
            self._open += 1
            self._pace.began()
            self._granting.append((work, self._execution.propose(work.epoch, work.plan)))

    def _granted(self, work: Work, proposed: Posted) -> Work:
        plan = self._execution.granted(proposed)
        if plan != work.plan:  # somebody planned it since we were given the task
            claim = self._execution.claim
            raise ClaimLost(claim.task, claim.attempt)
        return work

    def _stage(self, work: Work) -> None:
        began_s = self._clock.monotonic_s()
        foreseen = work.rows if self._foresees_rows else None
        expected = None if foreseen is None else self._rows + foreseen
        self._execution.says(RUNNING, epoch=work.epoch, rows=self._rows, expected=expected)
        seam("epoch running")
        if work.epoch > 0:
            self._plan_ahead()
        read: dict[str, int] = {}
        if work.epoch == 0:
            handles = self._sinks.survey(self._frames.empty())
        elif work.plan.slices or (self._bounded and not self._written):  # makes tables, or rows
            self._staging.add(work.epoch)
            with self._frames.of(work.plan) as frames:
                handles = self._sinks.stage(work.epoch, frames)
                read = self._frames.rows_read()
            self._written = True
        else:
            handles = {}
        self._rows += max((rows_of(handles, name) for name in handles), default=0)
        took_s = self._clock.monotonic_s() - began_s
        self._pace.took(took_s, work.rows_of_largest)
        self._execution.wait(max(0.0, work.lasts_s - took_s))
        self._execution.says("preparing", epoch=work.epoch, rows=self._rows, expected=expected)
        since = now(self._clock)  # before it is asked for: whoever says yes says it later
        said = self._execution.prepare(work.epoch, handles, work.ready, read)
        done = replace(work, read=read)
        self._tail.begin(partial(self._finish, done, handles, since, said))

    def _finish(self, work: Work, handles: Json, since: Moment, said: Posted | None = None) -> None:
        """In the tail's thread."""
        if said is not None:
            self._execution.prepared(said)
        self._execution.commits(work.epoch)
        self._execution.complete(self._sinks.commit(work, handles, since))
        self._execution.commits(None)
        self._staging.discard(work.epoch)
        with self._planning:
            self._open -= 1
        self._pace.completed()
        try:
            self._plan_ahead()
        finally:
            if handles:
                alone = work.epoch not in self._inherited
                self._sinks.sweep(work.epoch, handles, alone=alone)
