"""Months of a stream whose workers keep dying, with the settings that a job has by default.

Real are the store with every statement, the fence, dispatch, reports, attempts and all that a
leader reconciles; its worker is played. A month has a quarter of a million epochs of ten seconds,
and most of them are alike: between two deaths only a few are played, and the clock jumps.

Workers die between epochs, before they have begun, with an epoch planned or prepared, or after a
commit of which nobody heard; silently, or with a JVM that was killed. Some die in a row. Attempts
fail, epochs are empty, leaders change, and wall clocks are set.
"""

from __future__ import annotations

import logging
import multiprocessing
from collections import Counter
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from random import Random

from headrace.coordinator.jobs.reconciler import SETTLE_DEADLINE_S
from headrace.model.jobs.epoch import EpochStatus
from headrace.model.jobs.spec import LOST_WORKERS_MAX, EnvSpec
from headrace.model.jobs.status import JOB_ENDED, JobStatus
from headrace.model.task import POISON_WORKERS, Claim, FailureCause
from headrace.protocol.messages import PipelinePayload, Report
from headrace.store.core import leases
from headrace.store.core.engine import open_store, writing
from headrace.store.migrate import prepare_store
from tests.coordinator.jobs.streaming import done
from tests.coordinator.leader_harness import TIMEOUT_S, LeaderHarness
from tests.coordinator.specs import failed, planned, prepared, spec
from tests.fakes import FakeClock
from tests.memory import fast_folder

DAY_S = 86_400.0
MONTH_DAYS = 30.0
DEATHS = 500
BURST_MAX = LOST_WORKERS_MAX - 1  # deaths without a completed epoch in between
EPOCHS_MAX = 3  # played between two deaths
JUMPS_MS = (-3_600_000, -5_000, 5_000, 3_600_000)
ENV = EnvSpec(job_mode="STREAMING")  # all else as it is by default
OVER = JOB_ENDED | {JobStatus.FAILING}  # a job that never came to run yet may still do so
# What has to happen in a month: an idle one proves nothing.
LEAST = {
    "died planned": DEATHS // 10,
    "died prepared": DEATHS // 10,
    "died unbegun": DEATHS // 10,
    "died committed": DEATHS // 20,
    "jvm killed": DEATHS // 20,
    "errors": DEATHS // 10,
    "empty epochs": DEATHS // 10,
    "terms": DEATHS // 20,
    "clock jumps": DEATHS // 40,
}


@dataclass(slots=True)
class Month:
    """How it went."""

    seed: int
    days: float
    deaths: int
    status: JobStatus
    error: str | None
    epochs: int
    problems: list[str]
    happened: Counter[str] = field(default_factory=Counter[str])

    def too_little(self) -> list[str]:
        share = self.deaths / DEATHS
        return [
            f"{self.happened[what]} {what}, {least * share:.0f} expected"
            for what, least in LEAST.items()
            if self.happened[what] < least * share
        ]


def live(
    seed: int,
    *,
    days: float = MONTH_DAYS,
    deaths: int = DEATHS,
    stuck_after: int | None = None,
) -> Month:
    """One month. `stuck_after`: so many deaths, and from then on no epoch is completed."""
    with _desk() as desk:
        return _Life(desk, seed, days=days, deaths=deaths, stuck_after=stuck_after).live()


def run(first: int, count: int, *, processes: int) -> tuple[bool, str]:
    """Whether so many months went well, and what happened in them."""
    seeds = range(first, first + count)
    if processes == 1:
        months = [live(seed) for seed in seeds]
    else:
        with multiprocessing.get_context("spawn").Pool(processes) as pool:
            months = pool.map(live, seeds)
    happened = sum((month.happened for month in months), Counter[str]())
    counts = ", ".join(f"{n} {what}" for what, n in sorted(happened.items()))
    told = [f"{count} months of streams, {sum(m.deaths for m in months)} deaths: {counts}"]
    for month in months:
        wrong = [*month.problems, *month.too_little()]
        if month.status is not JobStatus.RUNNING:
            wrong.append(f"{month.status} after {month.deaths} deaths: {month.error}")
        told += [f"stream of seed {month.seed}: {each}" for each in wrong]
    return len(told) == 1, "\n".join(told)


@contextmanager
def _desk() -> Generator[LeaderHarness]:
    with fast_folder("stream") as folder:
        engine = open_store(f"sqlite:///{folder}/store.db")
        prepare_store(engine)
        with writing(engine) as conn:
            term = leases.take(conn, leases.read(conn), holder="first", address="http://f:1")
        assert term is not None
        desk = LeaderHarness(engine, FakeClock(), term)
        told = logging.getLogger("headrace")
        before = told.level
        told.setLevel(logging.ERROR)  # thousands of warnings that are meant to be
        try:
            with desk.ending:
                yield desk
        finally:
            told.setLevel(before)
            engine.dispose()


class _Life:
    def __init__(
        self, desk: LeaderHarness, seed: int, *, days: float, deaths: int, stuck_after: int | None
    ) -> None:
        self._desk, self._random = desk, Random(f"stream {seed}")
        self._deaths, self._stuck_after = deaths, stuck_after
        self._pause_s = days * DAY_S / deaths  # about; after several in a row it is longer
        self._burst = 0  # deaths that are left of those without an epoch in between
        self._in_epoch = 0  # workers that the epoch which is open has taken along
        self._errors = 0  # since an epoch with rows
        self._highest = 0  # epoch that was completed
        self._open: list[tuple[int, EpochStatus]] = []
        self._workers = 0
        self._claim: Claim | None = None
        self._month = Month(seed, 0.0, 0, JobStatus.CREATED, None, 0, [])
        self._happened = self._month.happened
        self._began_s = desk.clock.monotonic_s()
        self._job = desk.submit(spec().model_copy(update={"env": ENV}))

    def live(self) -> Month:
        for death in range(self._deaths):
            stuck = self._stuck_after is not None and death >= self._stuck_after
            self._begin()
            if not stuck:
                self._get_on()
            self._die(unbegun=stuck)
            if self._desk.status(self._job) in OVER:
                break
        if self._stuck_after is None:
            self._begin()
            self._get_on()
        return self._told()

    def _told(self) -> Month:
        desk, month = self._desk, self._month
        desk.passes()
        if desk.status(self._job) is JobStatus.FAILING:  # nobody is there to settle what is open
            desk.clock.advance(SETTLE_DEADLINE_S)
            desk.passes()
        month.days = (desk.clock.monotonic_s() - self._began_s) / DAY_S
        month.status, month.error = desk.status(self._job), desk.job(self._job).error
        month.epochs = desk.pipeline(self._job).epoch
        if month.epochs != self._highest:
            month.problems.append(f"epoch {month.epochs} is the last, {self._highest} was said")
        return month

    @property
    def _worker(self) -> str:
        return f"w{self._workers}"

    def _begin(self) -> None:
        """The next worker comes up, is given the pipeline, and says that it holds it."""
        desk = self._desk
        self._workers += 1
        desk.register(self._worker)
        desk.passes()
        for _ in range(2):
            if given := desk.sync(self._worker).assignments:
                break
            desk.clock.advance(ENV.retry_interval_s)
        else:
            raise AssertionError(f"{self._worker} is given nothing: {desk.tasks(self._job)}")
        self._take(given[0].claim, PipelinePayload.model_validate(given[0].payload))
        desk.sync(self._worker, holds=[given[0].claim], free={})
        desk.passes()

    def _take(self, claim: Claim, payload: PipelinePayload) -> None:
        self._claim = claim
        self._open = [(each.epoch, each.status) for each in payload.restore.open]
        if payload.restore.epoch != self._highest:
            self._month.problems.append(
                f"{self._worker} restores epoch {payload.restore.epoch} and not {self._highest}"
            )

    def _get_on(self) -> None:
        """Some epochs, unless this worker is one of several that die in a row."""
        if self._burst:
            self._burst -= 1
            return
        if self._random.random() < 0.15:
            self._burst = self._random.randint(1, BURST_MAX - 1)
        epochs = self._random.randint(1, EPOCHS_MAX)
        due_s = self._began_s + (self._month.deaths + self._random.random()) * self._pause_s
        left_s = max(TIMEOUT_S, due_s - self._desk.clock.monotonic_s())
        for _ in range(epochs):
            self._pass_time(left_s / epochs)
            if self._errors < ENV.retry_times and self._random.random() < 0.15:
                self._fail()
            self._complete(rows=self._random.random() < 0.8)

    def _pass_time(self, seconds: float) -> None:
        self._desk.clock.advance(seconds)
        if self._random.random() < 0.05:
            jumped = self._desk.clock.wall_ms() + self._random.choice(JUMPS_MS)
            self._desk.clock.set_wall(jumped)
            self._happened["clock jumps"] += 1
        if self._random.random() < 0.1:
            self._desk.take_over()
            self._happened["terms"] += 1
        assert self._claim is not None
        self._desk.sync(self._worker, holds=[self._claim], free={})
        self._desk.passes()

    def _complete(self, *, rows: bool) -> None:
        """What is open first, as a worker does; or else one more."""
        self._plan()
        self._prepare()
        number, _ = self._open.pop(0)
        end = done(self._current, number)
        self._say(end if rows else end.model_copy(update={"rows_in": 0, "rows_out": 0}))
        self._highest, self._in_epoch = number, 0
        self._errors = 0 if rows else self._errors
        self._happened["epochs" if rows else "empty epochs"] += 1

    def _plan(self) -> None:
        if not self._open:
            self._open.append((self._highest + 1, EpochStatus.PLANNED))
        if self._open[0][1] is EpochStatus.PLANNED:
            self._say(planned(self._current, self._open[0][0]))

    def _prepare(self) -> None:
        number, status = self._open[0]
        if status is EpochStatus.PLANNED:
            self._say(prepared(self._current, number, ready=()))
            self._open[0] = (number, EpochStatus.PREPARED)

    def _fail(self) -> None:
        self._desk.report(self._worker, failed(self._current, "the target is away"))
        self._errors += 1
        self._happened["errors"] += 1
        self._desk.clock.advance(ENV.retry_interval_s)
        self._desk.passes()
        [given] = self._desk.sync(self._worker).assignments
        self._take(given.claim, PipelinePayload.model_validate(given.payload))
        self._desk.sync(self._worker, holds=[given.claim], free={})

    def _die(self, *, unbegun: bool) -> None:
        # A third worker that this epoch takes along would be the last: that is another test's.
        can_take_along = self._in_epoch < POISON_WORKERS - 1
        ways: Sequence[str] = ("planned", "prepared", "committed", "unbegun")
        way = self._random.choice(ways) if can_take_along and not unbegun else "unbegun"
        if way != "unbegun":
            self._in_epoch += 1
            self._plan()
            if way != "planned":
                self._prepare()
        self._happened[f"died {way}"] += 1
        if not unbegun and self._random.random() < 0.2:
            lost = failed(self._current, "Spark's JVM was killed")
            self._say(lost.model_copy(update={"cause": FailureCause.KILLED}), holds=())
            self._happened["jvm killed"] += 1
        self._desk.clock.advance(TIMEOUT_S + 1)
        self._desk.passes()
        self._month.deaths += 1

    @property
    def _current(self) -> Claim:
        assert self._claim is not None
        return self._claim

    def _say(self, report: Report, holds: Sequence[Claim] | None = None) -> None:
        held = [self._current] if holds is None else holds
        taken = self._desk.report(self._worker, report, holds=held).held
        if not taken:
            self._month.problems.append(f"{report.kind} of {self._worker} is refused")
