"""What a user submits, after the job file was read: values only, nothing of its syntax.

Bytes come in here (the API, the store, an assignment), so these are pydantic models.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, JsonValue

from headrace.model.text import Text

SPEC_VERSION = 1
REDACTED = "******"
LOST_WORKERS_MAX = 10  # `job.lost-workers.max`, when a job says nothing else

# Neither true, which Python takes for 1, nor "5", nor 5.0.
WholeNumber = Annotated[int, Field(strict=True)]


class Spec(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class PluginSpec(Spec):
    """One source, transform or sink.

    `options` holds what the user wrote, by declared option name, checked and converted;
    defaults are filled in by whoever reads them. A secret stands in `secrets`, never here.
    """

    name: str  # unique within the job, e.g. "FakeSource-1"; positions belong to it
    plugin: str  # as it is declared: "FakeSource", whatever case the user wrote
    options: dict[str, JsonValue] = Field(default_factory=dict[str, JsonValue])
    inputs: tuple[str, ...] = ()  # the tables it reads; empty for a source
    output: str | None = None  # the table it makes; none for a sink


class PipelineSpec(Spec):
    number: Annotated[WholeNumber, Field(ge=1)]
    sources: Annotated[tuple[PluginSpec, ...], Field(min_length=1)]
    transforms: tuple[PluginSpec, ...] = ()  # in an order in which each one's inputs come before it
    sinks: Annotated[tuple[PluginSpec, ...], Field(min_length=1)]


class EnvSpec(Spec):
    job_mode: Literal["BATCH", "STREAMING"] = "BATCH"
    parallelism: Annotated[WholeNumber, Field(ge=1)] = 1
    checkpoint_interval_ms: Annotated[WholeNumber, Field(ge=1)] | None = None
    checkpoint_timeout_ms: Annotated[WholeNumber, Field(ge=1)] | None = None
    checkpoint_min_pause_ms: Annotated[WholeNumber, Field(ge=0)] | None = None
    checkpoint_retained: Annotated[WholeNumber, Field(ge=1)] = 20  # completed ones
    retry_times: Annotated[WholeNumber, Field(ge=0)] = 3
    retry_interval_s: Annotated[WholeNumber, Field(ge=0)] = 3
    lost_workers_max: Annotated[WholeNumber, Field(ge=1)] = LOST_WORKERS_MAX  # without progress
    other: dict[str, JsonValue] = Field(default_factory=dict[str, JsonValue])  # spark.*, flink.*


class JobSpec(Spec):
    version: Literal[1] = SPEC_VERSION
    name: Annotated[Text, Field(min_length=1, max_length=200)]
    env: EnvSpec = EnvSpec()
    pipelines: Annotated[tuple[PipelineSpec, ...], Field(min_length=1)]
    # Values of sensitive options by "<plugin name>.<option>"; kept apart from the stored spec.
    secrets: dict[str, JsonValue] = Field(default_factory=dict[str, JsonValue])
