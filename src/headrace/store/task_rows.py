"""A task as it is read, and the guard of every write to one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from headrace.model.jobspec import LOST_WORKERS_MAX
from headrace.model.task import Claim, FailureCause, Lane, TaskKind, TaskStatus
from headrace.store.schema import ASSIGNED_TASK, tasks


@dataclass(frozen=True, slots=True)
class Task:
    id: str
    kind: TaskKind
    lane: Lane
    group: str
    job_id: str | None
    pipeline: int | None
    payload: Mapping[str, Any]
    status: TaskStatus
    attempt: int
    failures: int  # that count; of a pipeline, errors since an epoch with rows was last completed
    stop: bool
    worker_id: str | None
    assigned: tuple[int, int] | None  # term and number of the answer that carried it
    error: str | None = None  # of the attempt that failed last
    table_id: str | None = None
    process_id: str | None = None
    number: int | None = None
    losses: int = 0  # workers of a pipeline lost in a row, since an epoch was last completed
    failure_cause: FailureCause | None = None  # of the attempt that failed last

    @property
    def claim(self) -> Claim:
        return Claim(self.id, self.attempt)


@dataclass(frozen=True, slots=True)
class OfTable:
    """The table, and the process of it, that a task belongs to."""

    table_id: str | None = None
    process_id: str | None = None
    number: int | None = None
    granted: bool = True  # False: nobody may claim it before its table's share allows it


NO_TABLE = OfTable()


# What makes up a Task, in its order: reading more costs the hot path dearly.
_READ = (
    *("id", "kind", "lane", "group_name", "job_id", "pipeline", "payload", "status", "attempt"),
    *("failures", "stop", "worker_id", "assigned_term", "assigned_number", "error"),
    *("table_id", "process_id", "number", "losses", "failure_cause"),
)
COLUMNS = tuple(tasks.c[name] for name in _READ)


def to_task(row: tuple[Any, ...]) -> Task:
    """From a row of COLUMNS."""
    task_id, kind, lane, group, job_id, pipeline, payload, status, *rest = row
    attempt, failures, stop, worker_id, term, answer, error, *of_table, losses, cause = rest
    return Task(
        task_id,
        TaskKind(kind),
        Lane(lane),
        group,
        job_id,
        pipeline,
        payload,
        TaskStatus(status),
        attempt,
        failures,
        bool(stop),
        worker_id,
        None if term is None else (term, answer),
        error,
        *of_table,
        losses=losses,
        failure_cause=None if cause is None else FailureCause(cause),
    )


def retry_times_of(payload: Mapping[str, Any]) -> int:
    """How many errors of its attempts a task forgives; 0: there is one attempt only."""
    return int(payload.get("retry_times", 0))


def lost_workers_max_of(payload: Mapping[str, Any]) -> int:
    """How many workers of a pipeline may be lost in a row, the last of them being the end."""
    return int(payload.get("lost_workers_max", LOST_WORKERS_MAX))


def held(claim_task: Any, claim_attempt: Any) -> tuple[Any, ...]:
    """The guard: this attempt is the current one, and it has not ended."""
    return tasks.c.id == claim_task, tasks.c.attempt == claim_attempt, ASSIGNED_TASK
