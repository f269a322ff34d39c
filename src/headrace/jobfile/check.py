"""Checks of a job that came over the wire, where no file and no places are known any more."""

from __future__ import annotations

from collections.abc import Iterator

from headrace.errors import Refused
from headrace.jobfile.nodes import NOWHERE, Object, Problem, Role, Written, from_json
from headrace.jobfile.options import PARALLELISM_MAX
from headrace.jobfile.plugin import check_mode, read_plugin
from headrace.jobfile.secrets import with_secrets
from headrace.jobfile.targets import Aimed, find_clash
from headrace.model.jobspec import JobSpec, PipelineSpec, PluginSpec


def check_spec(spec: JobSpec) -> None:
    """Whether a job that was submitted may be accepted. Raises `Refused`."""
    check_declared(spec)
    check_targets(spec)
    check_supported(spec)


def check_declared(spec: JobSpec) -> None:
    """Whether every plugin and option of the job exists and is wired. Raises `Refused`."""
    names: set[str] = set()
    tables: set[str] = set()
    for number, pipeline in enumerate(spec.pipelines, start=1):
        if pipeline.number != number:
            raise Refused(f"pipeline {pipeline.number} should have the number {number}")
        for role, plugin in _plugins(pipeline):
            if plugin.name in names:
                raise Refused(f"two plugins of the job are called {plugin.name!r}")
            names.add(plugin.name)
            _check_options(role, plugin, spec)
        _check_wiring(pipeline, tables)


def check_targets(spec: JobSpec) -> None:
    """Whether no sink opens a target that another pipeline writes to. Raises `Refused`."""
    sinks = [
        Aimed(pipeline.number, sink.name, sink.plugin, with_secrets(sink, spec.secrets))
        for pipeline in spec.pipelines
        for sink in pipeline.sinks
    ]
    if clash := find_clash(sinks):
        raise Refused(str(clash))


def check_supported(spec: JobSpec) -> None:
    """Whether this version can run the job. Raises `Refused` with what is missing."""
    if spec.env.parallelism > PARALLELISM_MAX:
        raise Refused(
            f"parallelism must be at most {PARALLELISM_MAX}, and is {spec.env.parallelism}"
        )


def _plugins(pipeline: PipelineSpec) -> Iterator[tuple[Role, PluginSpec]]:
    for plugin in pipeline.sources:
        yield "source", plugin
    for plugin in pipeline.transforms:
        yield "transform", plugin
    for plugin in pipeline.sinks:
        yield "sink", plugin


def _check_options(role: Role, plugin: PluginSpec, spec: JobSpec) -> None:
    options = with_secrets(plugin, spec.secrets)
    block = from_json(options)
    assert isinstance(block, Object)
    try:
        read = read_plugin(Written(role, plugin.plugin, NOWHERE, block))
        check_mode(read, spec.env)
    except Problem as problem:
        raise Refused(f"{plugin.name}: {problem.text}") from None
    if plugin.plugin != read.decl.name:
        raise Refused(f"{plugin.name}: write {read.decl.name!r} for {plugin.plugin!r}")
    for key, value in options.items():
        if key not in read.options:
            raise Refused(f"{plugin.name}: option {key!r} must stand under its declared name")
        if read.options[key] != value:
            raise Refused(f"{plugin.name}: option {key!r} must be {read.options[key]!r} here")


def _check_wiring(pipeline: PipelineSpec, tables: set[str]) -> None:
    made: set[str] = set()
    for role, plugin in _plugins(pipeline):
        if (role == "source") != (not plugin.inputs) or (role == "sink") != (plugin.output is None):
            raise Refused(f"{plugin.name}: a {role} can't have these inputs and this output")
        for table in plugin.inputs:
            if table not in made:
                raise Refused(f"{plugin.name}: table {table!r} is not made before it is read")
        if plugin.output is None:
            continue
        if plugin.output in tables:
            raise Refused(f"{plugin.name}: table {plugin.output!r} is made twice")
        made.add(plugin.output)
        tables.add(plugin.output)
