"""A leader without threads: what it writes and answers, step by step, on a real store.

Workers are scripted. `sync` says what a test tells it to say; the desk only remembers, for each
worker, the number of its last sync and the last answer it saw.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from itertools import count

from sqlalchemy import Engine, select

from headrace.coordinator.context import Metrics, Pass, run_once
from headrace.coordinator.jobs.cleanup import CleanupReconciler, Expiry
from headrace.coordinator.jobs.commands import Commands
from headrace.coordinator.jobs.passes import JobPasses
from headrace.coordinator.jobs.reconciler import JobReconciler
from headrace.coordinator.sync.answers import BatchEffects, Dispatch
from headrace.coordinator.sync.liveness import StallReconciler, WorkerExpiry, WorkerLiveness
from headrace.coordinator.workforce import digest_of, plugins_text
from headrace.model.jobs.epoch import Retention
from headrace.model.jobs.spec import JobSpec
from headrace.model.jobs.status import JobStatus, PipelineStatus
from headrace.model.task import Claim, Lane, TaskKind
from headrace.protocol.messages import (
    PROTOCOL_VERSION,
    Acknowledged,
    Answer,
    Held,
    LastAnswerSeen,
    PluginVersion,
    Progress,
    Report,
    Sync,
)
from headrace.store.core import leases
from headrace.store.core.engine import reading, writing
from headrace.store.core.transactions import Term, fenced
from headrace.store.jobs import due_jobs, jobs
from headrace.store.jobs.schema import epochs as epoch_rows
from headrace.store.tasks import tasks, workers
from headrace.store.tasks.tasks import Task
from headrace.store.tasks.workers import Worker
from tests.coordinator.specs import spec as a_spec
from tests.coordinator.specs import whole_run
from tests.fakes import FakeClock

TIMEOUT_S = 60.0
RETENTION = Retention()
JOBS_MAX = 1000


class CountedIds:
    """The same names in each run."""

    def __init__(self, first: int = 1) -> None:
        self._numbers = count(first)

    def new(self) -> str:
        return f"{next(self._numbers):032x}"


@dataclass(slots=True)
class _Scripted:
    """What a worker knows by itself."""

    syncs: int = 0
    seen: LastAnswerSeen = field(default_factory=LastAnswerSeen)


class LeaderHarness:
    def __init__(self, store: Engine, clock: FakeClock, term: Term, *, first_id: int = 1) -> None:
        self.store, self.clock = store, clock
        self.ids = CountedIds(first_id)
        self.commands = Commands(store, clock, self.ids)
        self.rung: list[str] = []
        self.ending = ExitStack()  # closed with the test
        self._keys = count(1)
        self._scripted: dict[str, _Scripted] = {}
        self._begin(term)

    def _begin(self, term: Term) -> None:
        self.term = term
        self.roster = WorkerLiveness(self.clock, timeout_s=TIMEOUT_S)
        self.metrics = Metrics()
        self.dispatch = Dispatch(term, self.roster, self.clock, self.metrics)
        self.jobs = JobReconciler(self.clock, self.ids, wake_worker=self.rung.append)
        self.workers = WorkerExpiry(self.roster, self.clock)
        self.executions = StallReconciler(self.roster.monitor, self.clock)
        self.cleaning = CleanupReconciler(self.clock, self.ids, retention=RETENTION)
        self.expiry = Expiry(self.clock, RETENTION)
        self._passes: JobPasses | None = None

    def take_over(self) -> None:
        """Another coordinator leads from now on, and remembers nothing."""
        with writing(self.store) as conn:
            seen = leases.read(conn)
            term = leases.take(conn, seen, holder=f"next-{self.term.epoch}", address="http://n:1")
        assert term is not None
        self._begin(term)

    def submit(
        self, spec: JobSpec | None = None, *, job_id: str | None = None, group: str = "default"
    ) -> str:
        return self.commands.submit(
            spec or a_spec(),
            submission_key=f"key-{next(self._keys)}",
            job_id=job_id,
            group=group,
        ).id

    def register(
        self,
        name: str,
        *,
        slots: int = 2,
        control_slots: int = 1,
        group: str = "default",
        plugins: Collection[tuple[str, str]] | None = None,
    ) -> None:
        """`plugins`: those that it has, by role and name; None: what came with protocol 4."""
        self._scripted.setdefault(name, _Scripted())
        now_ms = self.clock.wall_ms()
        self.roster.note_sync(name, 0)
        text = None
        if plugins is not None:
            text = plugins_text([PluginVersion(role=role, name=of) for role, of in plugins])
        about = Worker(name, group, slots, control_slots, "0", "host", 1, "app", now_ms, now_ms)
        about = replace(about, plugins_digest=None if text is None else digest_of(text))
        with fenced(self.store, self.term) as conn:
            workers.register(conn, about, text)

    def say(
        self,
        name: str,
        *,
        holds: Iterable[Claim] = (),
        reports: Sequence[Report] = (),
        free: Mapping[Lane, int] | None = None,
        progress: Mapping[Claim, Progress] | None = None,
        protocol: int = PROTOCOL_VERSION,
    ) -> Sync:
        """What a worker says next; by itself it claims that everything is free."""
        scripted = self._scripted.setdefault(name, _Scripted())
        scripted.syncs += 1
        said = progress or {}
        return Sync(
            protocol=protocol,
            worker=name,
            sync=scripted.syncs,
            seen=scripted.seen,
            holds=tuple(Held(claim=claim, progress=said.get(claim)) for claim in holds),
            reports=tuple(reports),
            free={Lane.SLOT: 2, Lane.CONTROL: 1} if free is None else dict(free),
        )

    def answer(self, *syncs: Sync, lost: bool = False) -> list[Answer]:
        """Answer all of them in one transaction, as the writer does."""
        for sync in syncs:
            assert self.roster.note_sync(sync.worker, sync.sync)
        touched = BatchEffects()
        with fenced(self.store, self.term) as conn:
            answers = list(self.dispatch.answer(conn, syncs, touched))
        self.dispatch.committed(touched)
        for sync, answer in zip(syncs, answers, strict=True) if not lost else ():
            self._scripted[sync.worker].seen = LastAnswerSeen(
                term=answer.term, number=answer.number
            )
        return answers

    def sync(
        self,
        name: str,
        *,
        holds: Iterable[Claim] = (),
        reports: Sequence[Report] = (),
        free: Mapping[Lane, int] | None = None,
        lost: bool = False,
    ) -> Answer:
        [answer] = self.answer(self.say(name, holds=holds, reports=reports, free=free), lost=lost)
        return answer

    def report(self, name: str, report: Report, *, holds: Iterable[Claim] = ()) -> Acknowledged:
        """One report, by a worker that wants nothing."""
        answer = self.sync(name, holds=holds, reports=[report], free={})
        [acknowledged] = answer.acknowledged
        return acknowledged

    def finish(self, name: str, claim: Claim, *, holds: Iterable[Claim] = ()) -> None:
        """All that a worker says of a pipeline with one epoch, at once."""
        reports = whole_run(claim, self.task(claim.task).pipeline or 1)
        self.sync(name, holds=holds, reports=reports, free={})

    def pass_(self) -> Pass:
        """One look at everything: workers first, then jobs."""
        outcome = run_once(self.store, self.term, self.workers, self.workers.keys(self.store))
        stuck = run_once(self.store, self.term, self.executions, self.executions.keys())
        found = self.job_passes.run(everything=True)
        assert not self.unmarked(), "the sweep behind the marks would find these"
        return Pass(
            outcome.done + stuck.done + found.done, outcome.failed + stuck.failed + found.failed
        )

    @property
    def job_passes(self) -> JobPasses:
        """Those of `self.jobs`, which a test may replace."""
        if self._passes is None or self._passes.reconciler is not self.jobs:
            self._passes = JobPasses(self.store, self.term, self.jobs, self.clock, self.metrics)
        return self._passes

    def unmarked(self) -> Sequence[str]:
        """All open jobs that need a look, although nothing says so."""
        with reading(self.store) as conn:
            quiet = due_jobs.quiet(conn, now_ms=self.clock.wall_ms(), most=JOBS_MAX)
            return self.job_passes.unmarked(conn, quiet)

    def clean(self) -> Pass:
        """One look at what ended jobs left behind; `pass_` leaves it alone."""
        keys = self.cleaning.keys(self.store)
        cleaned = run_once(self.store, self.term, self.cleaning, keys)
        expired = run_once(self.store, self.term, self.expiry, self.expiry.keys)
        return Pass(cleaned.done + expired.done, cleaned.failed + expired.failed)

    def passes(self) -> None:
        """Look until there is nothing to do."""
        for _ in range(20):
            if not self.pass_().done:
                return
        raise AssertionError("there is always something to do")

    def given(
        self, spec: JobSpec | None = None, *, worker: str = "w1", group: str = "default"
    ) -> tuple[str, Claim]:
        """A job whose only pipeline `worker` holds."""
        job = self.submit(spec, group=group)
        if not self.is_registered(worker):
            self.register(worker, group=group)
        self.passes()
        claim = self.claimed(worker)
        self.sync(worker, holds=[claim], free={})
        self.passes()
        return job, claim

    def claimed(self, worker: str) -> Claim:
        """The one task that `worker` is given now."""
        [assignment] = self.sync(worker).assignments
        return assignment.claim

    def is_registered(self, name: str) -> bool:
        with reading(self.store) as conn:
            return workers.is_registered(conn, name)

    def job(self, job_id: str) -> jobs.Job:
        with reading(self.store) as conn:
            found = jobs.get(conn, job_id)
        assert found is not None
        return found

    def status(self, job_id: str) -> JobStatus:
        return self.job(job_id).status

    def pipeline(self, job_id: str, number: int = 1) -> jobs.PipelineRow:
        with reading(self.store) as conn:
            return jobs.pipeline(conn, job_id, number)

    def pipeline_status(self, job_id: str, number: int = 1) -> PipelineStatus:
        return self.pipeline(job_id, number).status

    def task(self, task_id: str) -> Task:
        with reading(self.store) as conn:
            found = tasks.get(conn, task_id)
        assert found is not None
        return found

    def tasks(self, job_id: str, kind: TaskKind = TaskKind.PIPELINE) -> list[Task]:
        with reading(self.store) as conn:
            return [task for task in tasks.of_job(conn, job_id) if task.kind is kind]

    def epochs(self, job_id: str) -> list[tuple[int, str, str]]:
        """(epoch, kind, status), in order."""
        row = epoch_rows.c
        with reading(self.store) as conn:
            found = conn.execute(
                select(row.epoch, row.kind, row.status)
                .where(row.job_id == job_id)
                .order_by(row.pipeline, row.epoch)
            )
            return [(epoch, kind, status) for epoch, kind, status in found]

    def plan_noops(self, number: int, *, lane: Lane = Lane.SLOT, group: str = "default") -> None:
        with fenced(self.store, self.term) as conn:
            for _ in range(number):
                tasks.plan(
                    conn,
                    task_id=self.ids.new(),
                    kind=TaskKind.NOOP,
                    lane=lane,
                    group=group,
                    now_ms=self.clock.wall_ms(),
                )
