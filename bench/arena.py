"""A warm coordinator and worker beside a warm hand-written script: who writes ten million rows.

Both keep a session on the same machine with the same Spark settings, jars and table settings. A
time counts only when the table holds the very rows it should: count and checksums of every column
equal those of the hand-written frame for that run's seed.
"""

from __future__ import annotations

import json
import secrets
import time
from collections.abc import Generator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from sqlalchemy import select

from bench.figures import differing
from bench.pipe import Talk, talk
from bench.processes import START_MAX_S, Child, Coordinator, NotMeasured, child, leading, until
from bench.result import ROOT
from bench.stores import opened, stores
from headrace.client.client import Client
from headrace.client.views import JobView
from headrace.config import Settings
from headrace.jobfile.reader import read_job
from headrace.spark.installation import archive_for, find_java, resolve_jars
from headrace.store.core.engine import reading
from headrace.store.jobs.schema import jobs
from headrace.worker.warm_session import java_options, spark_conf

READERS = 2
MASTER = "local[2]"
JOB_MAX_S = 300.0
# Up to so much is in each of our wall times. A shorter one would have the coordinator show the
# job so often that it shows in our cpu time: some 5 ms each.
POLL_S = 0.25
NAMESPACE = "demo"
PEER = f"{NAMESPACE}.peer"

OURS_IS = "from submit until the client sees FINISHED; median"
PEER_IS = "a hand-written PySpark script, DataFrame to writeTo(table).append(); median"
COMPARED = (
    "count, and sum and xor of hashes of each column and of whole rows: equal in every run, for "
    "the seed of that run"
)
CPU_IS = "JVM and Python; ours with the coordinator and its answers to the polling client"


@dataclass(frozen=True, slots=True)
class Took:
    wall_s: float
    cpu_s: float  # JVM and Python
    coordinator_cpu_s: float = 0.0  # of it
    job_s: float | None = None  # started_at to ended_at; of ours only
    epochs: int = 0  # that were completed; of ours only


@dataclass(slots=True)
class Arena:
    """Both contestants, warm."""

    rows: int
    store_url: str
    leader: Coordinator
    worker: Child
    client: Client
    peer: Talk
    incarnation: str = ""  # of our latest run
    # What a table should hold, by incarnation.
    expected: dict[str, dict[str, Any]] = field(default_factory=dict[str, dict[str, Any]])

    def ours(self, spec: Mapping[str, Any]) -> Took:
        """One run of a job; its incarnation is what its rows were made from."""
        parts = (self.leader.child, self.worker)
        before_s = [part.cpu_s() for part in parts]
        began_s = time.perf_counter()
        job = self.client.submit_job(spec, submission_key=secrets.token_hex(8), group="default")
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
        self._check(_table_of(spec))
        return Took(wall_s, sum(cpu_s), cpu_s[0], job_s, self._epochs(job.id))

    def theirs(self) -> Took:
        """One run of the script, with the rows of our latest run."""
        cpu_s = self.peer.child.cpu_s()
        began_s = time.perf_counter()
        self.peer.ask(do="write", table=PEER, incarnation=self.incarnation, **self._shape())
        wall_s = time.perf_counter() - began_s
        took = Took(wall_s, self.peer.child.cpu_s() - cpu_s)
        self._check(PEER)
        return took

    def _check(self, table: str) -> None:
        """Raises NotMeasured unless the table holds the rows of our latest run; then empties it."""
        found, incarnation = self.peer.ask(do="facts", table=table), self.incarnation
        if incarnation not in self.expected:
            asked = {"do": "expected", "incarnation": incarnation, **self._shape()}
            self.expected[incarnation] = self.peer.ask(**asked)
        if wrong := differing(found, self.expected[incarnation]):
            raise NotMeasured(f"{table} differs from what it should hold in {', '.join(wrong)}")
        self.peer.ask(do="empty", table=table)

    def _epochs(self, job_id: str) -> int:
        """The id of the last one with rows; the completed point has an id of its own."""
        found = self.client.checkpoints(job_id)
        return max((each.id for each in found if each.kind == "checkpoint"), default=0)

    def _shape(self) -> Mapping[str, int]:
        return {"rows": self.rows, "partitions": READERS}

    def _incarnation(self, job_id: str) -> str:
        with opened(self.store_url) as engine, reading(engine) as conn:
            return conn.execute(select(jobs.c.incarnation).where(jobs.c.id == job_id)).scalar_one()


def demo_spec(rows: int, *, table: str) -> dict[str, Any]:
    """The demo's own job, with another number of rows and another table."""
    spec = read_job(ROOT / "examples" / "demo.conf").model_dump(mode="json")
    (pipeline,) = spec["pipelines"]
    pipeline["sources"][0]["options"]["row.num"] = rows // READERS
    pipeline["sinks"][0]["options"]["table"] = table
    return spec


def _table_of(spec: Mapping[str, Any]) -> str:
    return f"{NAMESPACE}.{spec['pipelines'][0]['sinks'][0]['options']['table']}"


def _ended(view: JobView) -> JobView | None:
    return view if view.ended_at_ms is not None else None


@contextmanager
def arena(folder: Path, *, rows: int) -> Generator[Arena]:
    home = folder / "home"
    with stores("sqlite", folder) as made_here:
        store_url = made_here.make()
        with leading(store_url, folder=folder) as leader:
            command = ["-m", "headrace", "worker", "--coordinator", leader.url]
            command += ["--spark-master", MASTER, "--home", str(home)]
            with (
                child("worker", command, folder=folder) as worker,
                closing(Client([leader.url])) as client,
                _peer(folder, home) as peer,
            ):
                until(lambda: client.workers() or None, limit_s=START_MAX_S, what="a worker")
                peer.ask(do="create", table=PEER)
                yield Arena(rows, store_url, leader, worker, client, peer)


@contextmanager
def _peer(folder: Path, home: Path) -> Generator[Talk]:
    """The script, with the settings that our worker has: jars, class data, catalog and all."""
    settings, java = Settings(), find_java()
    jars = resolve_jars(settings.cache_dir, java=java, say=print)
    archive = archive_for(settings.cache_dir, java=java, class_path=jars)
    conf = spark_conf(
        jars,
        java_options(None, archive if archive and archive.writing is None else None),
        warehouse=(home / "warehouse").as_uri(),
        master=MASTER,
        name="by-hand",
        extra={},
    )
    with talk("peer_demo", ["-m", "bench.peer_demo", json.dumps(conf)], folder=folder) as peer:
        yield peer
