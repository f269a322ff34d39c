"""Bodies of the API: what comes in, and what people and programs read."""

from __future__ import annotations

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, JsonValue

from headrace.model.jobspec import JobSpec


class Body(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class SubmitJob(Body):
    spec: JobSpec
    submission_key: Annotated[str, Field(min_length=1, max_length=200)]
    job_id: str | None = None
    group: str = "default"


class ProgressView(BaseModel):
    step: str
    epoch: int
    rows: int
    rows_expected: int | None


class PipelineView(BaseModel):
    number: int
    status: str
    epoch: int
    rows_in: int
    rows_out: int
    commits: dict[str, JsonValue]
    error: str | None
    execution: str | None
    worker: str | None
    spark_application: str | None
    progress: ProgressView | None


class JobView(BaseModel):
    id: str
    name: str
    status: str
    group: str
    waits_for: str | None
    error: str | None
    created_at_ms: int
    started_at_ms: int | None
    ended_at_ms: int | None
    pipelines: list[PipelineView]


class JobList(BaseModel):
    jobs: list[JobView]


class WorkerView(BaseModel):
    id: str
    group: str
    slots: int
    host: str
    pid: int
    version: str
    spark_application: str
    registered_at_ms: int
    seen_at_ms: int
    executions: list[str]


class WorkerList(BaseModel):
    workers: list[WorkerView]


class Health(BaseModel):
    status: str
    leading: bool
    term: int | None
    leader: str | None
    version: str
    store: str
    pid: int
