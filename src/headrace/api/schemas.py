"""Bodies that come in. What goes out is defined once, as the client reads it (headrace.client)."""

from __future__ import annotations

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

from headrace.model.jobspec import JobSpec


class Body(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class SubmitJob(Body):
    spec: JobSpec
    submission_key: Annotated[str, Field(min_length=1, max_length=200)]
    job_id: str | None = None
    group: str | None = None  # the default one; of a restore, the one it had
    restore: str | None = None  # a job that has ended: it goes on, under this spec
