"""Secrets of a job that came over the wire: whoever wrote it may have left them in its options."""

from __future__ import annotations

from collections.abc import Sequence

from pydantic import JsonValue

from headrace.jobfile.nodes import NOWHERE, Problem, Role
from headrace.jobfile.options import PluginDecl
from headrace.jobfile.registry import find_plugin
from headrace.jobfile.secrets import take_secrets
from headrace.model.jobspec import REDACTED, JobSpec, PluginSpec


def without_secrets(spec: JobSpec) -> JobSpec:
    """The same job, with every secret in `secrets` and nowhere else."""
    found: dict[str, JsonValue] = {}
    other, taken = take_secrets("env", None, spec.env.other)
    found |= taken
    pipelines = tuple(
        pipeline.model_copy(
            update={
                "sources": _apart("source", pipeline.sources, found),
                "transforms": _apart("transform", pipeline.transforms, found),
                "sinks": _apart("sink", pipeline.sinks, found),
            }
        )
        for pipeline in spec.pipelines
    )
    # One that stands apart already is redacted in its place.
    written = {path: value for path, value in found.items() if value != REDACTED}
    return spec.model_copy(
        update={
            "env": spec.env.model_copy(update={"other": other}),
            "pipelines": pipelines,
            "secrets": {**spec.secrets, **written},
        }
    )


def _apart(
    role: Role, plugins: Sequence[PluginSpec], found: dict[str, JsonValue]
) -> tuple[PluginSpec, ...]:
    kept: list[PluginSpec] = []
    for plugin in plugins:
        options, taken = take_secrets(plugin.name, _declared(role, plugin), plugin.options)
        found.update(taken)
        kept.append(plugin.model_copy(update={"options": options}))
    return tuple(kept)


def _declared(role: Role, plugin: PluginSpec) -> PluginDecl | None:
    try:
        return find_plugin(role, plugin.plugin, NOWHERE)
    except Problem:
        return None  # the check of the spec, which follows, says what is wrong with it
