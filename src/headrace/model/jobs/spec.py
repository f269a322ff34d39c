"""Job specification: what a user submits once the job file is read, and what a restore may change.

A specification holds values only, nothing of the job file's syntax. Bytes come in here (from the
API, the store, an assignment), so these are pydantic models.

`check_restore` says whether a job can go on under another job file, `changes` what is new in it.
Positions belong to source names, and written rows to sink names. So a source may move to another
pipeline, and anything but the sources may change. A source whose name is gone from the file would
silently lose rows, and one of another plugin would not understand the stored position.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, JsonValue

from headrace.errors import Refused
from headrace.model.text import Text

SPEC_VERSION = 1
REDACTED = "******"
LOST_WORKERS_MAX = 10  # the default of `job.lost-workers.max`

# Strict: neither true, which Python takes for 1, nor "5", nor 5.0.
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
    inputs: tuple[str, ...] = ()  # names of the tables it reads; empty for a source
    output: str | None = None  # name of the table it makes; None for a sink


class PipelineSpec(Spec):
    number: Annotated[WholeNumber, Field(ge=1)]
    sources: Annotated[tuple[PluginSpec, ...], Field(min_length=1)]
    transforms: tuple[PluginSpec, ...] = ()  # in topological order: inputs come first
    sinks: Annotated[tuple[PluginSpec, ...], Field(min_length=1)]


class EnvSpec(Spec):
    job_mode: Literal["BATCH", "STREAMING"] = "BATCH"
    parallelism: Annotated[WholeNumber, Field(ge=1)] = 1
    checkpoint_interval_ms: Annotated[WholeNumber, Field(ge=1)] | None = None
    checkpoint_timeout_ms: Annotated[WholeNumber, Field(ge=1)] | None = None
    checkpoint_min_pause_ms: Annotated[WholeNumber, Field(ge=0)] | None = None
    checkpoint_retained: Annotated[WholeNumber, Field(ge=1)] = 20  # completed checkpoints
    retry_times: Annotated[WholeNumber, Field(ge=0)] = 3
    retry_interval_s: Annotated[WholeNumber, Field(ge=0)] = 3
    lost_workers_max: Annotated[WholeNumber, Field(ge=1)] = (
        LOST_WORKERS_MAX  # in a row without progress
    )
    # spark.*, flink.*, jars. An older program refuses a field that it does not know, but not these.
    other: dict[str, JsonValue] = Field(default_factory=dict[str, JsonValue])

    @property
    def jars(self) -> tuple[str, ...]:
        """Coordinates of jars that the job asks for by itself."""
        given = self.other.get("jars")
        return tuple(map(str, given)) if isinstance(given, list) else ()


class JobSpec(Spec):
    version: Literal[1] = SPEC_VERSION
    name: Annotated[Text, Field(min_length=1, max_length=200)]
    env: EnvSpec = EnvSpec()
    pipelines: Annotated[tuple[PipelineSpec, ...], Field(min_length=1)]
    # Which group of workers the file asks for. It is no part of what is stored: the job has one.
    group: Annotated[str | None, Field(exclude_if=lambda group: group is None)] = None
    # Values of sensitive options by "<plugin name>.<option>"; kept apart from the stored spec.
    secrets: dict[str, JsonValue] = Field(default_factory=dict[str, JsonValue])


def sources_of(spec: JobSpec) -> Mapping[str, PluginSpec]:
    """The sources of all pipelines, by name."""
    return {plugin.name: plugin for p in spec.pipelines for plugin in p.sources}


def sinks_of(spec: JobSpec) -> Mapping[str, PluginSpec]:
    """The sinks of all pipelines, by name."""
    return {plugin.name: plugin for p in spec.pipelines for plugin in p.sinks}


def check_restore(job_id: str, old: JobSpec, new: JobSpec, *, left_open: Collection[int]) -> None:
    """Raise Refused when the job can't go on under `new`.

    `left_open` are the numbers of pipelines with an open epoch: these must keep their shape.
    """
    _check_sources(job_id, sources_of(old), sources_of(new))
    if old.env.job_mode != new.env.job_mode:
        raise Refused(
            f"job {job_id!r} was a {old.env.job_mode} job, and the job file says job.mode = "
            f"{new.env.job_mode}; restore it with job.mode = {old.env.job_mode} in env"
        )
    by_number = {p.number: p for p in new.pipelines}
    for pipeline in old.pipelines:
        if pipeline.number in left_open:
            _check_same(job_id, pipeline, by_number.get(pipeline.number))


def _check_sources(
    job_id: str, old: Mapping[str, PluginSpec], new: Mapping[str, PluginSpec]
) -> None:
    lost = [plugin for name, plugin in old.items() if name not in new]
    if lost:
        present = ", ".join(map(_source_label, new.values()))
        raise Refused(
            f"the job file has lost source {', '.join(map(_source_label, lost))}, of which "
            f"job {job_id!r} has a position; it has source {present}. Put the source back, or run "
            "the file anew without --restore"
        )
    for name, plugin in old.items():
        if new[name].plugin != plugin.plugin:
            raise Refused(
                f"source {name!r} of job {job_id!r} was a {plugin.plugin}, and is a "
                f"{new[name].plugin} in the job file, which does not know its position; give the "
                "new one another name, or run the file anew without --restore"
            )
        _check_place(job_id, plugin, new)


def _check_place(job_id: str, was: PluginSpec, new: Mapping[str, PluginSpec]) -> None:
    """Refuse a source that would go on from another source's position.

    Sources are named by their order in the file, so reordering them swaps their names.
    """
    if new[was.name].options == was.options:
        return
    for now in new.values():
        if now.plugin == was.plugin and now.options == was.options:
            raise Refused(
                f"source {was.name!r} of job {job_id!r} is called {now.name!r} in the job file, "
                f"where {_source_label(new[was.name])} would go on from its position; sources are "
                "named by their order in the file. Keep the order they had, and add new ones at "
                "the end"
            )


def _check_same(job_id: str, old: PipelineSpec, new: PipelineSpec | None) -> None:
    """The new execution finishes the open epoch: that takes the same sources and sinks."""
    if new is not None and _shape(old) == _shape(new):
        return
    sources = _source_names([plugin.name for plugin in old.sources])
    sinks = ", ".join(repr(plugin.name) for plugin in old.sinks)
    raise Refused(
        f"pipeline {old.number} of job {job_id!r} has an epoch that could not be settled; to "
        f"finish it, pipeline {old.number} of the job file must have {sources} and sink {sinks}, "
        "as before. Restore it with that file; a later restore may change them"
    )


def _shape(pipeline: PipelineSpec) -> Sequence[tuple[str, str]]:
    return sorted((each.name, each.plugin) for each in (*pipeline.sources, *pipeline.sinks))


def changes(old: JobSpec, new: JobSpec) -> Sequence[str]:
    """What a user should know about a restore under a changed file: one sentence per change."""
    before, now = sources_of(old), sources_of(new)
    notes = [
        f"source {name!r} is new: it is read from its beginning"
        for name in now
        if name not in before
    ]
    notes += [
        f"source {name!r} has other options than before: it goes on from where it was"
        for name in now
        if name in before and now[name].options != before[name].options
    ]
    before = sinks_of(old)
    notes += [
        f"sink {name!r} is new: it gets the rows from here on, and no save mode is carried out"
        for name in sinks_of(new)
        if name not in before
    ]
    notes += [
        f"sink {name!r} is gone: it keeps what it has"
        for name in before
        if name not in sinks_of(new)
    ]
    return notes


def _source_label(source: PluginSpec) -> str:
    """The source's name with what it reads: the name alone only says its place in the file."""
    for option in ("path", "table", "table_path"):
        if (value := source.options.get(option)) is not None:
            return f"{source.name!r} ({option} {value!r})"
    return f"{source.name!r} (plugin_output {source.output!r})"


def _source_names(sources: Sequence[str]) -> str:
    return "source " + ", ".join(repr(name) for name in sources)
