"""A full pass of the leader over 5,000 and 20,000 open jobs, on PostgreSQL.

Three of four jobs run and one waits for a slot, in groups whose slots are all taken; nothing has
happened to any of them, as in most of the passes that a leader makes twice a second. Peer: one
plain SELECT of the rows of all open jobs with their pipelines, in turn with ours. That is the least
that a pass costs which looks at every job; the program before looked at each by several reads of
its own, and its figures are kept here.

What happens is measured, too: how long it takes until all jobs are stopped that were canceled at
once, and how long meanwhile nobody looked for workers that fell silent.
"""

from __future__ import annotations

import time
from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Engine, insert, select, text, update

from bench.figures import Side, in_turns, middle, percentile, rounded
from bench.processes import NotMeasured
from bench.result import Result, made, say
from bench.stores import opened, stores, workplace
from headrace.clock import SystemClock
from headrace.coordinator.context import CoordinatorSettings, Metrics
from headrace.coordinator.leadership.leader import Leadership
from headrace.coordinator.leadership.term import PASS_INTERVAL_S, LeaderTerm
from headrace.coordinator.sync.notifier import WorkerNotifier
from headrace.model.ids import RandomIds
from headrace.model.jobs.status import JobStatus, PipelineStatus
from headrace.model.task import Lane, TaskKind, TaskStatus
from headrace.protocol.messages import Progress
from headrace.store.core import leases
from headrace.store.core.engine import reading, writing
from headrace.store.core.transactions import Term
from headrace.store.jobs.schema import OPEN_JOB, epochs, jobs, pipelines
from headrace.store.tasks import claims
from headrace.store.tasks.schema import tasks, workers

JOBS, GROWN = 5_000, 20_000
QUICK_SHARE = 10
WAITING_SHARE = 4  # one of so many waits
GROUPS = 5
SLOTS_OF_WORKER = 25
PAIRS, PAIRS_QUICK = 15, 5
WARM_UP_PAIRS = 3
SETTLING_PASSES_MAX = 400  # before a leader has seen all that it inherits
AIM_S = 0.2
INSERT_BATCH = 2_000
TTL_S = 86_400.0  # no rival, and no renewal
STOPPED_MAX_S = 600.0
PEER_IS = "one SELECT of the rows of all open jobs with their pipelines; median, in turn with ours"
# Of the program that looked at every open job in every pass, measured by this bench on a machine of
# two cores, at a load of 8 to 15.
BEFORE: Mapping[int, Mapping[str, Any]] = {
    5_000: {
        "commit": "6c36ae5",
        "pass_s": 6.666,
        "peer_s": 0.638,
        "pass_s_in_turn": [3.979, 3.554, 6.666, 6.712, 8.439],
        "first_pass_s": 11.898,
        "all_canceled_at_once": {
            "all_stopping_after_s": 173.7,
            "longest_pass_s": 173.212,
            "longest_without_a_look_at_workers_s": 173.216,
        },
    },
    20_000: {
        "commit": "6c36ae5",
        "pass_s": 19.42,
        "peer_s": 2.74,
        "pass_s_in_turn": [19.42, 19.057, 25.188],
        "first_pass_s": 75.847,
    },
}


def run(*, quick: bool) -> Iterator[Result]:
    with workplace("passes") as folder, stores("postgresql", folder) as made_here:
        for count in (JOBS, GROWN):
            share = count // QUICK_SHARE if quick else count
            with opened(made_here.make()) as engine:
                yield _measure(engine, share, quick=quick, promised=count == JOBS)


def _measure(engine: Engine, count: int, *, quick: bool, promised: bool) -> Result:
    say(f"{count:,} open jobs: writing them")
    waiting = count // WAITING_SHARE
    _fill(engine, running=count - waiting, waiting=waiting)
    with _leading(engine) as leader:
        settled = leader.settle()
        pairs = PAIRS_QUICK if quick else PAIRS
        ours, theirs = in_turns(leader.measure, pairs=pairs, warm_up_pairs=WARM_UP_PAIRS)
        say(f"{count:,} open jobs: {middle(ours):.3f} s a pass")
        canceled = leader.cancel_all() if promised else None
    number, words = AIM_S, f"a full pass under {AIM_S:g} s with {JOBS:,} open jobs"
    return made(
        f"passes_{count}",
        ours=middle(ours),
        peer=middle(theirs),
        unit="s",
        aim=(number, words) if promised else (None, "no promise: how it grows"),
        met=middle(ours) < AIM_S if promised else None,
        ours_is="a full pass over jobs to which nothing happened, workers first; median",
        peer_is=PEER_IS,
        open_jobs=count,
        waiting_jobs=waiting,
        pass_s_in_turn=rounded(ours),
        pass_s_p99=round(percentile(ours, 0.99), 3),
        first_passes=settled,
        all_canceled_at_once=canceled,
        before=BEFORE.get(count),
    )


def _batches(rows: Sequence[Mapping[str, Any]]) -> Iterator[Sequence[Mapping[str, Any]]]:
    for first in range(0, len(rows), INSERT_BATCH):
        yield rows[first : first + INSERT_BATCH]


def _fill(engine: Engine, *, running: int, waiting: int) -> None:
    """Write the jobs as a leader would have left them, with a worker for the running ones."""
    now_ms = SystemClock().wall_ms()
    held = -(-running // SLOTS_OF_WORKER)
    rows: dict[Any, list[Mapping[str, Any]]] = {
        each: [] for each in (workers, jobs, pipelines, tasks, epochs)
    }
    for number in range(held):
        rows[workers].append(_worker(number, now_ms, running))
    for number in range(running + waiting):
        _add_job(rows, number, now_ms, runs=number < running)
    with writing(engine) as conn:
        for table, all_rows in rows.items():
            for batch in _batches(all_rows):
                conn.execute(insert(table), batch)
    with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as conn:
        conn.execute(text("VACUUM ANALYZE"))


def _worker(number: int, now_ms: int, running: int) -> Mapping[str, Any]:
    """A worker whose slots are all taken."""
    left = running - number * SLOTS_OF_WORKER
    about = {"version": "bench", "host": "bench", "pid": 1, "spark_application": "none"}
    times = {"registered_at_ms": now_ms, "seen_at_ms": now_ms}
    slots = {"slots": min(SLOTS_OF_WORKER, left), "control_slots": 1}
    return {"id": f"w{number:05}", "group_name": _group(number), **slots, **about, **times}


def _group(worker: int) -> str:
    return f"group-{worker % GROUPS}"


def _add_job(
    rows: Mapping[Any, list[Mapping[str, Any]]], number: int, now_ms: int, *, runs: bool
) -> None:
    id_, worker = f"{number:032x}", number // SLOTS_OF_WORKER
    rows[jobs].append(
        {
            "id": id_,
            "incarnation": f"i{id_}",
            "submission_key": f"k{id_}",
            "name": "bench",
            "group_name": _group(worker if runs else number),
            "spec": _spec(),
            "status": JobStatus.RUNNING if runs else JobStatus.PENDING,
            "waits_for": None if runs else "its turn",
            "created_at_ms": now_ms,
            "started_at_ms": now_ms if runs else None,
            "queue_number": number + 1,
        }
    )
    rows[pipelines].append(
        {
            "job_id": id_,
            "number": 1,
            "status": PipelineStatus.RUNNING if runs else PipelineStatus.CREATED,
            "task_id": f"t{id_}" if runs else None,
            "epoch": 7 if runs else 0,
            "positions": {"fake": {"offset": 7_000}},
            "commits": {},
        }
    )
    if runs:
        rows[tasks].append(_task(id_, worker, now_ms))
        rows[epochs].append(_epoch(id_, now_ms))


def _task(job: str, worker: int, now_ms: int) -> Mapping[str, Any]:
    return {
        "id": f"t{job}",
        "kind": TaskKind.PIPELINE,
        "lane": Lane.SLOT,
        "group_name": _group(worker),
        "job_id": job,
        "pipeline": 1,
        "payload": {"retry_times": 3, "retry_interval_s": 1},
        "status": TaskStatus.ACKED,
        "attempt": 1,
        "worker_id": f"w{worker:05}",
        "assigned_term": 1,
        "assigned_number": 1,
        "created_at_ms": now_ms,
        "scheduled_at_ms": now_ms,
    }


def _epoch(job: str, now_ms: int) -> Mapping[str, Any]:
    return {
        "incarnation": f"i{job}",
        "pipeline": 1,
        "epoch": 7,
        "job_id": job,
        "kind": "CHECKPOINT",
        "status": "COMPLETED",
        "plan": {"fake": {"from": 6_000, "to": 7_000}},
        "execution": f"t{job}.1",
        "planned_at_ms": now_ms,
        "ended_at_ms": now_ms,
    }


def _spec() -> Mapping[str, Any]:
    plugin = {"options": {"row.num": 1_000, "schema": {"fields": {"id": "bigint"}}}}
    source = {"name": "fake", "plugin": "FakeSource", **plugin}
    sink = {"name": "iceberg", "plugin": "Iceberg", "options": {"table": "db.rows"}}
    graph = {"number": 1, "sources": [source], "transforms": [], "sinks": [sink]}
    return {"name": "bench", "env": {}, "pipelines": [graph]}


@dataclass(slots=True)
class _Leader:
    """A term without threads: its passes are made here, one by one."""

    engine: Engine
    term: LeaderTerm

    def settle(self) -> Mapping[str, Any]:
        """Make passes until one writes nothing more; how long the first ones take."""
        took_s: list[float] = []
        while len(took_s) < SETTLING_PASSES_MAX:
            before = self._writes()
            took_s.append(self._pass())
            if self._writes() == before:
                return {"passes": len(took_s), "first_s": round(took_s[0], 3)}
        raise NotMeasured("the passes never come to rest")

    def measure(self, side: Side) -> float:
        if side == "ours":
            return self._pass()
        begun_s = time.perf_counter()
        with reading(self.engine) as conn:
            both = select(jobs, pipelines).join(pipelines, pipelines.c.job_id == jobs.c.id)
            conn.execute(both.where(OPEN_JOB)).all()
        return time.perf_counter() - begun_s

    def cancel_all(self) -> Mapping[str, Any]:
        """Cancel every job at once: until all are stopping, how long a pass takes, and how long
        nobody looks for silent workers. Full passes come as often as in a real term."""
        gaps_s, passes_s = [0.0], [0.0]
        looked_s = begun_s = time.perf_counter()
        with writing(self.engine) as conn:
            conn.execute(update(jobs).where(OPEN_JOB).values(wanted_cancel=1, due_at_ms=0))
        while self._left():
            now_s = time.perf_counter()
            if everything := now_s - looked_s >= PASS_INTERVAL_S:
                gaps_s.append(now_s - looked_s)
            passes_s.append(self._pass(everything=everything))
            looked_s = time.perf_counter() if everything else looked_s
            if time.perf_counter() - begun_s > STOPPED_MAX_S:
                raise NotMeasured("not all jobs are stopping")
        gaps_s.append(time.perf_counter() - looked_s)
        return {
            "all_stopping_after_s": round(time.perf_counter() - begun_s, 1),
            "longest_pass_s": round(max(passes_s), 3),
            "longest_without_a_look_at_workers_s": round(max(gaps_s), 3),
        }

    def _left(self) -> bool:
        running = (JobStatus.RUNNING, JobStatus.PENDING)
        with reading(self.engine) as conn:
            left = select(jobs.c.id).where(jobs.c.status.in_(running)).limit(1)
            return conn.scalar(left) is not None

    def _pass(self, *, everything: bool = True) -> float:
        begun_s = time.perf_counter()
        self.term.make_pass(everything=everything)
        return time.perf_counter() - begun_s

    def _writes(self) -> int:
        with self.engine.connect() as conn:
            return int(conn.scalar(text("SELECT pg_current_wal_insert_lsn() - '0/0'")) or 0)


@contextmanager
def _leading(engine: Engine) -> Generator[_Leader]:
    clock = SystemClock()
    with writing(engine) as conn:
        term = leases.take(conn, leases.read(conn), holder="bench", address="")
    if term is None:
        raise NotMeasured("the lease could not be taken")
    won = Leadership.won(term, asked_at_s=clock.monotonic_s(), ttl_s=TTL_S)
    options = CoordinatorSettings("", "", heartbeat_timeout_s=TTL_S, ack_timeout_s=TTL_S)
    leading = LeaderTerm(
        engine, won, clock, RandomIds(), WorkerNotifier(), Metrics(), options=options
    )
    _hear_all(engine, leading, term)
    try:
        yield _Leader(engine, leading)
    finally:
        won.over.set()  # its threads end as soon as they begin
        leading.start()
        leading.stop()


def _hear_all(engine: Engine, leading: LeaderTerm, term: Term) -> None:
    """What the leader would know after a sync of each worker."""
    with reading(engine) as conn:
        known = [id_ for (id_,) in conn.execute(select(workers.c.id))]
        for worker in known:
            leading.liveness.note_sync(worker, 1)
            held = claims.assigned_to(conn, [worker])
            progress = Progress(step="running", epoch=8, activity=term.epoch)
            leading.liveness.monitor.note_progress(worker, [(task, progress) for task in held])
