"""A thousand redeploys leave nothing behind, and Spark's own work is seen as it is done."""

from __future__ import annotations

import gc
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import httpx2
import pytest

from headrace.clock import SystemClock
from headrace.model.jobs.epoch import EpochStatus
from headrace.model.jobs.spec import EnvSpec, PipelineSpec, PluginSpec
from headrace.model.task import Claim, Lane, TaskKind
from headrace.protocol.messages import (
    Acknowledged,
    Assignment,
    EpochPlan,
    EpochPlanned,
    EpochPrepared,
    OpenEpoch,
    PipelinePayload,
    Restore,
    TaskEnded,
)
from headrace.spark.jvm_bridge import jvm, scala_context, singleton
from headrace.worker import sync_loop
from headrace.worker.client import LeaderClient
from headrace.worker.execution import Execution
from headrace.worker.jvm_monitor import Spark
from headrace.worker.outbox import Outbox
from headrace.worker.runner import Runner
from headrace.worker.sync_loop import SyncLoop
from headrace.worker.warm_session import WarmSpark, task_session
from tests.crash.cluster import until
from tests.fakes import registration
from tests.spark.folder import lines
from tests.worker.leader import Leader, eventually

LOCATIONS = 10
REDEPLOYS = 1000
WARM_UP = 50
BUSY_EVERY = 10  # attempts: so many of them are more than a session
SETTLE_MAX_S = 240.0
SLOW = "reflect('java.lang.Thread', 'sleep', 300L)"  # in the JVM: a task that lasts
SLACK = LOCATIONS  # at either look, so many executions may be between two steps
_TABLE_CACHE = "org.apache.iceberg.spark.SparkTableCache"


@dataclass(frozen=True, slots=True)
class Left:
    """What executions could leave behind in this process and its JVM."""

    listeners: int  # each session with settings of its own has one
    jvm_threads: int
    threads: int
    cached: bool
    cached_tables: int

    @classmethod
    def of(cls, warm: WarmSpark) -> Left:
        collect_garbage(warm)
        context, java = scala_context(warm.session), jvm(warm.session).java.lang
        own = cast("Any", warm.session._jsparkSession)  # pyright: ignore
        return cls(
            listeners=context.listenerBus().listeners().size(),
            jvm_threads=java.management.ManagementFactory.getThreadMXBean().getThreadCount(),
            threads=threading.active_count(),
            cached=not own.sharedState().cacheManager().isEmpty(),
            cached_tables=singleton(warm.session, _TABLE_CACHE).size(),
        )

    def within(self, before: Left) -> bool:
        return (
            self.listeners <= before.listeners + SLACK
            and self.jvm_threads <= before.jvm_threads + SLACK
            and self.threads <= before.threads + SLACK
            and (self.cached, self.cached_tables) == (before.cached, before.cached_tables)
        )


def collect_garbage(warm: WarmSpark) -> None:
    gc.collect()  # Python's proxies keep what they stand for alive
    jvm(warm.session).java.lang.System.gc()


class Work:
    """What each execution does: a session, now and then with views and settings in it."""

    def __init__(self, warm: WarmSpark) -> None:
        self._warm = warm
        self._lock = threading.Lock()
        self._sessions: list[Any] = []
        self.started: list[str] = []
        self.running: set[str] = set()
        self.overlaps = 0
        self.foreign_tags: set[str] = set()

    def sessions_left(self) -> int:
        """Sessions of executions that the JVM still has after a full collection."""
        collect_garbage(self._warm)
        return sum(not session.refersTo(None) for session in self._sessions)

    def run(self, execution: Execution) -> Mapping[str, Any] | None:
        task = execution.claim.task
        with self._lock:
            self.started.append(execution.id)
            self.overlaps += task in self.running
            self.running.add(task)
        try:
            with task_session(self._warm, execution.id) as session:
                if execution.claim.attempt % BUSY_EVERY == 0:  # the first setting costs 30 ms
                    session.conf.set("spark.sql.shuffle.partitions", "3")
                    session.range(1).createOrReplaceTempView("mine")
                    self.foreign_tags |= set(session.sparkContext.getJobTags()) - {execution.id}
                java: Any = session._jsparkSession  # pyright: ignore
                self._sessions.append(jvm(session).java.lang.ref.WeakReference(java))
                execution.wait(1000.0)  # until the next one at this location has it stopped
        finally:
            with self._lock:
                self.running.discard(task)
        return None


def a_sync_loop(warm: WarmSpark, leader: Leader, work: Work, home: Path) -> SyncLoop:
    transport = httpx2.MockTransport(leader)
    clients = [LeaderClient(["http://a:1"], token=None, transport=transport) for _ in range(2)]
    return SyncLoop(
        registration("w1", slots=LOCATIONS, application=warm.application),
        clients[0],
        clients[1],
        lambda posted: Outbox(home / "w1", posted=posted),
        {TaskKind.NOOP: work.run},
        Spark(warm.alive, warm.cancel, warm.rows_written, warm.tasks_finished),
        SystemClock(),
    )


def redeploy(leader: Leader, work: Work, attempt: int) -> None:
    """A new execution at each location, each of them given twice; the older ones are stopped."""
    claims = [Claim(f"t{n}", attempt) for n in range(LOCATIONS)]
    given = [
        Assignment(claim=claim, kind=TaskKind.NOOP, lane=Lane.SLOT, payload={}) for claim in claims
    ]
    leader.give = [*given, *given]
    eventually(lambda: {claim.execution for claim in claims} <= set(work.started[-2 * LOCATIONS :]))


@pytest.mark.req("D2")
def test_a_thousand_redeploys_leave_no_session_tag_cache_entry_thread_or_file_behind(
    warm: WarmSpark, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for interval in ("BUSY_SYNC_INTERVAL_S", "IDLE_SYNC_INTERVAL_S"):
        monkeypatch.setattr(sync_loop, interval, 0.01)
    leader, work = Leader(), Work(warm)
    loop = a_sync_loop(warm, leader, work, tmp_path)
    thread = threading.Thread(target=loop.run, daemon=True)
    thread.start()
    attempts = iter(range(1, (WARM_UP + REDEPLOYS) // LOCATIONS + 1))
    for _ in range(WARM_UP // LOCATIONS):
        redeploy(leader, work, next(attempts))
    before = Left.of(warm)
    pool = warm.take_pool()
    warm.give_pool_back(pool)

    for attempt in attempts:
        redeploy(leader, work, attempt)

    until(lambda: Left.of(warm).within(before), limit_s=SETTLE_MAX_S, what=f"{before} again")
    until(
        lambda: work.sessions_left() <= LOCATIONS + SLACK,
        limit_s=SETTLE_MAX_S,
        what="no session is left but those of executions that run",
    )
    assert len(work.started) == len(set(work.started)) == WARM_UP + REDEPLOYS
    assert work.overlaps == 0, "the older execution had ended"
    assert warm.take_pool() <= pool + LOCATIONS
    warm.give_pool_back(pool)
    loop.stop()
    thread.join(SETTLE_MAX_S)
    assert not thread.is_alive()
    assert work.foreign_tags == set()
    assert list(tmp_path.iterdir()) == [], "no end is kept on disk"


class FileJob:
    """Three rows into a folder, by one execution after another, as a coordinator would have it."""

    def __init__(self, warm: WarmSpark, home: Path) -> None:
        self.folder = home / "rows"
        self.outbox = Outbox(home / "outbox" / "w1", posted=self._answer)
        self._runner = Runner(warm, SystemClock(), warehouse="file:/nowhere")
        self._plan: EpochPlan | None = None
        self._keeps_claim = True
        self.ends: list[TaskEnded] = []

    def _answer(self) -> None:
        for report in self.outbox.pending(10):
            plan, held = None, True
            if isinstance(report, EpochPlanned):
                self._plan = self._plan or EpochPlan.model_validate(report.plan)
                plan = self._plan.model_dump(mode="json")
            elif isinstance(report, EpochPrepared):
                held = self._keeps_claim
            elif isinstance(report, TaskEnded):
                self.ends.append(report)
            self.outbox.acknowledge([Acknowledged(seq=report.seq, held=held, plan=plan)])

    def deploy(self, attempt: int, *, keeps_claim: bool) -> TaskEnded:
        self._keeps_claim = keeps_claim
        planned = EpochStatus.PLANNED
        left = (OpenEpoch(epoch=1, status=planned, plan=self._plan),) if self._plan else ()
        options: dict[str, Any] = {"row.num": 3, "schema": {"fields": {"id": "int"}}}
        sink: dict[str, Any] = {"path": str(self.folder), "file_format_type": "csv"}
        payload = PipelinePayload(
            job="j1",
            incarnation="i1",
            env=EnvSpec(),
            pipeline=PipelineSpec(
                number=1,
                sources=(PluginSpec(name="F", plugin="FakeSource", options=options, output="t"),),
                sinks=(PluginSpec(name="L", plugin="LocalFile", options=sink, inputs=("t",)),),
            ),
            restore=Restore(open=left),
        )
        task = Assignment(
            claim=Claim("t", attempt),
            kind=TaskKind.PIPELINE,
            lane=Lane.SLOT,
            payload=payload.model_dump(mode="json"),
        )
        execution = Execution(task, self.outbox, self._runner.pipeline)
        execution.start()
        assert execution.ended.wait(SETTLE_MAX_S)
        return self.ends[-1]

    def staged(self) -> set[str]:
        """Executions of which something is left beside the manifests, which stay."""
        found = (self.folder / "_headrace").rglob("*")
        return {
            part
            for file in found
            if file.is_file() and file.suffix != ".json"
            for part in file.relative_to(self.folder).parts
            if part.startswith("t.")
        }


@pytest.mark.req("D2")
def test_redeploys_that_lost_their_claim_leave_no_staged_file_behind(
    warm: WarmSpark, tmp_path: Path
) -> None:
    job = FileJob(warm, tmp_path)
    for attempt in range(1, 4):
        assert job.deploy(attempt, keeps_claim=False).outcome == "FAILED"
    assert job.staged() == {"t.1", "t.2", "t.3"}

    end = job.deploy(4, keeps_claim=True)

    assert (end.outcome, end.error) == ("SUCCESS", None)
    assert len(lines(job.folder)) == 3
    assert job.staged() == set()
    job.outbox.close()


@pytest.mark.req("D5")
def test_a_finished_spark_task_is_seen_while_its_job_runs(warm: WarmSpark) -> None:
    name, over = "finishing", threading.Event()
    assert warm.tasks_finished(name) == warm.tasks_finished(name)

    def run() -> None:
        with task_session(warm, name) as session:
            slow = session.range(0, 10, 1, 10).selectExpr(SLOW)  # ten tasks, two at a time
            slow.write.format("noop").mode("overwrite").save()
        over.set()

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    seen: list[tuple[int, int]] = []
    while not over.wait(0.05):
        seen.append(warm.tasks_finished(name))
    thread.join(SETTLE_MAX_S)

    during = {tasks for _, tasks in seen if 0 < tasks < 10}
    assert len(during) > 1, seen
    until(
        lambda: warm.tasks_finished(name)[1] == 10, limit_s=SETTLE_MAX_S, what="all ten are counted"
    )
