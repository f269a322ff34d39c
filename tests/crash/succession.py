"""Two coordinators, one of which leads, and a worker who knows both: either dies, one follows.

Everyone runs with the same armed file, so that whoever leads by then meets the seam. A coordinator
that died is replaced where it listened, as one that follows: the other takes over.
"""

from __future__ import annotations

from contextlib import closing

import httpx2

from headrace.client.client import Client
from headrace.client.views import JobView
from headrace.errors import CoordinatorUnavailable
from tests.crash.armed import arm
from tests.crash.cluster import Cluster, Process, free_port, until
from tests.crash.jobs import ENDED, JOB_MAX_S, LOOK_S, spec_of
from tests.crash.seam_list import Seam
from tests.crash.stand import HEARTBEAT_TIMEOUT_S, SPARK_START_MAX_S

DELAY_MS = 10_000  # a test sees that a job has ended, and kills, well within it
COMMIT_DEADLINE_S = 15  # targets are due twice as long after the end
SLOTS = 3
OPTIONS = (
    *("--heartbeat-timeout", str(HEARTBEAT_TIMEOUT_S)),
    *("--state-cleanup-delay-ms", str(DELAY_MS)),
    *("--commit-deadline", str(COMMIT_DEADLINE_S)),
)


class Succession:
    worker: Process

    def __init__(self, made: Cluster) -> None:
        self.made, self._armed = made, made.folder / "armed.seam"
        self._under = ("tests.crash.armed", str(self._armed))
        self._ports = [free_port() for _ in range(2)]
        self._started = 0
        self.alive: list[Process] = []
        self.coordinators: list[Process] = []  # also the dead

    @property
    def urls(self) -> list[str]:
        return [f"http://127.0.0.1:{port}" for port in self._ports]

    def start(self) -> None:
        self.start_worker()  # its Spark takes longest, and can wait
        for port in self._ports:
            self._start_coordinator(port)
        self.await_complete()

    def await_complete(self) -> None:
        """Until both coordinators serve: also one that took the place of a dead one."""
        for process in self.alive:
            self.made.await_address(process)

    def start_worker(self) -> None:
        self.worker = self.made.worker(
            self._name("worker"), *self.urls, slots=SLOTS, under=self._under
        )

    def _start_coordinator(self, port: int) -> Process:
        started = self.made.coordinator(
            self._name("coordinator"), *OPTIONS, port=port, wait=False, under=self._under
        )
        started.url = f"http://127.0.0.1:{port}"
        self.alive.append(started)
        self.coordinators.append(started)
        return started

    def _name(self, kind: str) -> str:
        self._started += 1
        return f"{kind}-{self._started}"

    def arm(self, *passed: Seam) -> None:
        """Whoever passes all of them dies at the last."""
        arm(self._armed, passed)

    def await_death(self, at: Seam) -> None:
        """Until somebody died there. A worker is followed by another, a leader by the one who
        follows it, which is given a follower of its own."""
        known = self.alive if at.is_met_by_a_coordinator else [self.worker]

        def dead() -> Process | None:
            return next((p for p in known if p.popen.poll() is not None), None)

        one = until(dead, limit_s=SPARK_START_MAX_S + JOB_MAX_S, what=f"{at} is met")
        assert self._armed.with_suffix(".met").read_text() == str(at), one.log.read_text()
        if at.is_met_by_a_coordinator:
            self._replace(one)
        else:
            self.start_worker()

    def kill_leader(self) -> None:
        leader = self.made.leader(*self.alive)
        leader.kill()
        self._replace(leader)

    def _replace(self, dead: Process) -> None:
        self.alive.remove(dead)
        self._start_coordinator(int(dead.url.rpartition(":")[2]))

    def client(self) -> closing[Client]:
        """Of whichever coordinator answers."""
        return closing(Client(self.urls))

    def submit(
        self, text: str, *, key: str, job_id: str | None = None, restore: str | None = None
    ) -> str:
        with self.client() as client:
            return client.submit_job(
                spec_of(text), submission_key=key, group="default", job_id=job_id, restore=restore
            ).id

    def job(self, job_id: str) -> JobView:
        with self.client() as client:
            return client.job(job_id)

    def await_end(self, job_id: str, expected: str = "FINISHED") -> JobView:
        def ended() -> JobView | None:
            try:
                view = self.job(job_id)
            except CoordinatorUnavailable:  # one is dead, and the one that replaced another starts
                return None
            return view if view.status in ENDED else None

        limit_s = SPARK_START_MAX_S + JOB_MAX_S
        view = until(ended, limit_s=limit_s, what=f"{job_id} ends", every_s=LOOK_S)
        assert view.status == expected, view
        return view

    def running(self) -> list[str]:
        with self.client() as client:
            return [view.id for view in client.jobs()]

    def metrics(self) -> dict[str, float]:
        """What the store holds, as whoever leads tells it: by name and labels."""
        leader = self.made.leader(*self.alive)
        text = httpx2.get(f"{leader.url}/metrics", timeout=60.0, trust_env=False).text
        lines = (line.rpartition(" ") for line in text.splitlines() if not line.startswith("#"))
        return {name: float(value) for name, _, value in lines}

    def times_said(self, words: str, about: str) -> int:
        """In how many lines coordinators, dead or alive, said so about something."""
        lines = (line for p in self.coordinators for line in p.log.read_text().splitlines())
        return sum(words in line and about in line for line in lines)
