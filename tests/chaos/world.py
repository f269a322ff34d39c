"""PostgreSQL, three coordinators and two workers: who is there, who is hit, who comes back."""

from __future__ import annotations

import signal
import time
from collections.abc import Generator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import psutil
import psycopg

from headrace.client.client import Client
from tests.chaos.leftovers import IN_STORE, empty_folders, files_in
from tests.crash.cluster import Cluster, Process, cluster, free_port
from tests.crash.database import Database
from tests.postgresql import PostgreSQL
from tests.spark.wire import Wire

COORDINATORS = 3
WORKERS = 2
SHUT_DOWN_MAX_S = 60.0  # from SIGTERM on, on a busy machine
LOOK_S = 0.2
MARK = "CHAOS_WORLD"  # in the environment of all that is started here, and of what that starts


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
    def __init__(self, made: Cluster, server: PostgreSQL, database: Database, store: str) -> None:
        self.made, self.server, self.database, self._store = made, server, database, store
        self.places = [Place() for _ in range(COORDINATORS)]
        self.workers: list[Process] = []
        self.ended_by_themselves: list[str] = []
        self._started = 0
        self._killed: set[int] = set()
        made.environment[MARK] = str(made.folder)

    @property
    def home(self) -> Path:
        return self.made.folder / "home"

    @property
    def warehouse(self) -> Path:
        return self.home / "warehouse"

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

    def answers_lost(self) -> int:
        """Of coordinators, to workers."""
        return sum(place.wire.lost for place in self.places)

    def lose_nothing_more(self) -> None:
        for place in self.places:
            place.wire.lose_nothing_more()
        self.database.lose_nothing_more()

    def revive(self) -> None:
        """Start whoever has ended again, as a supervisor would."""
        for place in self.places:
            if self._has_ended(place.process):
                self._lead_at(place)
        for at, worker in enumerate(self.workers):
            if self._has_ended(worker):
                self.workers[at] = self._worker()

    def left_behind(self) -> list[str]:
        """While all is running and no job is open: what nothing refers to any more."""
        found = [
            f"{what} {name}" for what, query in IN_STORE.items() for name in self._in_store(query)
        ]
        found += [f"stage table {name}" for name in self.database.stages()]
        found += [f"empty folder {at}" for at in empty_folders(self.warehouse)]
        return found + [f"process {each}" for each in self._processes_of_the_ended()]

    def shut_down(self) -> list[str]:
        """End all in order: workers, then coordinators. What is wrong with that, and what is still
        there afterwards."""
        wrong: list[str] = []
        for of_a_kind in (self.workers, self.coordinators()):
            for process in of_a_kind:
                self._killed.add(process.pid)
                process.popen.terminate()
            end_s = time.monotonic() + SHUT_DOWN_MAX_S
            for process in of_a_kind:
                while process.popen.poll() is None and time.monotonic() < end_s:
                    time.sleep(LOOK_S)
                if process.popen.poll() is None:
                    wrong.append(f"{process.name} runs {SHUT_DOWN_MAX_S:g} s after SIGTERM")
        wrong += [f"left behind: process {each}" for each in self._processes_of_the_ended()]
        return wrong + [f"left behind: {file}" for file in files_in(self.home / "scratch")]

    def dump(self, folder: Path) -> None:
        """Keep what stands in the databases, whose server goes."""
        self.server.dump(self._store, folder / "store.sql")
        self.server.dump(self.database.name, folder / "target.sql")

    def _in_store(self, query: str) -> list[str]:
        with psycopg.connect(self.server.url(self._store)) as conn:
            rows: list[tuple[Any, ...]] = conn.execute(query.encode()).fetchall()
        return [" ".join(str(value) for value in row) for row in rows]

    def _processes_of_the_ended(self) -> list[str]:
        """Of whoever was started here and has ended: what lives on, in a session of its own too."""
        alive = {p.pid for p in self.made.processes if p.popen.poll() is None}
        found: list[str] = []
        for process in psutil.process_iter():
            try:
                is_ours = process.environ().get(MARK) == str(self.made.folder)
                over_it = {process.pid, *(parent.pid for parent in process.parents())}
                if is_ours and not over_it & alive and process.status() != psutil.STATUS_ZOMBIE:
                    found.append(f"{process.pid} {' '.join(process.cmdline())[:200]}")
            except (psutil.NoSuchProcess, psutil.AccessDenied):
                continue
        return found

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
        return self.made.worker(self._name("worker"), *advertised, slots=None, spark_master=None)

    def _name(self, kind: str) -> str:
        self._started += 1
        return f"{kind}-{self._started}"


@contextmanager
def world(folder: Path) -> Generator[World]:
    """Started, and gone afterwards with all that was started for it."""
    server = PostgreSQL()
    try:
        database = Database(server)
        store = server.create_database()
        with cluster(folder, server.url(store)) as made:
            here = World(made, server, database, store)
            here.start()
            yield here
    finally:
        server.close()
