"""A whole term with its threads, on the real clock, with short times."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest
from sqlalchemy import Engine

from headrace.clock import SystemClock
from headrace.coordinator.context import CoordinatorSettings, Metrics
from headrace.coordinator.jobs.commands import Commands
from headrace.coordinator.jobs.reconciler import JobReconciler
from headrace.coordinator.leadership.leader import Leadership
from headrace.coordinator.leadership.term import LeaderTerm
from headrace.coordinator.sync.liveness import WorkerExpiry
from headrace.coordinator.sync.notifier import WorkerNotifier
from headrace.errors import NotLeader
from headrace.model.ids import RandomIds
from headrace.model.jobs.status import JobStatus
from headrace.model.task import Claim, FailureCause, Lane, TaskStatus
from headrace.protocol.messages import Goodbye, Held, LastAnswerSeen, Register, Sync
from headrace.seams import arm
from headrace.store.core import leases
from headrace.store.core.engine import reading, writing
from headrace.store.core.transactions import Term
from headrace.store.jobs import jobs
from headrace.store.tasks import claims, tasks, workers
from tests.coordinator.specs import failed as a_failure
from tests.coordinator.specs import spec, whole_run

BOUND_S = 120.0  # for a state to come, also on a busy machine
LOOK_S = 0.02
HEARTBEAT_S = 600.0  # nobody is taken for silent because the machine is busy
SILENT_S = 4.0  # long enough to be heard in, also on a busy machine
SOON_SILENT_S = 0.2  # for those who never say anything
CLOCK = SystemClock()


def eventually(met: Callable[[], object]) -> None:
    end_s = CLOCK.monotonic_s() + BOUND_S
    while not met():
        assert CLOCK.monotonic_s() < end_s, "it did not happen in time"
        threading.Event().wait(LOOK_S)


class Led:
    """A running term, and what a worker says to it."""

    def __init__(self, store: Engine, term: Term, *, heartbeat_s: float = HEARTBEAT_S) -> None:
        self.store, self.notifier, self.metrics = store, WorkerNotifier(), Metrics()
        self.leadership = Leadership.won(term, asked_at_s=CLOCK.monotonic_s(), ttl_s=1000.0)
        self.commands = Commands(store, CLOCK, RandomIds())
        self.syncs = 0
        self.term = LeaderTerm(
            store,
            self.leadership,
            CLOCK,
            RandomIds(),
            self.notifier,
            self.metrics,
            options=CoordinatorSettings("", "", heartbeat_timeout_s=heartbeat_s),
        )

    def register(self, name: str) -> None:
        self.term.register(
            Register(
                worker=name,
                group="default",
                slots=2,
                control_slots=1,
                version="0",
                host="h",
                pid=1,
                spark_application="app",
            )
        )

    def sync(self, name: str, *held: Claim) -> list[Claim]:
        """Sync as a worker that saw all; what it is given."""
        self.syncs += 1
        assert self.term.liveness.note_sync(name, self.syncs)
        said = Sync(
            worker=name,
            sync=self.syncs,
            seen=LastAnswerSeen(term=10**6, number=10**6),
            holds=tuple(Held(claim=claim) for claim in held),
            free={Lane.SLOT: 2},
        )
        answer = self.term.writer.ask(said).result(BOUND_S)
        return [assignment.claim for assignment in answer.assignments]

    def submit(self, retry_times: int = 0) -> str:
        made = spec(retry_times=retry_times)
        return self.commands.submit(made, submission_key="k", group="default").id

    def status(self, job: str) -> JobStatus:
        with reading(self.store) as conn:
            found = jobs.get(conn, job)
        assert found is not None
        return found.status

    def registered(self, name: str) -> bool:
        with reading(self.store) as conn:
            return workers.is_registered(conn, name)

    def claim_of(self, job: str, worker: str) -> Claim:
        eventually(lambda: self.status(job) is JobStatus.SCHEDULED)
        [claim] = self.sync(worker)
        return claim

    def task(self, claim: Claim) -> tasks.Task:
        with reading(self.store) as conn:
            found = tasks.get(conn, claim.task)
        assert found is not None
        return found


@pytest.fixture
def led(store: Engine, term: Term) -> Iterator[Led]:
    led = Led(store, term)
    led.term.start()
    yield led
    led.term.stop()


@pytest.fixture
def impatient(store: Engine, term: Term) -> Iterator[Led]:
    """It takes a worker for silent after a few seconds."""
    led = Led(store, term, heartbeat_s=SILENT_S)
    led.term.start()
    yield led
    led.term.stop()


@pytest.fixture
def hasty(store: Engine, term: Term) -> Iterator[Led]:
    """It takes a worker for silent at once."""
    led = Led(store, term, heartbeat_s=SOON_SILENT_S)
    led.term.start()
    yield led
    led.term.stop()


def test_a_job_that_is_submitted_is_admitted_without_waiting_for_a_pass(led: Led) -> None:
    led.register("w1")
    job = led.submit()

    assert led.claim_of(job, "w1").attempt == 1


def test_a_goodbye_gives_everything_back_at_once_and_counts_no_failure(led: Led) -> None:
    led.register("w1")
    led.register("w2")
    job = led.submit(retry_times=0)
    claim = led.claim_of(job, "w1")
    led.sync("w1", claim)

    led.term.goodbye(Goodbye(worker="w1"))

    assert not led.registered("w1")
    assert led.task(claim).status is TaskStatus.PLANNED
    assert led.task(claim).failures == 0
    assert led.sync("w2") == [Claim(claim.task, 2)]


def test_a_goodbye_of_a_worker_whose_jvm_died_counts_what_it_held(led: Led) -> None:
    """What it had not begun goes to others for nothing."""
    led.register("w1")
    job = led.submit(retry_times=1)
    claim = led.claim_of(job, "w1")
    led.term.goodbye(Goodbye(worker="w1", cause=FailureCause.KILLED))
    assert (led.task(claim).status, led.task(claim).losses) == (TaskStatus.PLANNED, 0)

    led.register("w2")
    [claim] = led.sync("w2")
    led.sync("w2", claim)
    led.term.goodbye(Goodbye(worker="w2", cause=FailureCause.KILLED))

    task = led.task(claim)
    assert (task.status, task.failures, task.losses) == (TaskStatus.PLANNED, 0, 1)
    assert task.failure_cause is FailureCause.KILLED
    assert task.error == (
        "Spark's JVM on worker w2 was killed by SIGKILL, as the kernel does when memory runs out"
    )


@pytest.mark.req("D4")
def test_a_goodbye_takes_the_last_reports_first(led: Led) -> None:
    led.register("w1")
    job = led.submit()
    claim = led.claim_of(job, "w1")

    led.term.goodbye(Goodbye(worker="w1", reports=(*whole_run(claim), a_failure(claim))))

    eventually(lambda: led.status(job) is JobStatus.FINISHED)


def test_saying_goodbye_twice_is_saying_it_once(led: Led) -> None:
    led.register("w1")
    led.term.goodbye(Goodbye(worker="w1"))
    led.term.goodbye(Goodbye(worker="w1"))

    assert not led.registered("w1")


def test_registering_twice_is_registering_once(led: Led) -> None:
    led.register("w1")
    led.register("w1")

    with reading(led.store) as conn:
        assert len(workers.registered(conn)) == 1


def test_a_silent_worker_is_found_however_much_news_there_is(hasty: Led) -> None:
    hasty.register("silent")
    stop = threading.Event()

    def chatter() -> None:
        while not stop.wait(LOOK_S):
            hasty.term.look_again()

    with ThreadPoolExecutor(1) as pool:
        pool.submit(chatter)
        try:
            eventually(lambda: not hasty.registered("silent"))
        finally:
            stop.set()


def test_a_worker_that_registers_late_in_a_term_is_not_taken_for_silent(
    impatient: Led,
) -> None:
    """A pass sees the row before the route has done anything else."""
    expired: list[bool] = []
    roster = impatient.term.liveness
    eventually(lambda: roster.expired("w1"))  # so long has this term lasted

    def look() -> None:
        if impatient.registered("w1"):
            expired.append(roster.expired("w1"))

    arm("sync committed, before answer", look)
    impatient.register("w1")

    assert expired == [False]


def test_a_pass_that_fails_is_not_the_last(hasty: Led, monkeypatch: pytest.MonkeyPatch) -> None:
    really = WorkerExpiry.keys
    failed = threading.Event()

    def keys(self: WorkerExpiry, engine: Engine) -> object:
        if not failed.is_set():
            failed.set()
            raise ZeroDivisionError
        return really(self, engine)

    monkeypatch.setattr(WorkerExpiry, "keys", keys)
    hasty.register("silent")

    assert failed.wait(BOUND_S)
    eventually(lambda: not hasty.registered("silent"))


def test_a_broken_job_is_counted_and_stops_nobody(
    led: Led, monkeypatch: pytest.MonkeyPatch
) -> None:
    really = JobReconciler.due

    def due(self: JobReconciler, conn: object, key: str) -> bool:
        if key == "broken":
            raise ZeroDivisionError
        return really(self, conn, key)  # type: ignore[arg-type]

    monkeypatch.setattr(JobReconciler, "due", due)
    led.commands.submit(spec(), submission_key="b", job_id="broken", group="default")
    led.register("w1")
    job = led.submit()

    eventually(lambda: led.status(job) is JobStatus.SCHEDULED)
    eventually(lambda: led.metrics.registry.get_sample_value("headrace_reconcile_failures_total"))


@pytest.mark.req("L1", "L3")
def test_a_term_that_is_fenced_ends_by_itself_and_wakes_whoever_is_parked(
    led: Led, store: Engine
) -> None:
    async def scene() -> bool:
        parked = asyncio.create_task(
            led.notifier.wait("w1", "default", frozenset(), timeout_s=BOUND_S)
        )
        await asyncio.sleep(0)
        await asyncio.to_thread(take)
        return await parked

    def take() -> None:
        with writing(store) as conn:
            assert leases.take(conn, leases.read(conn), holder="rival", address="http://r:1")
        led.commands.submit(spec(), submission_key="x", group="default")
        led.term.look_again()

    assert asyncio.run(scene())
    assert led.leadership.over.is_set()
    with pytest.raises(NotLeader):
        led.sync("w1")


@pytest.mark.req("L2")
def test_parked_workers_are_woken_before_the_term_has_stopped(led: Led) -> None:
    async def scene() -> bool:
        parked = asyncio.create_task(
            led.notifier.wait("w1", "default", frozenset(), timeout_s=BOUND_S)
        )
        await asyncio.sleep(0)
        stopping = asyncio.create_task(asyncio.to_thread(led.term.stop))
        rung = await parked
        await stopping
        return rung

    assert asyncio.run(scene())


def test_a_new_task_wakes_a_parked_worker(led: Led) -> None:
    led.register("w1")

    async def scene() -> bool:
        parked = asyncio.create_task(
            led.notifier.wait("w1", "default", frozenset({Lane.SLOT}), timeout_s=BOUND_S)
        )
        await asyncio.sleep(0)
        await asyncio.to_thread(led.submit)
        return await parked

    assert asyncio.run(scene())
    with reading(led.store) as conn:
        assert not claims.assigned_to(conn, ["w1"])
