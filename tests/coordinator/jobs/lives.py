"""Whole lives of jobs, as their executions report them, with news that comes early, late or twice.

A `Living` plays a job's worker: it says each report in its order, and whatever a test wants said
again beside it. It remembers all it ever said, so that a test can say it once more, much later.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import select, update

from headrace.model.jobs.epoch import EpochStatus
from headrace.model.jobs.spec import JobSpec
from headrace.model.jobs.status import JobStatus
from headrace.model.task import Claim, TaskKind, TaskStatus
from headrace.protocol.messages import Assignment, PipelinePayload, Report, TaskEnded
from headrace.store.core.engine import reading, writing
from headrace.store.core.schema import metadata
from headrace.store.jobs import history, jobs, savepoints
from headrace.store.jobs.schema import epochs as epoch_rows
from headrace.store.tasks.schema import tasks as task_rows
from tests.coordinator.jobs.streaming import done, saved
from tests.coordinator.leader_harness import TIMEOUT_S, LeaderHarness
from tests.coordinator.specs import failed, planned, prepared, settled, spec, stopped, succeeded

MANY = 1000  # tries, however often an execution is given up
HISTORY_MAX = 10
TURNS_MAX = 100  # of one life: executions that were begun anew

Noise = Callable[[Sequence[Report]], Sequence[Report]]  # of all there is to say: what is said


@dataclass(frozen=True, slots=True)
class Life:
    end: JobStatus
    pipelines: int = 1
    epochs: int = 1  # that each pipeline completes
    left: int = 0  # steps of one more epoch, which a job that fails or is canceled leaves open
    lost_after: int | None = None  # reports of each pipeline: then its worker falls silent

    @property
    def spec(self) -> JobSpec:
        return spec(pipelines=self.pipelines, retry_times=MANY)

    def says(self, claim: Claim, payload: PipelinePayload, base: int) -> Sequence[Report]:
        """What an execution says of its epochs; those up to `base` were of an earlier run."""
        number, restore = payload.pipeline.number, payload.restore
        left = {each.epoch for each in restore.open if each.status is EpochStatus.PREPARED}
        said: list[Report] = []
        last = base + self.epochs
        for epoch in range(restore.epoch + 1, last + 1):
            is_last = epoch == last and self.end is JobStatus.FINISHED
            ready = (f"FakeSource-{number}",) if is_last else ()
            steps = [planned(claim, epoch), prepared(claim, epoch, ready=ready)]
            said += [*(steps if epoch not in left else ()), done(claim, epoch, pipeline=number)]
        more = [planned(claim, last + 1), prepared(claim, last + 1, ready=())]
        return [*said, *(more[: self.left] if last + 1 not in left else ())]

    def says_last(self, claim: Claim, *, first: bool) -> TaskEnded:
        match self.end:
            case JobStatus.FINISHED:
                return succeeded(claim)
            case JobStatus.SAVEPOINT_DONE:
                return saved(claim)
            case JobStatus.FAILED if first:
                return failed(claim, retry=False)
            case _:
                return stopped(claim)


@dataclass(slots=True)
class _Running:
    claim: Claim
    payload: PipelinePayload
    base: int


class Living:
    """A job under `job`, in a group of its own, and whoever works for it."""

    def __init__(self, desk: LeaderHarness, job: str, noise: Noise = lambda _: ()) -> None:
        self.desk, self.job, self.noise = desk, job, noise
        self.said: list[Report] = []
        self._workers = 0
        self._running: dict[int, _Running] = {}
        self._settling: list[Assignment] = []
        self._base: dict[int, int] = {}

    def submit(self, life: Life) -> None:
        self.desk.submit(life.spec, job_id=self.job, group=f"of-{self.job}")

    def restore(self, life: Life, key: str) -> None:
        self.desk.commands.restore(life.spec, job_id=self.job, submission_key=key)

    def begin(self) -> None:
        """Have it run: every pipeline is given to a worker."""
        self._base.clear()
        self._new_worker()
        self.desk.passes()
        self._take()

    def go_on(self, life: Life) -> None:
        """To its end, by way of a lost worker if it has one."""
        if life.lost_after is not None:
            for number in sorted(self._running):
                self._say_epochs(life, number, most=life.lost_after)
            self._lose_worker()
        for number in sorted(self._running):
            self._say_epochs(life, number)
        if life.end is JobStatus.CANCELED:
            self.desk.commands.cancel(self.job)
        if life.end is JobStatus.SAVEPOINT_DONE:
            self.desk.commands.savepoint(self.job)
        self.desk.passes()
        for number in range(1, life.pipelines + 1):
            self._end(life, number)
        self._settle()
        assert self.desk.status(self.job) is life.end

    def late(self, order: Sequence[Report]) -> Sequence[bool]:
        """Say these much later. For each, whether it was taken."""
        answer = self.desk.sync(self.worker, holds=self.holds(), reports=order, free={})
        assert [each.seq for each in answer.acknowledged] == [report.seq for report in order]
        return [each.held for each in answer.acknowledged]

    def holds(self) -> Sequence[Claim]:
        return [each.claim for each in (*self._running.values(), *self._settling)]

    @property
    def worker(self) -> str:
        return f"w{self._workers}-of-{self.job}"

    def _new_worker(self) -> None:
        self._workers += 1
        self.desk.register(self.worker, group=f"of-{self.job}")

    def _lose_worker(self) -> None:
        self.desk.clock.advance(TIMEOUT_S + 1)
        self.desk.passes()
        self._running.clear()
        self._settling.clear()
        self._new_worker()
        self._take()

    def _take(self) -> None:
        """Ask for all that can be had, and hold it."""
        given = self.desk.sync(self.worker, holds=self.holds()).assignments
        for assignment in given:
            if assignment.kind is TaskKind.SETTLE:
                self._settling.append(assignment)
            else:
                payload = PipelinePayload.model_validate(assignment.payload)
                number = payload.pipeline.number
                base = self._base.setdefault(number, payload.restore.epoch)
                self._running[number] = _Running(assignment.claim, payload, base)
        if given:
            self.desk.sync(self.worker, holds=self.holds(), free={})

    def _is_current(self, claim: Claim) -> bool:
        task = self.desk.task(claim.task)
        return task.attempt == claim.attempt and task.status in {
            TaskStatus.SCHEDULED,
            TaskStatus.ACKED,
        }

    def _say(self, report: Report, coming: Sequence[Report]) -> None:
        """The report, after whatever comes out of its turn. One that fails for good has its turn:
        who says so has failed."""
        beside = [r for r in coming if not (isinstance(r, TaskEnded) and not r.retry)]
        order = [*self.noise([*self.said, *beside]), report]
        self.said.append(report)
        answer = self.desk.sync(self.worker, holds=self.holds(), reports=order, free={})
        assert len(answer.acknowledged) == len(order)
        self.desk.passes()
        for number, each in list(self._running.items()):
            if not self._is_current(each.claim):
                del self._running[number]

    def _say_epochs(self, life: Life, number: int, *, most: int | None = None) -> None:
        """Anew whenever something that came too early made the leader give it to another try."""
        for _ in range(TURNS_MAX):
            if (mine := self._running.get(number)) is None:
                return
            says = life.says(mine.claim, mine.payload, mine.base)
            coming = [*says, life.says_last(mine.claim, first=number == 1)]
            for report in says[:most]:
                self._say(report, coming)
                if self._running.get(number) is not mine:
                    break
            else:
                return
            self._take()
        raise AssertionError("it never gets to its end")

    def _end(self, life: Life, number: int) -> None:
        for _ in range(TURNS_MAX):
            if (mine := self._running.get(number)) is None:
                return
            if life.end is JobStatus.FAILED and number == 1:
                self._spend_retries(mine.claim)
            self._say(life.says_last(mine.claim, first=number == 1), ())
            self.desk.passes()
            self._take()
            self._say_epochs(life, number)
        raise AssertionError("it never ends")

    def _spend_retries(self, claim: Claim) -> None:
        """As if it had failed so often since its last epoch: it is worth no other attempt."""
        with writing(self.desk.store) as conn:
            conn.execute(
                update(task_rows).where(task_rows.c.id == claim.task).values(failures=MANY)
            )

    def _settle(self) -> None:
        for _ in range(TURNS_MAX):
            self.desk.passes()
            self._take()
            if not self._settling:
                return
            assignment = self._settling.pop()
            payload = PipelinePayload.model_validate(assignment.payload)
            number, left = payload.pipeline.number, payload.restore.open
            ready = [e.epoch for e in left if e.status is EpochStatus.PREPARED]
            completed = [done(assignment.claim, e, pipeline=number) for e in ready]
            aborted = [e.epoch for e in left if e.epoch not in ready]
            self._say(settled(assignment.claim, *aborted, completed=completed), ())
        raise AssertionError("there is always something to settle")


def standing(desk: LeaderHarness, job: str) -> Mapping[str, Any]:
    """All that is known of a job, but for ids and times."""
    with reading(desk.store) as conn:
        found, made = jobs.get(conn, job), savepoints.get(conn, job)
        row = epoch_rows.c
        steps = conn.execute(
            select(row.pipeline, row.epoch, row.kind, row.status, row.rows_in, row.rows_out)
            .where(row.job_id == job)
            .order_by(row.pipeline, row.epoch)
        )
        return {
            "job": found and (found.status, found.error, found.run),
            "pipelines": [p.as_record() for p in jobs.pipelines_of(conn, job)] if found else [],
            "epochs": [tuple(step) for step in steps],
            "savepoint": made
            and (made.kind, made.epoch, made.positions, made.ready, made.written, made.run),
            "history": [
                (each.run, each.status, each.error, each.pipelines)
                for each in history.of_job(conn, job, most=HISTORY_MAX)
            ],
        }


def all_rows(desk: LeaderHarness) -> Mapping[str, Sequence[object]]:
    """Every table, but for when a worker was last seen."""
    with reading(desk.store) as conn:
        return {
            table.name: sorted(
                repr(tuple(row))
                for row in conn.execute(select(*(c for c in table.c if c.name != "seen_at_ms")))
            )
            for table in metadata.sorted_tables
        }
