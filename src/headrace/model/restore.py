"""Restore: whether a job can go on under another job file, and what is new in that.

Positions belong to source names, rows written to sink names. So a source may move to another
pipeline, and anything but the sources may change; a source that went on under nobody's name would
lose rows without a word, and one of another plugin would not understand the position.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from headrace.errors import Refused
from headrace.model.jobspec import JobSpec, PipelineSpec, PluginSpec


def sources_of(spec: JobSpec) -> Mapping[str, PluginSpec]:
    return {plugin.name: plugin for p in spec.pipelines for plugin in p.sources}


def sinks_of(spec: JobSpec) -> Mapping[str, PluginSpec]:
    return {plugin.name: plugin for p in spec.pipelines for plugin in p.sinks}


def check_restore(job_id: str, old: JobSpec, new: JobSpec, *, left_open: Collection[int]) -> None:
    """Refused when the job can't go on under `new`. `left_open`: pipelines with an open epoch."""
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
    lost = [name for name in old if name not in new]
    if lost:
        raise Refused(
            f"the job file has lost {_named(lost)}, of which job {job_id!r} has a position; it has "
            f"{_named(list(new))}. Put the source back, or run the file anew without --restore"
        )
    for name, plugin in old.items():
        if new[name].plugin != plugin.plugin:
            raise Refused(
                f"source {name!r} of job {job_id!r} was a {plugin.plugin}, and is a "
                f"{new[name].plugin} in the job file, which does not know its position; give the "
                "new one another name, or run the file anew without --restore"
            )


def _check_same(job_id: str, old: PipelineSpec, new: PipelineSpec | None) -> None:
    """An open epoch is finished by the new execution: by the same sources, in the same sinks."""
    if new is not None and _shape(old) == _shape(new):
        return
    sources = _named([plugin.name for plugin in old.sources])
    sinks = ", ".join(repr(plugin.name) for plugin in old.sinks)
    raise Refused(
        f"pipeline {old.number} of job {job_id!r} has an epoch that could not be settled; to "
        f"finish it, pipeline {old.number} of the job file must have {sources} and sink {sinks}, "
        "as before. Restore it with that file; a later restore may change them"
    )


def _shape(pipeline: PipelineSpec) -> Sequence[tuple[str, str]]:
    return sorted((each.name, each.plugin) for each in (*pipeline.sources, *pipeline.sinks))


def changes(old: JobSpec, new: JobSpec) -> Sequence[str]:
    """What a user should know of a restore under a changed file, a sentence each."""
    before, now = sources_of(old), sources_of(new)
    said = [
        f"source {name!r} is new: it is read from its beginning"
        for name in now
        if name not in before
    ]
    said += [
        f"source {name!r} has other options than before: it goes on from where it was"
        for name in now
        if name in before and now[name].options != before[name].options
    ]
    before = sinks_of(old)
    said += [
        f"sink {name!r} is new: it gets the rows from here on, and no save mode is carried out"
        for name in sinks_of(new)
        if name not in before
    ]
    said += [
        f"sink {name!r} is gone: it keeps what it has"
        for name in before
        if name not in sinks_of(new)
    ]
    return said


def _named(sources: Sequence[str]) -> str:
    return "source " + ", ".join(repr(name) for name in sources)
