"""PostgreSQL, three coordinators and two workers: who is there, who is hit, who comes back."""

from __future__ import annotations

import signal
from collections.abc import Generator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path

from headrace.client import Client
from tests.crash.cluster import Cluster, Process, cluster, free_port
from tests.crash.database import Database
from tests.postgresql import PostgreSQL
from tests.spark.wire import Wire

COORDINATORS = 3
WORKERS = 2
SLOTS = 4


class Place:
    """Where a coordinator listens, and the wire to it on which its answers to workers can be
    lost. The process there may be the third or the tenth."""

    process: Process

    def __init__(self) -> None:
        self.port = free_port()
        self.wire = Wire(self.port)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def advertised(self) -> str:
        return f"http://127.0.0.1:{self.wire.port}"


class World:
    def __init__(self, made: Cluster, server: PostgreSQL, database: Database) -> None:
        self.made, self.server, self.database = made, server, database
        self.places = [Place() for _ in range(COORDINATORS)]
        self.workers: list[Process] = []
        self.ended_by_themselves: list[str] = []
        self._started = 0
        self._killed: set[int] = set()

    @property
    def warehouse(self) -> Path:
        return self.made.folder / "home" / "warehouse"

    def client(self) -> closing[Client]:
        """Of whichever coordinator answers; no answer to it is lost on a wire."""
        return closing(Client([place.url for place in self.places]))

    def start(self) -> None:
        for _ in range(WORKERS):  # their Spark takes longest, and can wait
            self.workers.append(self._worker())
        for place in self.places:
            self._lead_at(place)
        for place in self.places:
            self.made.await_address(place.process)

    def coordinators(self) -> Sequence[Process]:
        return [place.process for place in self.places]

    def leader(self) -> Process | None:
        return next((process for process in self.coordinators() if process.leads()), None)

    def kill(self, process: Process) -> None:
        self._killed.add(process.pid)
        process.kill()

    def stop(self, process: Process) -> None:
        process.signal(signal.SIGSTOP)

    def go_on(self, process: Process) -> None:
        process.signal(signal.SIGCONT)

    def revive(self) -> None:
        """Start whoever has ended again, as a supervisor would."""
        for place in self.places:
            if self._has_ended(place.process):
                self._lead_at(place)
        for at, worker in enumerate(self.workers):
            if self._has_ended(worker):
                self.workers[at] = self._worker()

    def _has_ended(self, process: Process) -> bool:
        if process.popen.poll() is None:
            return False
        if process.pid not in self._killed:
            ended = f"{process.name} ended by itself with {process.popen.returncode}"
            self.ended_by_themselves.append(ended)
        return True

    def _lead_at(self, place: Place) -> None:
        name = self._name("coordinator")
        place.process = self.made.coordinator(
            name, "--advertise", place.advertised, port=place.port, wait=False
        )
        place.process.url = place.url

    def _worker(self) -> Process:
        advertised = [place.advertised for place in self.places]
        return self.made.worker(self._name("worker"), *advertised, slots=SLOTS)

    def _name(self, kind: str) -> str:
        self._started += 1
        return f"{kind}-{self._started}"


@contextmanager
def world(folder: Path) -> Generator[World]:
    """Started, and gone afterwards with all that was started for it."""
    server = PostgreSQL()
    try:
        database = Database(server)
        store_url = server.url(server.create_database())
        with cluster(folder, store_url) as made:
            here = World(made, server, database)
            here.start()
            yield here
            for process in (*here.coordinators(), *here.workers):
                here.go_on(process)
    finally:
        server.close()
