"""The checks of a job that came over the wire as a `JobSpec`.

No file and no places are known any more, so every check raises `Refused`.
"""

from __future__ import annotations

from collections.abc import Iterator

from pydantic import JsonValue

from headrace.errors import Refused
from headrace.jobfile.graph import ConfiguredSink, find_clash
from headrace.jobfile.registry import check_mode, read_plugin
from headrace.model.jobs.spec import JobSpec, PipelineSpec, PluginSpec
from headrace.plugins.catalog import catalog
from headrace.plugins.options import PARALLELISM_MAX
from headrace.plugins.row_flow import flows_of
from headrace.plugins.secrets import with_secrets
from headrace.plugins.syntax_tree import NOWHERE, Object, PluginBlock, Problem, Role, from_json


def check_spec(spec: JobSpec) -> None:
    """Check whether a submitted job may be accepted. Raises `Refused`."""
    check_declared(spec)
    check_targets(spec)
    check_flows(spec)
    check_supported(spec)


def check_declared(spec: JobSpec) -> None:
    """Check that every plugin and option of the job exists and is wired. Raises `Refused`."""
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
    """Check that no sink opens a target that another pipeline writes to. Raises `Refused`."""
    sinks = [
        ConfiguredSink(pipeline.number, sink.name, sink.plugin, _options_of("sink", sink, spec))
        for pipeline in spec.pipelines
        for sink in pipeline.sinks
    ]
    if clash := find_clash(sinks):
        raise Refused(str(clash))


def check_flows(spec: JobSpec) -> None:
    """Check that whoever reads rows can take the kinds that may come. Raises `Refused`."""
    for pipeline in spec.pipelines:
        flows_of(pipeline)


def check_supported(spec: JobSpec) -> None:
    """Check that this version can run the job. Raises `Refused` with what is missing."""
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


def _options_of(role: Role, plugin: PluginSpec, spec: JobSpec) -> dict[str, JsonValue]:
    return with_secrets(plugin, catalog().find(role, plugin.plugin), spec.secrets)


def _check_options(role: Role, plugin: PluginSpec, spec: JobSpec) -> None:
    options = _options_of(role, plugin, spec)
    block = from_json(options)
    assert isinstance(block, Object)
    try:
        written = PluginBlock(role, plugin.plugin, NOWHERE, block)
        checked = read_plugin(written, here=" at this coordinator")
        check_mode(checked, spec.env)
    except Problem as problem:
        raise Refused(f"{plugin.name}: {problem.text}") from None
    if plugin.plugin != checked.descriptor.name:
        raise Refused(f"{plugin.name}: write {checked.descriptor.name!r} for {plugin.plugin!r}")
    for key, value in options.items():
        if key not in checked.options:
            raise Refused(f"{plugin.name}: option {key!r} must stand under its declared name")
        if checked.options[key] != value:
            raise Refused(f"{plugin.name}: option {key!r} must be {checked.options[key]!r} here")


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
