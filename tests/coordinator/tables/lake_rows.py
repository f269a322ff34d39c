"""Tables, processes and tasks in whatever state a test needs, written straight into the store."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import count
from typing import Any

from sqlalchemy import Connection, Engine, insert, select, update

from headrace.model.tables.status import PROCESS_ENDED, OptimizingType, ProcessStatus, TableStatus
from headrace.model.task import ASSIGNED, ENDED, Lane, TaskKind, TaskStatus
from headrace.protocol.tables import Planned, PlannedBin
from headrace.store.core.engine import reading, writing
from headrace.store.tables import lake_tables as stored_tables
from headrace.store.tables import processes, table_tasks
from headrace.store.tables.lake_tables import LakeTable
from headrace.store.tables.processes import Process
from headrace.store.tables.schema import lake_tables
from headrace.store.tables.schema import processes as process_rows
from headrace.store.tasks import tasks
from headrace.store.tasks.schema import tasks as task_rows
from headrace.store.tasks.tasks import OfTable, Task
from tests.stores import given_table

CATALOG = "headrace"
UUID = "u-1"
SNAPSHOT = 11
PENDING = {"type": "MINOR", "snapshot": SNAPSHOT, "files": 40}
BIN_BYTES = 1000


def bins(first: int, number: int, *, files: int = 3) -> tuple[PlannedBin, ...]:
    return tuple(
        PlannedBin(
            number=n,
            partition="",
            paths=tuple(f"f-{n}-{k}.parquet" for k in range(files)),
            bytes=BIN_BYTES,
        )
        for n in range(first, first + number)
    )


def a_plan(tasks_wanted: int = 2, **more: Any) -> Planned:
    told = {
        "uuid": UUID,
        "snapshot": SNAPSHOT,
        "type": "MINOR",
        "tasks": tuple(bins(2 * place, 2) for place in range(tasks_wanted)),
        "done": {"0/": "MINOR"},
    }
    return Planned.model_validate({**told, **more})


class LakeRows:
    """Writes rows as a leader, or a crash between two of its writes, may have left them."""

    def __init__(self, store: Engine, *, now_ms: int) -> None:
        self._store, self._now_ms = store, now_ms
        self._numbers = count(1)

    def table(self, name: str = "t", status: TableStatus = TableStatus.IDLE, **values: Any) -> str:
        """The id of a new table of the embedded catalog."""
        id_ = f"table-{name}"
        row = {
            "id": id_,
            "catalog": CATALOG,
            "namespace": ["db"],
            "name": name,
            "identifier": f"{CATALOG}.db.{name}",
            "created_at_ms": self._now_ms,
            "status": status,
            "status_since_ms": self._now_ms,
            "due_at_ms": self._now_ms + 60_000,
            "interval_ms": 60_000,
            "group_name": "default",
            "quota": 0.5,
            "min_plan_interval_ms": 60_000,
            "uuid": UUID,
            "pointer": "v1.json",
            "snapshot": SNAPSHOT,
            "evaluated_at_ms": self._now_ms,
        }
        with writing(self._store) as conn:
            conn.execute(insert(lake_tables).values({**row, **values}))
        return id_

    def process(
        self,
        table_id: str,
        status: ProcessStatus = ProcessStatus.RUNNING,
        *,
        rewrites: Sequence[TaskStatus] = (),
        commit: TaskStatus | None = None,
        plan: Mapping[str, Any] | None = None,
        **values: Any,
    ) -> str:
        """The id of a process of the table, with its tasks; the table need not know of it."""
        number = next(self._numbers)
        id_ = f"process-{number}"
        with writing(self._store) as conn:
            table = stored_tables.get(conn, table_id)
            row: dict[str, Any] = {
                "id": id_,
                "table_id": table_id,
                "identifier": table.identifier if table else "gone",
                "number": number,
                "type": OptimizingType.MINOR.name,
                "status": status,
                "group_name": "default",
                "uuid": UUID,
                "snapshot": SNAPSHOT,
                "plan": dict(plan or a_plan().model_dump(mode="json", exclude={"tasks"})),
                "created_at_ms": self._now_ms,
                "ended_at_ms": self._now_ms if status in PROCESS_ENDED else None,
            }
            conn.execute(insert(process_rows).values({**row, **values}))
            for place, each in enumerate(rewrites):
                of = OfTable(table_id, id_, place)
                self._task(conn, f"{id_}-{place}", TaskKind.REWRITE, each, of)
            if commit is not None:
                task = f"{id_}-commit-1"
                self._task(conn, task, TaskKind.COMMIT, commit, OfTable(table_id, id_))
                processes.note_commit_task(conn, id_, task)
        return id_

    def task(self, task_id: str, kind: TaskKind, status: TaskStatus, of: OfTable) -> None:
        with writing(self._store) as conn:
            self._task(conn, task_id, kind, status, of)

    def _task(
        self, conn: Connection, task_id: str, kind: TaskKind, status: TaskStatus, of: OfTable
    ) -> None:
        place = of.number or 0
        payload = {"bins": [b.model_dump(mode="json") for b in bins(2 * place, 2)]}
        tasks.plan(
            conn,
            task_id=task_id,
            kind=kind,
            lane=Lane.SLOT if kind is TaskKind.REWRITE else Lane.CONTROL,
            group="default",
            payload={**payload, "retry_times": 2} if kind is TaskKind.REWRITE else {},
            of=of,
            now_ms=self._now_ms,
        )
        if status is TaskStatus.PLANNED:
            return
        held = {"worker_id": "w1", "attempt": 1, "scheduled_at_ms": self._now_ms}
        held |= {"assigned_term": 1, "assigned_number": 1} if status in ASSIGNED else {}
        ended: dict[str, Any] = {"ended_at_ms": self._now_ms} if status in ENDED else {}
        if status is TaskStatus.SUCCESS and kind is TaskKind.REWRITE:
            ended["result"] = rewritten(bins(2 * place, 2))
        changed = update(task_rows).where(task_rows.c.id == task_id)
        conn.execute(changed.values(status=status, **held, **ended))

    def name_process(self, table_id: str, process_id: str) -> None:
        with writing(self._store) as conn:
            given_table(conn, table_id, process_id=process_id)

    def read(self, table_id: str) -> LakeTable:
        with reading(self._store) as conn:
            found = stored_tables.get(conn, table_id)
        assert found is not None
        return found

    def pending(self, table_id: str) -> Mapping[str, Any] | None:
        with reading(self._store) as conn:
            return stored_tables.pending_of(conn, table_id)

    def read_process(self, process_id: str) -> Process:
        with reading(self._store) as conn:
            found = processes.get(conn, process_id)
        assert found is not None
        return found

    def tasks_of(self, process_id: str) -> Mapping[str, Task]:
        with reading(self._store) as conn:
            return {task.id: task for task in table_tasks.of_process(conn, process_id)}

    def column(self, table_id: str, name: str) -> Any:
        with reading(self._store) as conn:
            row = select(lake_tables.c[name]).where(lake_tables.c.id == table_id)
            return conn.execute(row).scalar_one()


def rewritten(these: Sequence[PlannedBin]) -> dict[str, Any]:
    """The result of a rewrite task."""
    made: list[dict[str, Any]] = [
        {"number": each.number, "execution": "e", "added": [], "rows": 1, "bytes": 1}
        for each in these
    ]
    return {"rewritten": made, "failed": []}
