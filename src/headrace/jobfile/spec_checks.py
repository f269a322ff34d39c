"""The checks of a job that came over the wire as a `JobSpec`.

No file and no places are known any more, so every check raises `Refused`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from pydantic import JsonValue

from headrace.errors import BadJob, Refused
from headrace.jobfile.graph import ConfiguredSink, find_clash
from headrace.jobfile.registry import Plugin, check_mode, read_plugin
from headrace.model.jobs.spec import JobSpec, PipelineSpec, PluginSpec
from headrace.plugins.catalog import catalog
from headrace.plugins.jars import OWN_JARS_MAX, own_jar_flaw
from headrace.plugins.options import PARALLELISM_MAX
from headrace.plugins.problems import PROBLEMS_MAX, Problems
from headrace.plugins.row_flow import flows_of
from headrace.plugins.secrets import with_secrets
from headrace.plugins.syntax_tree import NOWHERE, Object, PluginBlock, Role, from_json


def check_spec(spec: JobSpec) -> None:
    """Check whether a submitted job may be accepted. Raises `Refused`."""
    check_declared(spec)
    check_targets(spec)
    check_flows(spec)
    check_supported(spec)


def check_declared(spec: JobSpec) -> None:
    """Check that every plugin and option of the job exists and is wired. Raises `Refused`; what is
    wrong with the options of all plugins is told at once (`BadJob`)."""
    names: set[str] = set()
    problems: list[str] = []
    for number, pipeline in enumerate(spec.pipelines, start=1):
        if pipeline.number != number:
            raise Refused(f"pipeline {pipeline.number} should have the number {number}")
        for role, plugin in plugins_by_role(pipeline):
            if plugin.name in names:
                raise Refused(f"two plugins of the job are called {plugin.name!r}")
            names.add(plugin.name)
            problems += _options_flaws(role, plugin, spec)
    if problems:
        raise BadJob(problems[:PROBLEMS_MAX], more=max(0, len(problems) - PROBLEMS_MAX))
    tables: set[str] = set()
    for pipeline in spec.pipelines:
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
    _check_jars(spec.env.other.get("jars"))


def _check_jars(given: JsonValue) -> None:
    """Check what the job asks for by itself. Raises `Refused`."""
    if given is None:
        return
    if not isinstance(given, list) or len(given) > OWN_JARS_MAX:
        raise Refused(f"jars of env must be a list of at most {OWN_JARS_MAX} coordinates")
    for each in given:
        if (flaw := own_jar_flaw(str(each))) is not None:
            raise Refused(f"each value of jars of env must be a jar, and {each!r} is none: {flaw}")


def plugins_by_role(pipeline: PipelineSpec) -> Iterator[tuple[Role, PluginSpec]]:
    """All plugins of a pipeline, in the order in which rows pass them."""
    for plugin in pipeline.sources:
        yield "source", plugin
    for plugin in pipeline.transforms:
        yield "transform", plugin
    for plugin in pipeline.sinks:
        yield "sink", plugin


def _options_of(role: Role, plugin: PluginSpec, spec: JobSpec) -> dict[str, JsonValue]:
    return with_secrets(plugin, catalog().find(role, plugin.plugin), spec.secrets)


def _options_flaws(role: Role, plugin: PluginSpec, spec: JobSpec) -> list[str]:
    """What is wrong with the options of a plugin, each with its name before it."""
    options = _options_of(role, plugin, spec)
    block = from_json(options)
    assert isinstance(block, Object)
    # Strict: what a reader of files ignores, it leaves out, so that an unknown option is a mistake.
    problems = Problems(strict=True)
    written = PluginBlock(role, plugin.plugin, NOWHERE, block)
    checked = read_plugin(written, problems=problems, here=" at this coordinator")
    if checked is not None and not problems.count:
        with problems.collect():
            check_mode(checked, spec.env)
    flaws = [problem.text for problem in problems.found]
    if checked is not None and not flaws:
        flaws = _name_flaws(plugin, checked, options)
    return [f"{plugin.name}: {flaw}" for flaw in flaws]


def _name_flaws(plugin: PluginSpec, checked: Plugin, options: Mapping[str, JsonValue]) -> list[str]:
    """What is not written as the reader of files would have written it."""
    if plugin.plugin != checked.descriptor.name:
        return [f"write {checked.descriptor.name!r} for {plugin.plugin!r}"]
    flaws: list[str] = []
    for key, value in options.items():
        if key not in checked.options:
            flaws.append(f"option {key!r} must stand under its declared name")
        elif checked.options[key] != value:
            flaws.append(f"option {key!r} must be {checked.options[key]!r} here")
    return flaws


def _check_wiring(pipeline: PipelineSpec, tables: set[str]) -> None:
    made: set[str] = set()
    for role, plugin in plugins_by_role(pipeline):
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
