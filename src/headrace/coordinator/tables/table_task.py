"""Table tasks: how a payload is built from the store, and how the end of a task changes it.

A `TableTask` is the coordinator's half of a table service. Its payload is built when the task is
given to a worker, from the rows as they are then; building it only reads. Task rows hold little:
the catalog's secrets are stored once for all its tasks.

`TableTask.ended` applies the end of a task whose claim is current and locked; late reports do not
get here. A result that can't be read counts as a failure of the attempt: the worker has another
version.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, Protocol

from pydantic import ValidationError
from sqlalchemy import Connection, Engine

from headrace.clock import Clock
from headrace.coordinator.context import Reconciler
from headrace.coordinator.jobs.attempts import attempt_failed
from headrace.errors import Refused
from headrace.model.groups import table_defaults
from headrace.model.ids import Ids
from headrace.model.task import FailureCause, TaskStatus
from headrace.protocol.messages import TaskEnded
from headrace.protocol.tables import CatalogSpec, ProcessRef, TableIdentifier
from headrace.protocol.task_types import Payload, Result, TaskType
from headrace.store.groups import groups
from headrace.store.tables import catalogs, lake_tables, processes
from headrace.store.tables.catalogs import Catalog
from headrace.store.tables.lake_tables import LakeTable
from headrace.store.tables.processes import Process
from headrace.store.tasks import tasks
from headrace.store.tasks.tasks import Task, TaskEnd

At = Callable[[Connection, Task, int], None]  # the int is the time, in ms


class Loop(Reconciler, Protocol):
    """A reconciler that finds its own keys."""

    def keys(self, engine: Engine) -> Sequence[str]: ...


@dataclass(frozen=True, slots=True)
class EndedTask(Generic[Result]):
    """A task that its worker ended with success."""

    task: Task
    result: Result
    reported: Mapping[str, Any]  # the result as it was sent

    def finish(
        self,
        conn: Connection,
        *,
        now_ms: int,
        status: TaskStatus = TaskStatus.SUCCESS,
        error: str | None = None,
    ) -> bool:
        """End the row of the task, which keeps the result. False: this attempt is no longer the
        current one, and nothing is changed."""
        cause = FailureCause.ERROR if status is TaskStatus.FAILED else None
        end = TaskEnd(self.task.claim, status, error, self.reported, cause)
        return tasks.finish(conn, [end], now_ms=now_ms) == 1


def _nothing(_conn: Connection, _task: Task, _now_ms: int) -> None: ...


@dataclass(frozen=True, slots=True)
class TableTask(Generic[Payload, Result]):
    """What a coordinator does about a kind of table task."""

    type: TaskType[Any, Payload, Result]
    build: Callable[[Connection, Task, int], Payload]
    apply: Callable[[Connection, EndedTask[Result], int], None]
    make_room: At = _nothing  # before it is built: let go of what a payload has no room for
    failed: At = _nothing  # after an attempt without success: what waits for it goes on
    # What plans such tasks, if that is a loop of its own: it is run in every pass.
    loop: Callable[[Clock, Ids], Loop] | None = None

    def payload(self, conn: Connection, task: Task, *, now_ms: int) -> dict[str, Any]:
        """What the worker is told. Refused: the table, process or catalog of the task is gone."""
        return self.build(conn, task, now_ms).model_dump(mode="json")

    def ended(self, conn: Connection, task: Task, report: TaskEnded, *, now_ms: int) -> None:
        """Apply the reported end of a task. `task` is claimed and locked, and its process before
        it."""
        if report.outcome != "SUCCESS":
            error = report.error or f"its worker said {report.outcome} and gave no reason"
            attempt_failed(conn, task, error, cause=report.cause, retry=report.retry, now_ms=now_ms)
            self.failed(conn, task, now_ms)
            return
        reported = report.result or {}
        try:
            result = self.type.result.model_validate(reported)
            self.apply(conn, EndedTask(task, result, reported), now_ms)
        except ValidationError as error:
            first = error.errors(include_url=False, include_input=False)[0]
            reason = f"its result can't be read: {'.'.join(map(str, first['loc']))}: {first['msg']}"
            attempt_failed(conn, task, reason, retry=False, now_ms=now_ms)
            self.failed(conn, task, now_ms)


AnyTableTask = TableTask[Any, Any]


def catalog_access(conn: Connection, name: str) -> tuple[Catalog, dict[str, Any]]:
    """The catalog, and the payload fields with which a worker opens it."""
    catalog = catalogs.get(conn, name)
    if catalog is None:
        raise Refused(f"there is no catalog {name!r} any more")
    spec = CatalogSpec(name=name, type=catalog.type, properties=dict(catalog.properties))
    return catalog, {"catalog": spec, "secrets": dict(catalogs.secrets_of(conn, name))}


def defaults_of_groups(conn: Connection) -> dict[str, dict[str, str]]:
    """By group, its table defaults, if it has any. A group that is being removed has none any
    more."""
    known = [each for each in groups.all_of_them(conn) if not each.wanted_removed]
    by_group = {each.name: table_defaults(each.properties) for each in known}
    return {name: defaults for name, defaults in by_group.items() if defaults}


def table_of(conn: Connection, task: Task) -> LakeTable:
    table = lake_tables.get(conn, task.table_id or "")
    if table is None:
        raise Refused("its table is no longer in its catalog")
    return table


def process_of(conn: Connection, task: Task) -> Process:
    process = processes.get(conn, task.process_id or "")
    if process is None:
        raise Refused(f"there is no record of process {task.process_id!r}")
    return process


def identifier(table: LakeTable) -> TableIdentifier:
    return TableIdentifier(id=table.id, namespace=table.namespace, name=table.name, uuid=table.uuid)


def process_ref(process: Process) -> ProcessRef:
    return ProcessRef(
        id=process.id,
        owner=process.table_id,
        number=process.number,
        snapshot=process.snapshot,
        uuid=process.uuid,
    )
