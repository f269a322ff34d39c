"""A job and a pipeline as they are read."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from sqlalchemy import func

from headrace.model.job import JobStatus, PipelineStatus
from headrace.store.schema import jobs


@dataclass(frozen=True, slots=True)
class Job:
    id: str
    incarnation: str
    name: str
    group: str
    status: JobStatus
    waits_for: str | None
    error: str | None
    wanted_cancel: bool
    wanted_savepoint: bool
    created_at_ms: int
    started_at_ms: int | None
    ended_at_ms: int | None
    run: int = 1  # each restore is a further one
    key: str = ""  # under which this run was submitted, or restored


@dataclass(frozen=True, slots=True)
class Pipeline:
    job_id: str
    number: int
    status: PipelineStatus
    task_id: str | None
    epoch: int
    positions: Mapping[str, Any]
    rows_in: int
    rows_out: int
    commits: Mapping[str, Any]
    error: str | None
    written: Mapping[str, int]  # rows, by sink name
    read: Mapping[str, int] = field(default_factory=dict[str, int])  # rows, by source name
    completed_epoch: int | None = None  # where `epoch` was put above it by a restore

    @property
    def really_completed(self) -> int:
        return self.epoch if self.completed_epoch is None else self.completed_epoch

    def facts(self) -> dict[str, Any]:
        """As history and savepoints keep it."""
        return {
            "number": self.number,
            "status": self.status.value,
            "epoch": self.epoch,
            "positions": dict(self.positions),
            "rows_in": self.rows_in,
            "rows_out": self.rows_out,
            "commits": dict(self.commits),
            "written": dict(self.written),
            "read": dict(self.read),
            "error": self.error,
        }


# What makes up a Job, in its order. Specs are wide, and rarely read.
_READ = (
    *("id", "incarnation", "name", "group_name", "status", "waits_for", "error"),
    *("wanted_cancel", "wanted_savepoint", "created_at_ms", "started_at_ms", "ended_at_ms", "run"),
)
JOB_COLUMNS = (
    *(jobs.c[name] for name in _READ),
    func.coalesce(jobs.c.restore_key, jobs.c.submission_key),
)


def to_job(row: Sequence[Any]) -> Job:
    """From a row of JOB_COLUMNS."""
    job_id, incarnation, name, group, status, waits_for, error, cancel, savepoint, *rest = row
    about = (job_id, incarnation, name, group, JobStatus(status), waits_for, error)
    return Job(*about, bool(cancel), bool(savepoint), *rest)


def to_pipeline(row: Sequence[Any]) -> Pipeline:
    """From a row of the table as it stands."""
    job_id, number, status, *rest = row
    return Pipeline(job_id, number, PipelineStatus(status), *rest)
