"""All sinks of a pipeline, driven together: an epoch is done when it is done in each of them.

Handles are kept by the sink's name. A sink without a handle has nothing in this epoch. Beside them
stands what sources learned (sources.py), under their names.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from headrace.connectors.connector import Committed, Sink
from headrace.errors import (
    HeadraceError,
    Refused,
    StoreOlderThanTarget,
    StoreOlderThanTargets,
    Unavailable,
)
from headrace.exactly_once.target import Mark
from headrace.model.jobs.epoch import EpochAt, EpochStatus, Moment
from headrace.model.jobs.spec import PluginSpec
from headrace.protocol.messages import EpochCompleted, Json, PipelinePayload, Restore
from headrace.worker.dataflow import PlannedEpoch
from headrace.worker.execution import Execution, error_line

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

log = logging.getLogger(__name__)

SWEEP_PAUSES_S = (0.5, 1.0, 2.0, 4.0)  # before each further try to delete leftovers


# All rows of the tables that a sink reads, from the tables by name (`Dataflow.input_of`).
InputOf = Callable[[PluginSpec, "Mapping[str, DataFrame]"], "DataFrame"]


class SinkGroup:
    """The sinks of one pipeline, as one execution drives them."""

    def __init__(
        self,
        execution: Execution,
        payload: PipelinePayload,
        sinks: Sequence[Sink],
        session: SparkSession,
        input_of: InputOf,
    ) -> None:
        self._execution, self._payload, self._input_of = execution, payload, input_of
        self._sinks, self._session = sinks, session
        self._written = dict(payload.restore.written)
        self._unswept: dict[int, Json] = {}  # handles by epoch

    def _at(self, epoch: int, since: Moment | None = None) -> EpochAt:
        payload = self._payload
        return EpochAt(
            payload.incarnation, payload.pipeline.number, epoch, self._execution.id, since
        )

    def observe_targets(self) -> None:
        """Have each sink read its target before an epoch of an earlier execution is committed, so
        that it can tell the original target from one that replaced it (`Sink.read_mark`). A
        target that is unavailable fails later, at its commit."""
        for sink in self._sinks:
            try:
                sink.read_mark(self._session, self._at(self._payload.restore.epoch))
            except Exception:
                facts = {"execution": self._execution.id, "sink": sink.name}
                log.exception("target not seen", extra=facts)

    def check_marks(self, *, settling: bool = False) -> None:
        """Raise StoreOlderThanTarget where a target is ahead of the store, before anything is
        planned: its tokens would be taken for our own next epochs, whose rows would be skipped
        (E7).

        `settling` plans nothing. It may finish what is prepared, since that was only ever
        committed from the same handles; but it must not abort a planned epoch at a target that
        is ahead, unless the mark is an abort of that epoch: an earlier settlement whose answer
        was lost may have made it.
        """
        restore = self._payload.restore
        for sink in self._sinks:
            mark = sink.read_mark(self._session, self._at(restore.epoch))
            if mark is None or _may_be_spent(mark, restore):
                continue
            if settling and mark.aborted and mark.epoch in _ids(restore, EpochStatus.PLANNED):
                continue
            raise _too_old(sink.name, mark, restore)

    def survey(self, frames: Mapping[str, DataFrame]) -> Json:
        """The handles of epoch 0: what the save mode of each sink asks for."""
        handles: Json = {}
        for sink, frame in self._inputs(frames):
            if sink.opens:
                handle = sink.survey(self._session, frame, self._at(0))
                handles[sink.name] = {"handle": handle, "rows": 0}
        return handles

    def stage(self, epoch: int, frames: Mapping[str, DataFrame]) -> Json:
        handles: Json = {}
        for sink, frame in self._inputs(frames):
            self._execution.check()
            staged = sink.stage(self._session, frame, self._at(epoch))
            handles[sink.name] = {"handle": staged.handle, "rows": staged.rows}
        return handles

    def _inputs(self, frames: Mapping[str, DataFrame]) -> Sequence[tuple[Sink, DataFrame]]:
        specs = zip(self._sinks, self._payload.pipeline.sinks, strict=True)
        return [(sink, self._input_of(spec, frames)) for sink, spec in specs]

    def commit(self, work: PlannedEpoch, handles: Json, since: Moment) -> EpochCompleted:
        """Commit in each sink, whoever staged. Idempotent: the targets refuse a second commit.

        An unavailable sink does not keep the others from committing. `since`: a moment at which
        this execution still held its claim.
        """
        commits = self._commit_each(work.epoch, handles, since)
        # An opening (epoch 0) writes no row and need not make the table. So a sink is listed as
        # written only after a later epoch: until then a successor lets it make its table.
        for name in commits if work.epoch > 0 else ():
            self._written[name] = self._written.get(name, 0) + rows_of(handles, name)
        return EpochCompleted(
            seq=0,
            claim=self._execution.claim,
            epoch=work.epoch,
            positions=dict(work.positions),
            # For the log, and for a coordinator that does not know counts by source.
            rows_in=sum(work.read.values()) if work.read is not None else work.rows or 0,
            rows_out=sum(rows_of(handles, name) for name in handles),
            commits=commits,
            written=dict(self._written),
        )

    def _commit_each(self, epoch: int, handles: Json, since: Moment) -> Json:
        commits: Json = {}
        failed: dict[str, Exception] = {}
        staged = [sink for sink in self._sinks if sink.name in handles]
        for sink in staged:
            try:
                commits[sink.name] = dict(self._spend(sink, epoch, handles, since).facts)
            except Exception as error:
                if len(staged) == 1 or self._execution.stopping:
                    raise
                log.exception("not committed", extra={"sink": sink.name, "epoch": epoch})
                failed[sink.name] = error
        if failed:
            where = ", ".join(commits) or "no sink"
            summary = f"epoch {epoch} is committed at {where}, and not at {', '.join(failed)}"
            raise failure_of(summary, failed)
        return commits

    def _spend(self, sink: Sink, epoch: int, handles: Json, since: Moment) -> Committed:
        do = sink.open if epoch == 0 else sink.commit
        return do(self._session, _handle(handles, sink), self._at(epoch, since))

    def abort(self, epoch: int, since: Moment) -> None:
        for sink in self._sinks:
            sink.abort(self._session, self._at(epoch, since))

    def sweep(self, epoch: int, handles: Json, *, alone: bool = False) -> None:
        """Delete what was staged for a committed epoch. Leftovers that can't be deleted now must
        not fail the job: they are tried again by `sweep_again`.

        `alone`: only this execution ever worked on the epoch.
        """
        if epoch == 0:
            return  # save modes stage nothing
        for sink in self._sinks:
            if alone and not sink.leaves_stage:
                continue
            handle = _handle(handles, sink) if sink.name in handles else None
            if handles and handle is None:
                continue
            try:
                sink.sweep(self._session, handle, self._at(epoch))
            except Exception:
                facts = {"execution": self._execution.id, "sink": sink.name, "epoch": epoch}
                log.exception("staged files not swept", extra=facts)
                self._unswept[epoch] = handles

    def sweep_after_ourselves(self, epoch: int) -> None:
        """Delete what this execution staged for an epoch that another execution has meanwhile
        completed and swept: nobody else would sweep it before the end of the job.

        While the token is unspent nothing is deleted (E6): whoever spends it sweeps.
        """
        for sink in self._sinks:
            try:
                sink.sweep(self._session, None, self._at(epoch))
            except Exception as error:  # noqa: BLE001  refused, or the target or the JVM is gone
                facts = {"execution": self._execution.id, "sink": sink.name, "epoch": epoch}
                log.info("own staged files not swept", extra={**facts, "reason": error_line(error)})

    def sweep_again(self) -> None:
        """Try again to delete leftovers, with a back-off of a few seconds: a job must end soon."""
        for pause_s in SWEEP_PAUSES_S:
            if not self._unswept:
                return
            self._execution.wait(pause_s)
            unswept, self._unswept = self._unswept, {}
            for epoch, handles in unswept.items():
                self.sweep(epoch, handles)

    def finish(self) -> None:
        """Tell each sink that the pipeline is completed, and how many rows it was given."""
        for sink in self._sinks:
            sink.finish(self._written.get(sink.name, 0))

    def close(self) -> None:
        for sink in self._sinks:
            close_sink(sink, self._execution.id)


def close_sink(sink: Sink, execution: str) -> None:
    """Close a sink; what it raises is logged, as all that matters is done by then."""
    try:
        sink.close()
    except Exception:
        facts = {"execution": execution, "sink": sink.name}
        log.exception("sink not closed", extra=facts)


def check_forgettable(
    sink: Sink, session: SparkSession, at: EpochAt, completed: Mapping[int, int]
) -> None:
    """Raise StoreOlderThanTarget for a mark of rows that the store does not know: once it was
    forgotten, a restore of the job would write these rows a second time (E7)."""
    known = completed.get(at.pipeline)
    mark = sink.read_mark(session, at) if known is not None else None
    if known is None or mark is None or mark.aborted or not known < mark.epoch <= at.epoch:
        return
    raise _too_old(sink.name, mark, Restore(epoch=known))


def failure_of(summary: str, failed: Mapping[str, Exception]) -> HeadraceError:
    """One error for all sinks that failed. It can be retried if the error of any sink can; never
    when one of them proves that the store is older than its target (E7)."""
    why = "; ".join(f"{name}: {error_line(error)}" for name, error in failed.items())
    if any(isinstance(error, StoreOlderThanTarget) for error in failed.values()):
        return StoreOlderThanTargets(f"{summary}: {why}")
    final = all(isinstance(error, Refused) for error in failed.values())
    return (Refused if final else Unavailable)(f"{summary}: {why}")


def _may_be_spent(mark: Mark, restore: Restore) -> bool:
    """Whether the store explains that this token is spent: a prepared epoch may be committed, one
    that was given up may be aborted; a planned one is neither."""
    if mark.epoch <= restore.really_completed:
        return True
    if not mark.aborted:
        return mark.epoch in _ids(restore, EpochStatus.PREPARED)
    if restore.aborted is None:
        return mark.epoch <= restore.highest
    # Records of given-up epochs may have been deleted; a restore skips their ids all the same.
    return mark.epoch <= restore.epoch or mark.epoch in restore.aborted


def _ids(restore: Restore, status: EpochStatus) -> Collection[int]:
    return {left.epoch for left in restore.open if left.status is status}


def _too_old(name: str, mark: Mark, restore: Restore) -> StoreOlderThanTarget:
    did = "has given up" if mark.aborted else "holds"
    highest = max(restore.really_completed, *_ids(restore, EpochStatus.PREPARED), -1)
    known = f"the highest epoch that this store knows to be committed is {highest}"
    if mark.epoch in (restore.aborted or ()):
        known = f"this store has given epoch {mark.epoch} up"
    return StoreOlderThanTarget(f"the target of sink {name}", f"{did} epoch {mark.epoch}", known)


def _handle(handles: Json, sink: Sink) -> Any:
    entry: Any = handles[sink.name]
    return entry["handle"]


def rows_of(handles: Json, name: str) -> int:
    """Rows that were staged at a sink."""
    entry: Any = handles[name]
    return int(entry["rows"])
