"""The checks of a job that came over the wire as a `JobSpec`, and how its secrets are kept apart.

No file and no places are known any more, so every check raises `Refused`.

Secrets stand apart from the options that they belong to, under "<plugin name>.<option path>".
What is stored, shown and logged has `REDACTED` in their place (`take_secrets`); a worker puts them
back (`with_secrets`). `resolved_options` gives a connector what it needs: every declared option
with its value or default, with nothing missing or redacted.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from pydantic import JsonValue

from headrace.errors import Refused
from headrace.jobfile.graph import ConfiguredSink, find_clash
from headrace.jobfile.options import PARALLELISM_MAX, Kind, PluginDecl
from headrace.jobfile.registry import check_mode, find_plugin, read_plugin
from headrace.jobfile.syntax_tree import NOWHERE, Object, PluginBlock, Problem, Role, from_json
from headrace.logs import is_secret
from headrace.model.jobs.spec import REDACTED, JobSpec, PipelineSpec, PluginSpec

# Options that are no part of PluginSpec.options: they became .inputs and .output.
_WIRING = frozenset({"plugin_input", "plugin_output"})

Json = dict[str, JsonValue]


def check_spec(spec: JobSpec) -> None:
    """Check whether a submitted job may be accepted. Raises `Refused`."""
    check_declared(spec)
    check_targets(spec)
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
        ConfiguredSink(pipeline.number, sink.name, sink.plugin, with_secrets(sink, spec.secrets))
        for pipeline in spec.pipelines
        for sink in pipeline.sinks
    ]
    if clash := find_clash(sinks):
        raise Refused(str(clash))


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


def _check_options(role: Role, plugin: PluginSpec, spec: JobSpec) -> None:
    options = with_secrets(plugin, spec.secrets)
    block = from_json(options)
    assert isinstance(block, Object)
    try:
        checked = read_plugin(PluginBlock(role, plugin.plugin, NOWHERE, block))
        check_mode(checked, spec.env)
    except Problem as problem:
        raise Refused(f"{plugin.name}: {problem.text}") from None
    if plugin.plugin != checked.decl.name:
        raise Refused(f"{plugin.name}: write {checked.decl.name!r} for {plugin.plugin!r}")
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


def take_secrets(
    name: str, decl: PluginDecl | None, options: Mapping[str, JsonValue]
) -> tuple[Json, Json]:
    """The options with their secrets redacted, and the secrets by path.

    Without a declaration, only the names of options tell which of them are secret.
    """
    taken: Json = {}

    def take(path: str, value: JsonValue) -> JsonValue:
        taken[path] = value
        return REDACTED

    kept: Json = {}
    for key, value in options.items():
        option = decl.options.find(key) if decl else None
        if option is not None and option.kind is Kind.SCHEMA:
            kept[key] = value  # a column may be called "password"; its type is no secret
        elif option is not None and option.secret:
            kept[key] = take(f"{name}.{key}", value)
        else:
            kept[key] = _redact(f"{name}.{key}", key, value, take=take)
    return kept, taken


def _redact(
    path: str, key: str, value: JsonValue, *, take: Callable[[str, JsonValue], JsonValue]
) -> JsonValue:
    if is_secret(key) and value is not None:
        return take(path, value)
    if isinstance(value, dict):
        return {k: _redact(f"{path}.{k}", k, v, take=take) for k, v in value.items()}
    if isinstance(value, list):
        return [_redact(f"{path}[{i}]", "", v, take=take) for i, v in enumerate(value)]
    return value


def with_secrets(plugin: PluginSpec, secrets: Mapping[str, JsonValue]) -> Json:
    """The options of a plugin with its secrets put back. Raises `Refused` when one is missing."""
    return {
        key: _restore(f"{plugin.name}.{key}", key, value, secrets)
        for key, value in plugin.options.items()
    }


def _restore(path: str, key: str, value: JsonValue, secrets: Mapping[str, JsonValue]) -> JsonValue:
    if value == REDACTED:
        if path in secrets:
            return secrets[path]
        if is_secret(key):
            raise Refused(f"the secret {path!r} is missing; submit the job again with its value")
        return value
    if isinstance(value, dict):
        return {k: _restore(f"{path}.{k}", k, v, secrets) for k, v in value.items()}
    if isinstance(value, list):
        return [_restore(f"{path}[{i}]", "", v, secrets) for i, v in enumerate(value)]
    return value


def resolved_options(
    plugin: PluginSpec, role: Role, secrets: Mapping[str, JsonValue] | None = None
) -> Json:
    """Every declared option of a plugin with its value or default; None when it has neither.

    `secrets` are put back; when they are None, they stay redacted.
    """
    try:
        decl = find_plugin(role, plugin.plugin, NOWHERE)
    except Problem as problem:
        raise Refused(problem.text) from None
    declared = (option for option in decl.options.declared if option.name not in _WIRING)
    defaults = {option.name: option.default for option in declared}
    values = plugin.options if secrets is None else with_secrets(plugin, secrets)
    return {**defaults, **values}
