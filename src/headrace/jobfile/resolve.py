"""The options of a plugin as its connector wants them: nothing missing, nothing redacted."""

from __future__ import annotations

from collections.abc import Mapping

from pydantic import JsonValue

from headrace.errors import Refused
from headrace.jobfile.nodes import NOWHERE, Problem, Role
from headrace.jobfile.registry import find_plugin
from headrace.jobfile.secrets import Json, with_secrets
from headrace.model.jobspec import PluginSpec

_WIRING = frozenset({"plugin_input", "plugin_output"})  # PluginSpec.inputs and .output


def resolved_options(
    plugin: PluginSpec, role: Role, secrets: Mapping[str, JsonValue] | None = None
) -> Json:
    """Every declared option of a plugin with the given value or its default (None: none).

    With `secrets`, these are put back; without, they stay redacted.
    """
    try:
        decl = find_plugin(role, plugin.plugin, NOWHERE)
    except Problem as problem:
        raise Refused(problem.text) from None
    declared = (option for option in decl.options.declared if option.name not in _WIRING)
    defaults = {option.name: option.default for option in declared}
    given = plugin.options if secrets is None else with_secrets(plugin, secrets)
    return {**defaults, **given}
