"""Secrets stand apart from the options they belong to, under "<plugin name>.<option path>".

What is stored, shown and logged has `REDACTED` in their place; a worker puts them back.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from pydantic import JsonValue

from headrace.errors import Refused
from headrace.jobfile.options import Kind, PluginDecl
from headrace.logs import is_secret
from headrace.model.jobspec import REDACTED, PluginSpec

Json = dict[str, JsonValue]


def take_secrets(
    name: str, decl: PluginDecl | None, options: Mapping[str, JsonValue]
) -> tuple[Json, Json]:
    """The options with their secrets redacted, and the secrets. Without a declaration, names
    alone tell what is one."""
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
            kept[key] = _replace(f"{name}.{key}", key, value, take=take)
    return kept, taken


def _replace(
    path: str, key: str, value: JsonValue, *, take: Callable[[str, JsonValue], JsonValue]
) -> JsonValue:
    if is_secret(key) and value is not None:
        return take(path, value)
    if isinstance(value, dict):
        return {k: _replace(f"{path}.{k}", k, v, take=take) for k, v in value.items()}
    if isinstance(value, list):
        return [_replace(f"{path}[{i}]", "", v, take=take) for i, v in enumerate(value)]
    return value


def with_secrets(plugin: PluginSpec, secrets: Mapping[str, JsonValue]) -> Json:
    """The options of a plugin, its secrets in their places again."""
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
