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
    lost = [plugin for name, plugin in old.items() if name not in new]
    if lost:
        there = ", ".join(map(_told, new.values()))
        raise Refused(
            f"the job file has lost source {', '.join(map(_told, lost))}, of which job {job_id!r} "
            f"has a position; it has source {there}. Put the source back, or run the file anew "
            "without --restore"
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
    """Names come from the order in the file: one source must not go on from another's position."""
    if new[was.name].options == was.options:
        return
    for now in new.values():
        if now.plugin == was.plugin and now.options == was.options:
            raise Refused(
                f"source {was.name!r} of job {job_id!r} is called {now.name!r} in the job file, "
                f"where {_told(new[was.name])} would go on from its position; sources are named "
                "by their order in the file. Keep the order they had, and add new ones at the end"
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


def _told(source: PluginSpec) -> str:
    """With what it reads: its name says only its place in the file."""
    for option in ("path", "table", "table_path"):
        if (value := source.options.get(option)) is not None:
            return f"{source.name!r} ({option} {value!r})"
    return f"{source.name!r} (plugin_output {source.output!r})"


def _named(sources: Sequence[str]) -> str:
    return "source " + ", ".join(repr(name) for name in sources)
