"""No-op tasks claimed and finished per second over HTTP, by 8, 32 and 64 simulated workers.

Each request finishes what its worker holds and claims one more; a completion is two durable
transitions. Peer: "transaction per task", which is how most queues on a database work: 8 threads,
one SKIP LOCKED transaction for a claim and one for a finish, straight to the same store. It pays
for no HTTP, so the comparison favours it.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sqlalchemy import insert

from bench import peer_tasks
from bench.figures import in_ms, middle, percentile, reaches, rounded, turns
from bench.http import line_to
from bench.processes import Coordinator, NotMeasured, leading
from bench.result import Result, made
from bench.simulated import SimulatedWorker
from bench.stores import KINDS, Stores, opened, stores, workplace
from headrace.store.core.engine import writing
from headrace.store.tasks.schema import tasks

WORKERS = (8, 32, 64)
MOST_WORKERS = 64
TASKS, TASKS_QUICK = 8_000, 2_000
ROUNDS, ROUNDS_QUICK = 4, 2
INSERT_BATCH = 1_000
POINT_MAX_S = 60.0  # one measured point, then it is given up
PEER_S = 3.0
AIM_PER_S, AIM_PER_CPU_S = 2_000.0, 4_000.0


@dataclass(frozen=True, slots=True)
class Point:
    workers: int
    per_s: float
    per_cpu_s: float
    p50_ms: float
    p99_ms: float

    def shown(self) -> Mapping[str, float]:
        return {
            "completions_per_s": round(self.per_s),
            "per_server_cpu_s": round(self.per_cpu_s),
            "request_p50_ms": self.p50_ms,
            "request_p99_ms": self.p99_ms,
        }


def run(*, quick: bool) -> Iterator[Result]:
    for kind in KINDS:
        with workplace("sync") as folder, stores(kind, folder) as made_here:
            yield _measure(made_here, folder, quick=quick)


def _measure(made_here: Stores, folder: Path, *, quick: bool) -> Result:
    count = TASKS_QUICK if quick else TASKS
    rounds = turns(ROUNDS_QUICK if quick else ROUNDS)
    store_url, peer_url = made_here.make(), made_here.make()
    points: dict[int, list[Point]] = {workers: [] for workers in WORKERS}
    peers: list[peer_tasks.Rate] = []
    with leading(store_url, folder=folder) as leader:
        _point(leader, store_url, workers=MOST_WORKERS, count=count)  # warms up both sides
        for order in rounds:
            for who in order:
                if who == "peer":
                    plan(peer_url, peer_tasks.GROUP, count * 2)
                    peers.append(peer_tasks.measure(peer_url, seconds=PEER_S))
                    continue
                for workers in WORKERS:  # fewer workers get fewer tasks, for about the same time
                    share = count * workers // MOST_WORKERS
                    found = _point(leader, store_url, workers=workers, count=share)
                    points[workers].append(found)
    return _result(made_here.kind, points, peers, count=count)


def _result(
    kind: str,
    points: Mapping[int, Sequence[Point]],
    peers: Sequence[peer_tasks.Rate],
    *,
    count: int,
) -> Result:
    most = points[MOST_WORKERS]
    ours = middle([point.per_s for point in most])
    per_cpu_s = middle([point.per_cpu_s for point in most])
    enough = reaches(ours, AIM_PER_S, better="higher")
    cheap = reaches(per_cpu_s, AIM_PER_CPU_S, better="higher")
    return made(
        f"sync_{kind}",
        ours=ours,
        peer=middle([rate.per_s for rate in peers]),
        unit="completions/s",
        aim=(
            AIM_PER_S,
            f"at least {AIM_PER_S:,.0f}/s with {MOST_WORKERS} workers, and "
            f"{AIM_PER_CPU_S:,.0f} per cpu-second of the server process",
        ),
        met=enough and cheap,
        per_s_met=enough,
        per_cpu_s_met=cheap,
        per_server_cpu_s=per_cpu_s,
        by_workers={workers: _middle_of(found).shown() for workers, found in points.items()},
        completions_per_s_in_turn=rounded([point.per_s for point in most]),
        per_server_cpu_s_in_turn=rounded([point.per_cpu_s for point in most]),
        peer_is="a transaction per claim and one per finish, 8 threads, no HTTP",
        peer_per_s_in_turn=rounded([rate.per_s for rate in peers]),
        peer_per_cpu_s=middle([rate.per_cpu_s for rate in peers]),
        tasks_of_64_workers=count,
        rounds=len(most),
        fsync="on, on disk",
    )


def _middle_of(found: Sequence[Point]) -> Point:
    return Point(
        workers=found[0].workers,
        per_s=middle([point.per_s for point in found]),
        per_cpu_s=middle([point.per_cpu_s for point in found]),
        p50_ms=middle([point.p50_ms for point in found]),
        p99_ms=middle([point.p99_ms for point in found]),
    )


def plan(store_url: str, group: str, count: int) -> None:
    """Put so many no-op tasks into the store."""
    stem = f"{group}-{time.monotonic_ns():020d}"

    def row(number: int) -> dict[str, Any]:
        return {
            "id": f"{stem}-{number:08d}",
            "kind": "NOOP",
            "lane": "SLOT",
            "group_name": group,
            "payload": {},
            "status": "PLANNED",
            "created_at_ms": 0,
        }

    with opened(store_url) as engine:
        for first in range(0, count, INSERT_BATCH):
            with writing(engine) as conn:
                last = min(first + INSERT_BATCH, count)
                conn.execute(insert(tasks), [row(number) for number in range(first, last)])


def _point(leader: Coordinator, store_url: str, *, workers: int, count: int) -> Point:
    group = f"g{workers}-{time.monotonic_ns()}"
    plan(store_url, group, count)
    try:
        return asyncio.run(_load(leader, group, workers=workers, count=count))
    except TimeoutError as error:
        raise NotMeasured(
            f"{workers} workers did not finish {count} tasks within {POINT_MAX_S:.0f} s"
        ) from error


async def _load(leader: Coordinator, group: str, *, workers: int, count: int) -> Point:
    done, took_s = 0, list[float]()

    async def work(worker: SimulatedWorker) -> None:
        """Go on until a sync brings nothing: then there is nothing left for this worker."""
        nonlocal done
        while True:
            began_s = time.perf_counter()
            finished = await worker.sync()
            done += finished  # not in one statement: others add while this one awaits
            took_s.append(time.perf_counter() - began_s)
            if not worker.holds:
                return

    async with asyncio.timeout(POINT_MAX_S), AsyncExitStack() as lines:
        crew = [
            SimulatedWorker(
                await lines.enter_async_context(line_to(leader.port)), f"{group}-{number}", group
            )
            for number in range(workers)
        ]
        for worker in crew:
            await worker.register()
        cpu_s, began_s = leader.child.cpu_s(), time.perf_counter()
        await asyncio.gather(*(work(worker) for worker in crew))
        wall_s, cpu_s = time.perf_counter() - began_s, leader.child.cpu_s() - cpu_s
        for worker in crew:
            await worker.goodbye()
    if done != count:
        raise NotMeasured(f"{done} of {count} tasks were finished")
    return Point(
        workers=workers,
        per_s=done / wall_s,
        per_cpu_s=done / cpu_s,
        p50_ms=in_ms(percentile(took_s, 0.5)),
        p99_ms=in_ms(percentile(took_s, 0.99)),
    )
