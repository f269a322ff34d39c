"""From SIGKILL of the leader to the next completed epoch of a job that streams.

With a standby that follows already, and with a coordinator that is started at the kill, where the
dead one was. The worker stays, and so does the execution. Kills are spread evenly over an epoch,
and the time is the one that the store has for the first epoch completed after the death, by the
clock of the same machine.

Peers, measured in turn with the kills: of the standby the same wait without a kill, which is
what the job would have taken anyway; of the start a bare server, started until it answers.
"""

from __future__ import annotations

import time
from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from sqlalchemy import Engine

from bench import bare
from bench.figures import middle, percentile, reaches, rounded
from bench.processes import (
    START_MAX_S,
    Coordinator,
    NotMeasured,
    child,
    coordinator,
    free_port,
    until,
)
from bench.result import Result, made, say
from bench.stores import KINDS, Stores, opened, stores, workplace
from headrace.client.client import Client
from headrace.jobfile.reader import read_job
from headrace.model.jobs.epoch import EpochStatus
from headrace.store.core.engine import reading
from headrace.store.jobs import epochs, jobs

Way = Literal["standby", "started"]
AIMS_S: Mapping[Way, float] = {"standby": 5.0, "started": 10.0}
SEATS: Mapping[Way, int] = {"standby": 2, "started": 1}
KILLS, KILLS_QUICK = 20, 3
EPOCH_MS = 500
NEXT_EPOCH_MAX_S = 60.0
FIRST_EPOCH_MAX_S = 180.0  # Spark starts
CANCEL_MAX_S = 60.0
EPOCHS_LOOKED_AT = 20
ROWS_A_SPLIT, SPLITS = 100, 10_000  # more splits than any run reads

JOB = f"""
env {{ job.mode = "STREAMING", checkpoint.interval = {EPOCH_MS} }}
source {{
  FakeSource {{
    plugin_output = "made"
    row.num = {SPLITS * ROWS_A_SPLIT}
    split.num = {SPLITS}
    split.read-interval = {EPOCH_MS}
    schema {{ fields {{ id = "bigint", name = "string", at = "timestamp" }} }}
  }}
}}
sink {{ Iceberg {{ plugin_input = "made", namespace = "bench", table = "failover" }} }}
"""


@dataclass(slots=True)
class Scene:
    """A job that runs, on a worker that knows all seats: ports that coordinators listen on."""

    store_url: str
    folder: Path
    engine: Engine
    running: ExitStack
    alive: dict[Coordinator, ExitStack] = field(default_factory=dict[Coordinator, ExitStack])
    job_id: str = ""
    incarnation: str = ""
    seated: int = 0

    def seat(self, port: int) -> None:
        """A coordinator takes the seat; it serves when this returns."""
        self.seated += 1
        seat = self.running.enter_context(ExitStack())
        named = f"c{self.seated}"
        taken = coordinator(self.store_url, folder=self.folder, name=named, port=port)
        self.alive[seat.enter_context(taken)] = seat

    def leader(self) -> Coordinator:
        def leads() -> Coordinator | None:
            return next((found for found in self.alive if found.leads()), None)

        return until(leads, limit_s=START_MAX_S, what="a coordinator leads")

    def completed(self) -> Mapping[int, int]:
        """The newest completed epochs, and when they were."""
        with reading(self.engine) as conn:
            found = epochs.checkpoints_of(conn, self.incarnation, most=EPOCHS_LOOKED_AT)
        return {
            each.epoch: each.ended_at_ms
            for each in found
            if each.status is EpochStatus.COMPLETED and each.ended_at_ms is not None
        }

    def newest(self) -> int:
        return max(self.completed(), default=0)

    def completed_after(self, epoch: int, *, limit_s: float = NEXT_EPOCH_MAX_S) -> int:
        """Wait until one above it is complete; when the first of them was, in ms."""

        def found() -> int | None:
            return min((ms for id_, ms in self.completed().items() if id_ > epoch), default=None)

        return until(found, limit_s=limit_s, what=f"an epoch after {epoch} is complete")

    def await_phase(self, share: float) -> None:
        """Until an epoch is complete, and this share of the next one is over."""
        self.completed_after(self.newest())
        time.sleep(share * EPOCH_MS / 1000)

    def undisturbed_s(self, share: float) -> float:
        """From this share of an epoch to the next completed one, with nobody killed."""
        self.await_phase(share)
        began_ms, newest = time.time() * 1000, self.newest()
        return (self.completed_after(newest) - began_ms) / 1000

    def kill_s(self, share: float, *, way: Way) -> float:
        """From SIGKILL to the next completed epoch; the empty seat is taken again."""
        victim = self.leader()
        seat = self.alive.pop(victim)
        self.await_phase(share)
        killed_ms = time.time() * 1000
        victim.child.kill()
        seat.close()
        newest = self.newest()  # the dead one's last; what comes is its successor's
        if way == "started":
            self.seat(victim.port)
        took_s = (self.completed_after(newest) - killed_ms) / 1000
        if way == "standby":
            self.seat(victim.port)
        return took_s

    def execution(self) -> str | None:
        with closing(Client([self.leader().url])) as client:
            return client.job(self.job_id).pipelines[0].execution


def run(*, quick: bool) -> Iterator[Result]:
    kills = KILLS_QUICK if quick else KILLS
    for kind in KINDS:
        with workplace("failover") as folder, stores(kind, folder) as made_here:
            for way in AIMS_S:
                yield _measure(made_here, folder, way=way, kills=kills)


def _measure(made_here: Stores, folder: Path, *, way: Way, kills: int) -> Result:
    ours, peers = list[float](), list[float]()
    with _scene(made_here.make(), folder / way, way=way) as scene:
        execution = scene.execution()
        for number in range(kills):
            share = number / kills
            peers.append(scene.undisturbed_s(share) if way == "standby" else _bare_start_s(folder))
            ours.append(scene.kill_s(share, way=way))
            say(f"failover_{way}_{made_here.kind}: {number + 1} of {kills}: {ours[-1]:.2f} s")
        if scene.execution() != execution:
            raise NotMeasured("the job did not stay with its execution")
    return _result(way, made_here.kind, ours, peers)


def _bare_start_s(folder: Path) -> float:
    began_s = time.perf_counter()
    with bare.bare_app(folder):
        return time.perf_counter() - began_s


def _result(way: Way, kind: str, ours: Sequence[float], peers: Sequence[float]) -> Result:
    aim_s, p99_s = AIMS_S[way], percentile(ours, 0.99)
    named: Mapping[Way, tuple[str, str]] = {
        "standby": ("a standby follows", "the same wait without a kill"),
        "started": ("one is started at the kill", f"the start of a bare server: {bare.PEER_IS}"),
    }
    other, peer_is = named[way]
    return made(
        f"failover_{way}_{kind}",
        ours=p99_s,
        peer=percentile(peers, 0.99),
        unit="s",
        aim=(aim_s, f"p99 under {aim_s:.0f} s when {other}"),
        met=reaches(p99_s, aim_s, better="lower"),
        ours_is=f"SIGKILL of the leader to the next completed epoch, when {other}; p99",
        peer_is=f"{peer_is}; p99",
        kills=len(ours),
        **_spread("ours", ours),
        **_spread("peer", peers),
        checkpoint_interval_ms=EPOCH_MS,
        execution="the same through all kills",
    )


def _spread(who: str, values: Sequence[float]) -> Mapping[str, Any]:
    return {
        f"{who}_p50_s": middle(values),
        f"{who}_p90_s": round(percentile(values, 0.9), 3),
        f"{who}_s_in_turn": rounded(values),
    }


@contextmanager
def _scene(store_url: str, folder: Path, *, way: Way) -> Generator[Scene]:
    folder.mkdir()
    ports = [free_port() for _ in range(SEATS[way])]
    named = ",".join(f"http://127.0.0.1:{port}" for port in ports)
    command = ["-m", "headrace", "worker", "--coordinator", named]
    command += ["--spark-master", "local[2]", "--home", str(folder / "home")]
    with opened(store_url) as engine, ExitStack() as running:
        scene = Scene(store_url, folder, engine, running)
        for port in ports:
            scene.seat(port)
        with child("worker", command, folder=folder), _job(scene):
            yield scene


@contextmanager
def _job(scene: Scene) -> Generator[None]:
    """It streams for the length of the block."""
    spec = read_job("job.conf", text=JOB).model_dump(mode="json")
    with closing(Client([scene.leader().url])) as client:
        scene.job_id = client.submit_job(spec, submission_key="failover", group="default").id
    with reading(scene.engine) as conn:
        found = jobs.get(conn, scene.job_id)
    if found is None:
        raise NotMeasured(f"job {scene.job_id} is not in the store")
    scene.incarnation = found.incarnation
    scene.completed_after(0, limit_s=FIRST_EPOCH_MAX_S)
    yield
    with closing(Client([scene.leader().url])) as client:  # a worker that is busy stops late
        client.cancel_job(scene.job_id)
        until(
            lambda: client.job(scene.job_id).status == "CANCELED",
            limit_s=CANCEL_MAX_S,
            what="the job is cancelled",
        )
