"""Lake tables that another program writes, a coordinator and a worker that optimize them, and what
stands in the store and in the tables afterwards."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from contextlib import closing
from typing import Any, TypeVar

from sqlalchemy import Connection, select

from headrace.client.client import Client
from headrace.client.tables import TableView
from headrace.errors import CoordinatorUnavailable, NotFound
from headrace.model.tables.status import ProcessStatus, TableStatus
from headrace.model.task import ENDED, TaskKind
from headrace.store.core.engine import open_store, reading
from headrace.store.tables import lake_tables, processes, table_tasks
from headrace.store.tables.lake_tables import LakeTable
from headrace.store.tables.processes import Process
from headrace.store.tasks.schema import tasks as task_rows
from headrace.store.tasks.tasks import Task
from tests.crash.armed import arm
from tests.crash.cluster import Cluster, until
from tests.crash.jobs import metadata_of
from tests.crash.lake import leftovers
from tests.crash.seam_list import Seam
from tests.crash.stand import SPARK_START_MAX_S, Stand, Victim
from tests.crash.writer import Writer

T = TypeVar("T")

NAMESPACE = "lake"
PROCESSES_MAX = 1000
ENDS_MAX_S = 600.0  # a process, with a worker that starts, and is given up before
LOOK_S = 0.2
# Looks at tables and into catalogs come and go; all else ends.
ALWAYS = {TaskKind.EVALUATE, TaskKind.DISCOVER}


class Optimizing:
    def __init__(self, made: Cluster, *, options: Sequence[str] = (), armed: bool = True) -> None:
        self.made, self.warehouse = made, made.folder / "home" / "warehouse"
        self._armed = made.folder / "armed.seam"
        under = ("tests.crash.armed", str(self._armed)) if armed else ()
        self.stand = Stand(made, under=under, options=options)
        self.writer = Writer(made, self.warehouse)
        self._store = open_store(made.store_url)

    def close(self) -> None:
        self._store.dispose()
        self.writer.close()

    # Who is asked, and who dies.

    def client(self) -> closing[Client]:
        return closing(Client([self.stand.url]))

    def await_known(self, name: str) -> TableView:
        """Until it was discovered and looked at."""

        def known() -> TableView | None:
            try:
                with self.client() as client:
                    view = client.table(identifier(name))
            except (NotFound, CoordinatorUnavailable):
                return None
            return view if view.evaluated_at_ms else None

        limit_s = SPARK_START_MAX_S
        return until(known, limit_s=limit_s, what=f"{name} is known", every_s=LOOK_S)

    def optimize(self, name: str, type_: str = "MAJOR") -> None:
        with self.client() as client:
            client.optimize_table(identifier(name), type=type_)

    def arm(self, *passed: Seam) -> None:
        arm(self._armed, passed)

    def disarm(self) -> None:
        self._armed.unlink(missing_ok=True)

    def await_dead(self, at: Seam) -> Victim:
        """Until somebody died there."""
        coordinator = at.is_met_by_a_coordinator
        process = self.stand.coordinator if coordinator else self.stand.worker
        dead = until(
            lambda: process.popen.poll() is not None, limit_s=ENDS_MAX_S, what=f"{at} is met"
        )
        assert dead
        assert self._armed.with_suffix(".met").read_text() == str(at), process.log.read_text()
        return Victim.COORDINATOR if coordinator else Victim.WORKER

    # What stands in the store.

    def read(self, look: Callable[[Connection], T]) -> T:
        with reading(self._store) as conn:
            return look(conn)

    def knows(self, name: str) -> bool:
        return self.read(lambda conn: lake_tables.named(conn, identifier(name))) is not None

    def table(self, name: str) -> LakeTable:
        found = self.read(lambda conn: lake_tables.named(conn, identifier(name)))
        assert found is not None, f"no table {name}"
        return found

    def processes(self, name: str) -> Sequence[Process]:
        """The oldest first."""
        table = self.table(name)

        def all_of_it(conn: Connection) -> Sequence[Process]:
            named = table.identifier
            return processes.of_table(conn, table.id, identifier=named, most=PROCESSES_MAX)

        return sorted(self.read(all_of_it), key=lambda each: each.number)

    def result(self, process: Process) -> dict[str, Any]:
        return dict(self.read(lambda conn: processes.result_of(conn, process.id)) or {})

    def tasks(self, process: Process) -> Sequence[Task]:
        return self.read(lambda conn: table_tasks.of_process(conn, process.id))

    def open_tasks(self) -> Sequence[tuple[str, str]]:
        """Kind and status of all that has not ended, of all tables."""
        found = select(task_rows.c.kind, task_rows.c.status).where(
            task_rows.c.status.not_in(ENDED), task_rows.c.kind.not_in(ALWAYS)
        )
        return self.read(lambda conn: [(kind, status) for kind, status in conn.execute(found)])

    def busy(self, name: str) -> str:
        """Why this table is not quiet; empty: it is."""
        table, all_ = self.table(name), self.processes(name)
        running = [each.id for each in all_ if each.status is ProcessStatus.RUNNING]
        left = [each.id for each in all_ if each.leftovers]
        if table.status is not TableStatus.IDLE or table.wanted_type is not None:
            return f"{name} is {table.status}, wanted {table.wanted_type}: {table.error}"
        if running or left or self.open_tasks():
            return f"{name}: running {running}, leftovers {left}, tasks {self.open_tasks()}"
        return ""

    def await_quiet(self, *names: str) -> None:
        told = [""]

        def quiet() -> bool:
            told[:] = [self.busy(name) for name in names]
            return not any(told)

        try:
            until(quiet, limit_s=ENDS_MAX_S, what="the tables are quiet", every_s=LOOK_S)
        except AssertionError as error:
            raise AssertionError(f"{error}: {[each for each in told if each]}") from error

    # What stands in the tables.

    def snapshots(self, name: str) -> Sequence[dict[str, Any]]:
        metadata = metadata_of(self.warehouse, f"{NAMESPACE}.{name}")
        return json.loads(metadata.read_text()).get("snapshots", [])

    def replacements(self, name: str) -> list[str]:
        """Of all commits that replaced files: which groups."""
        told = [each["summary"] for each in self.snapshots(name)]
        return [each["headrace.groups"] for each in told if each["operation"] == "replace"]

    def staged(self, name: str) -> list[str]:
        return leftovers(self.warehouse, f"{NAMESPACE}.{name}")

    def count_files(self, name: str) -> tuple[int, int]:
        """Data files and delete files of the table, as its newest snapshot tells."""
        snapshots = self.snapshots(name)
        if not snapshots:
            return 0, 0
        told = snapshots[-1]["summary"]
        return int(told["total-data-files"]), int(told["total-delete-files"])


def identifier(name: str) -> str:
    return f"headrace.{NAMESPACE}.{name}"
