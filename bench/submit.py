"""Submit to start: from the POST of a job to its assignment in the hands of a parked worker.

Submitted to the leader, and to another coordinator on the same store, which has to wake the
leader first. Peer: the bare way of waking somebody through that store.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import AsyncGenerator, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench import peer_wake
from bench.figures import in_ms, percentile, reaches, turns
from bench.http import Line, line_to
from bench.processes import Coordinator, NotMeasured, coordinator, leading
from bench.result import Result, made
from bench.simulated import SimulatedWorker
from bench.stores import KINDS, Stores, stores, workplace
from headrace.jobfile.reader import read_job

SUBMITS, SUBMITS_QUICK = 100, 20
WARM_UP = 10
PARKED = 32  # workers, all of which could take the job
BETWEEN_MIN_S, BETWEEN_MAX_S = 0.02, 0.08  # at random, or submits fall in step with a poll
SEED = 1
ARRIVE_MAX_S = 10.0
RUN_MAX_S = 120.0
AIM_MS = 25.0
GROUP = "bench"
JOB = """
env { job.mode = "BATCH" }
source { FakeSource { plugin_output = "rows", row.num = 1,
                      schema { fields { id = "bigint" } } } }
sink { Console { plugin_input = "rows" } }
"""


def run(*, quick: bool) -> Iterator[Result]:
    for kind in KINDS:
        with workplace("submit") as folder, stores(kind, folder) as made_here:
            yield _measure(made_here, folder, quick=quick)


def _measure(made_here: Stores, folder: Path, *, quick: bool) -> Result:
    count = SUBMITS_QUICK if quick else SUBMITS
    url = made_here.make()
    with leading(url, folder=folder) as leader, coordinator(url, folder=folder, name="other") as by:
        try:
            took = asyncio.run(_submits({"same": leader, "other": by}, leader, count=count))
        except TimeoutError as error:
            raise NotMeasured(f"the submits took longer than {RUN_MAX_S:.0f} s") from error
        peer_s = peer_wake.measure(made_here.make(), count=count)
    ours = max(percentile([each.arrived_s for each in found], 0.5) for found in took.values())
    return made(
        f"submit_{made_here.kind}",
        ours=in_ms(ours),
        peer=in_ms(percentile(peer_s, 0.5)),
        unit="ms, p50",
        aim=(AIM_MS, f"p50 under {AIM_MS:.0f} ms, also by way of another coordinator"),
        met=reaches(in_ms(ours), AIM_MS, better="lower"),
        ours_is="the slower of the two ways",
        same_coordinator=_steps(took["same"]),
        other_coordinator=_steps(took["other"]),
        peer_is=peer_wake.WHAT[made_here.kind],
        peer_latency=_shown(peer_s),
        submits_each=count,
        workers_parked=PARKED,
    )


def _shown(took_s: Sequence[float]) -> Mapping[str, float]:
    found = {f"p{round(share * 100)}_ms": percentile(took_s, share) for share in (0.5, 0.9, 0.99)}
    return {name: in_ms(value) for name, value in found.items()}


def _steps(took: Sequence[Took]) -> Mapping[str, float]:
    """The whole way, and how long the steps on it took in the middle."""
    return {
        **_shown([each.arrived_s for each in took]),
        "submit_answered_p50_ms": in_ms(percentile([each.answered_s for each in took], 0.5)),
        "worker_woken_p50_ms": in_ms(percentile([each.woken_s for each in took], 0.5)),
    }


@dataclass(frozen=True, slots=True)
class Took:
    """Seconds since the submit began."""

    answered_s: float  # the submit itself
    woken_s: float  # a parked worker
    arrived_s: float  # the assignment, with the sync that follows


class Arrivals:
    """When each job reached a worker."""

    def __init__(self) -> None:
        self._expected: dict[str, asyncio.Future[tuple[float, float]]] = {}

    def _of(self, job: str) -> asyncio.Future[tuple[float, float]]:
        return self._expected.setdefault(job, asyncio.get_running_loop().create_future())

    def note(self, assignment: Mapping[str, Any], *, woken_s: float) -> None:
        arrived = self._of(assignment["payload"]["job"])
        if not arrived.done():
            arrived.set_result((woken_s, time.perf_counter()))

    async def at_s(self, job: str) -> tuple[float, float]:
        """When its worker was woken, and when it had it; also before its submit was answered."""
        return await asyncio.wait_for(self._of(job), ARRIVE_MAX_S)


async def _submits(
    ways: Mapping[str, Coordinator], leader: Coordinator, *, count: int
) -> Mapping[str, list[Took]]:
    took: dict[str, list[Took]] = {name: [] for name in ways}
    pauses = random.Random(SEED)
    spec = read_job("bench.conf", text=JOB).model_dump(mode="json")
    async with asyncio.timeout(RUN_MAX_S), AsyncExitStack() as opened:
        arrivals = await opened.enter_async_context(_parked(leader))
        lines = {
            name: await opened.enter_async_context(line_to(way.port)) for name, way in ways.items()
        }
        for pair, order in enumerate(turns(WARM_UP + count)):
            for who in order:  # the two ways in turn
                name = "same" if who == "ours" else "other"
                found = await _submit(lines[name], spec, f"{name}-{pair}", arrivals)
                if pair >= WARM_UP:
                    took[name].append(found)
                await asyncio.sleep(pauses.uniform(BETWEEN_MIN_S, BETWEEN_MAX_S))
    return took


async def _submit(line: Line, spec: Any, key: str, arrivals: Arrivals) -> Took:
    began_s = time.perf_counter()
    body = {"spec": spec, "submission_key": key, "group": GROUP}
    job = await line.post("/v1/jobs", body)
    answered_s = time.perf_counter()
    woken_s, arrived_s = await arrivals.at_s(job["id"])
    return Took(answered_s - began_s, woken_s - began_s, arrived_s - began_s)


@asynccontextmanager
async def _parked(leader: Coordinator) -> AsyncGenerator[Arrivals]:
    """Workers that park at the leader, take what comes and say that it is done."""
    arrivals = Arrivals()

    async def serve(worker: SimulatedWorker) -> None:
        while True:
            await worker.wait()
            woken_s = time.perf_counter()
            await worker.sync()
            while worker.holds:
                for assignment in worker.holds:
                    arrivals.note(assignment, woken_s=woken_s)
                await worker.sync()

    async with AsyncExitStack() as lines, asyncio.TaskGroup() as group:
        serving: list[asyncio.Task[None]] = []
        for number in range(PARKED):
            line = await lines.enter_async_context(line_to(leader.port))
            worker = SimulatedWorker(line, f"parked-{number}", GROUP)
            await worker.register()
            serving.append(group.create_task(serve(worker)))
        yield arrivals
        for task in serving:
            task.cancel()
