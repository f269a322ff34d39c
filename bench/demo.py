"""The demo job at ten million rows, against the same thing written by hand in PySpark.

Both keep a warm session on the same machine with the same Spark settings, jars and table
settings; the two take turns, each going first in every other pair, and the first pair is thrown
away. A time counts only when the table holds the very rows it should: count and checksums of every
column equal those of the hand-written frame for that run's seed.
"""

from __future__ import annotations

import json
import secrets
import time
from collections.abc import Generator, Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from sqlalchemy import select

from bench.figures import Side, differing, in_turns, middle, reaches, rounded
from bench.pipe import Talk, talk
from bench.processes import START_MAX_S, Child, Coordinator, NotMeasured, child, leading, until
from bench.result import ROOT, Result, made
from bench.stores import opened, stores, workplace
from headrace.client import Client, JobView
from headrace.config import Settings
from headrace.jobfile.reader import read_job
from headrace.store.engine import reading
from headrace.store.schema import jobs
from headrace.worker.archive import archive_for
from headrace.worker.jars import resolve
from headrace.worker.java import find_java
from headrace.worker.spark import spark_conf

ROWS, ROWS_QUICK = 10_000_000, 1_000_000
PAIRS, PAIRS_QUICK = 4, 2
WARM_UP_PAIRS = 1
READERS = 2
MASTER = "local[2]"
JOB_MAX_S = 300.0
# Up to so much is in each of our wall times. A shorter one would have the coordinator show the
# job so often that it shows in our cpu time: some 5 ms each.
POLL_S = 0.25
AIM = 1.10
OURS, PEER = "demo.ours", "demo.peer"


@dataclass(frozen=True, slots=True)
class Took:
    wall_s: float
    cpu_s: float  # JVM and Python
    coordinator_cpu_s: float = 0.0  # of it
    job_s: float | None = None  # started_at to ended_at; of ours only


@dataclass(slots=True)
class Arena:
    """Both contestants, warm."""

    rows: int
    spec: Any  # of our job; read once, so that all runs are of the same
    store_url: str
    leader: Coordinator
    worker: Child
    client: Client
    peer: Talk
    incarnation: str = ""  # of our latest run
    # What a table should hold, by incarnation.
    expected: dict[str, dict[str, Any]] = field(default_factory=dict[str, dict[str, Any]])

    def measure(self, side: Side) -> Took:
        """One run, which counts only when it wrote the right rows: those of our latest run."""
        took = self.ours() if side == "ours" else self.theirs()
        self.check(OURS if side == "ours" else PEER)
        return took

    def ours(self) -> Took:
        """One run of the job; its incarnation is what its rows were made from."""
        parts = (self.leader.child, self.worker)
        before_s = [part.cpu_s() for part in parts]
        began_s = time.perf_counter()
        job = self.client.submit_job(
            self.spec, submission_key=secrets.token_hex(8), group="default"
        )
        view = until(
            lambda: _ended(self.client.job(job.id)),
            limit_s=JOB_MAX_S,
            what="the job ends",
            poll_s=POLL_S,
        )
        wall_s = time.perf_counter() - began_s
        if view.status != "FINISHED" or not view.started_at_ms or not view.ended_at_ms:
            raise NotMeasured(f"the job is {view.status}: {view.error}")
        job_s = (view.ended_at_ms - view.started_at_ms) / 1000
        cpu_s = [part.cpu_s() - was_s for part, was_s in zip(parts, before_s, strict=True)]
        self.incarnation = self._incarnation(job.id)
        return Took(wall_s, sum(cpu_s), cpu_s[0], job_s)

    def theirs(self) -> Took:
        cpu_s = self.peer.child.cpu_s()
        began_s = time.perf_counter()
        self.peer.ask(do="write", table=PEER, incarnation=self.incarnation, **self._shape())
        wall_s = time.perf_counter() - began_s
        return Took(wall_s, self.peer.child.cpu_s() - cpu_s)

    def check(self, table: str) -> None:
        """Raises NotMeasured unless the table holds the rows of our latest run; then empties it."""
        found, incarnation = self.peer.ask(do="facts", table=table), self.incarnation
        if incarnation not in self.expected:
            asked = {"do": "expected", "incarnation": incarnation, **self._shape()}
            self.expected[incarnation] = self.peer.ask(**asked)
        if wrong := differing(found, self.expected[incarnation]):
            raise NotMeasured(f"{table} differs from what it should hold in {', '.join(wrong)}")
        self.peer.ask(do="empty", table=table)

    def _shape(self) -> Mapping[str, int]:
        return {"rows": self.rows, "partitions": READERS}

    def _incarnation(self, job_id: str) -> str:
        with opened(self.store_url) as engine, reading(engine) as conn:
            return conn.execute(select(jobs.c.incarnation).where(jobs.c.id == job_id)).scalar_one()


def run(*, quick: bool) -> Iterator[Result]:
    rows = ROWS_QUICK if quick else ROWS
    pairs = PAIRS_QUICK if quick else PAIRS
    with workplace("demo") as folder, _arena(folder, rows=rows) as arena:
        ours, theirs = in_turns(arena.measure, pairs=pairs, warm_up_pairs=WARM_UP_PAIRS)
    yield _result(ours, theirs, rows=rows)


def _result(ours: list[Took], theirs: list[Took], *, rows: int) -> Result:
    our_wall_s, their_wall_s = ([took.wall_s for took in side] for side in (ours, theirs))
    our_cpu_s, their_cpu_s = ([took.cpu_s for took in side] for side in (ours, theirs))
    ratio = middle(our_wall_s) / middle(their_wall_s)
    return made(
        "demo",
        ours=middle(our_wall_s),
        peer=middle(their_wall_s),
        unit="s",
        aim=(AIM, f"at most {AIM:.2f} times the script's wall time"),
        met=reaches(ratio, AIM, better="lower"),
        ours_is="from submit until the client sees FINISHED; median",
        peer_is="a hand-written PySpark script, DataFrame to writeTo(table).append(); median",
        rows=rows,
        pairs=len(ours),
        compared="count, and sum and xor of hashes of each column and of whole rows: equal in "
        "every run, for the seed of that run",
        wall_s_in_turn={"ours": rounded(our_wall_s), "peer": rounded(their_wall_s)},
        ratio_of_each_pair=rounded(
            [mine / other for mine, other in zip(our_wall_s, their_wall_s, strict=True)]
        ),
        cpu_s={"ours": middle(our_cpu_s), "peer": middle(their_cpu_s)},
        cpu_ratio=round(middle(our_cpu_s) / middle(their_cpu_s), 3),
        cpu_is="JVM and Python; ours with the coordinator and its answers to the polling client",
        cpu_of_coordinator_s=middle([took.coordinator_cpu_s for took in ours]),
        cpu_s_in_turn={"ours": rounded(our_cpu_s), "peer": rounded(their_cpu_s)},
        started_to_ended_s=rounded([took.job_s for took in ours if took.job_s is not None]),
    )


def _spec(rows: int) -> Any:
    """The demo's own job, with another number of rows and another table."""
    spec = read_job(ROOT / "examples" / "demo.conf").model_dump(mode="json")
    (pipeline,) = spec["pipelines"]
    pipeline["sources"][0]["options"]["row.num"] = rows // READERS
    pipeline["sinks"][0]["options"]["table"] = OURS.partition(".")[2]
    return spec


def _ended(view: JobView) -> JobView | None:
    return view if view.ended_at_ms is not None else None


@contextmanager
def _arena(folder: Path, *, rows: int) -> Generator[Arena]:
    home = folder / "home"
    with stores("sqlite", folder) as made_here:
        store_url = made_here.make()
        with leading(store_url, folder=folder) as leader:
            command = ["-m", "headrace.cli.main", "worker", "--coordinator", leader.url]
            command += ["--spark-master", MASTER, "--home", str(home)]
            with (
                child("worker", command, folder=folder) as worker,
                closing(Client([leader.url])) as client,
                _peer(folder, home) as peer,
            ):
                until(lambda: client.workers() or None, limit_s=START_MAX_S, what="a worker")
                peer.ask(do="create", table=PEER)
                yield Arena(rows, _spec(rows), store_url, leader, worker, client, peer)


@contextmanager
def _peer(folder: Path, home: Path) -> Generator[Talk]:
    """The script, with the settings that our worker has: jars, class data, catalog and all."""
    settings, java = Settings(), find_java()
    jars = resolve(settings.cache_dir, java=java, say=print)
    archive = archive_for(settings.cache_dir, java=java, class_path=jars)
    conf = spark_conf(
        jars,
        warehouse=(home / "warehouse").as_uri(),
        master=MASTER,
        name="by-hand",
        archive=archive if archive and archive.writing is None else None,
        extra={},
    )
    with talk("peer_demo", ["-m", "bench.peer_demo", json.dumps(conf)], folder=folder) as peer:
        yield peer
