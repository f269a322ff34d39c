"""Bodies that come in. What goes out is defined once, as the client reads it (headrace.client)."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

from headrace.model.jobspec import JobSpec, WholeNumber


class Body(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class SubmitJob(Body):
    spec: JobSpec
    submission_key: Annotated[str, Field(min_length=1, max_length=200)]
    job_id: str | None = None
    group: str | None = None  # the default one; of a restore, the one it had
    restore: str | None = None  # a job that has ended: it goes on, under this spec


class AddCatalog(Body):
    name: str
    type: str
    properties: dict[str, str] = Field(default_factory=dict[str, str], repr=False)
    defaults: dict[str, str] = Field(default_factory=dict[str, str])
    table_filter: str | None = None
    group: str | None = None


class ChangeCatalog(Body):
    """What is given is changed. None for a value takes a property away, "" takes the filter."""

    properties: dict[str, str | None] = Field(default_factory=dict[str, str | None], repr=False)
    defaults: dict[str, str | None] = Field(default_factory=dict[str, str | None])
    table_filter: str | None = None
    group: str | None = None


class Optimize(Body):
    type: Literal["MINOR", "MAJOR", "FULL"] = "MAJOR"


class PlanDry(Body):
    type: Literal["MINOR", "MAJOR", "FULL"] | None = None  # None: as the rules say


class Block(Body):
    reason: str
    seconds: WholeNumber


class CreateGroup(Body):
    name: str
    container: str = "external"
    min_parallelism: WholeNumber = 0
    memory_mb: WholeNumber = 0
    policy: str | None = None
    properties: dict[str, str] = Field(default_factory=dict[str, str])


class ChangeGroup(Body):
    """What is given is changed. None for a value takes a property away, "" takes the policy."""

    container: str | None = None
    min_parallelism: WholeNumber | None = None
    memory_mb: WholeNumber | None = None
    policy: str | None = None
    properties: dict[str, str | None] = Field(default_factory=dict[str, str | None])


class ScaleGroup(Body):
    threads: WholeNumber
    key: Annotated[str, Field(min_length=1, max_length=100)] | None = None
