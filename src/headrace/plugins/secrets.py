"""Secrets stand apart from the options that they belong to, under "<plugin name>.<option path>".

What is stored, shown and logged has `REDACTED` in their place (`take_secrets`); a worker puts them
back (`with_secrets`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from pydantic import JsonValue

from headrace.errors import Refused
from headrace.logs import is_secret
from headrace.model.jobs.spec import REDACTED, PluginSpec
from headrace.plugins.descriptor import AnyDescriptor
from headrace.plugins.options import Kind

Json = dict[str, JsonValue]


def take_secrets(
    name: str, descriptor: AnyDescriptor | None, options: Mapping[str, JsonValue]
) -> tuple[Json, Json]:
    """The options with their secrets redacted, and the secrets by path.

    Without a descriptor, only the names of options tell which of them are secret.
    """
    taken: Json = {}

    def take(path: str, value: JsonValue) -> JsonValue:
        taken[path] = value
        return REDACTED

    kept: Json = {}
    for key, value in options.items():
        option = descriptor.options.find(key) if descriptor else None
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


def with_secrets(
    plugin: PluginSpec, descriptor: AnyDescriptor | None, secrets: Mapping[str, JsonValue]
) -> Json:
    """The options of a plugin with its secrets put back. Raises `Refused` when one is missing.

    Without a descriptor, only the names of options tell which of them are secret.
    """
    restored: Json = {}
    for key, value in plugin.options.items():
        path, option = f"{plugin.name}.{key}", descriptor.options.find(key) if descriptor else None
        if value == REDACTED and option is not None and option.secret and path not in secrets:
            raise _missing(path)
        restored[key] = _restore(path, key, value, secrets)
    return restored


def _missing(path: str) -> Refused:
    return Refused(f"the secret {path!r} is missing; submit the job again with its value")


def _restore(path: str, key: str, value: JsonValue, secrets: Mapping[str, JsonValue]) -> JsonValue:
    if value == REDACTED:
        if path in secrets:
            return secrets[path]
        if is_secret(key):
            raise _missing(path)
        return value
    if isinstance(value, dict):
        return {k: _restore(f"{path}.{k}", k, v, secrets) for k, v in value.items()}
    if isinstance(value, list):
        return [_restore(f"{path}[{i}]", "", v, secrets) for i, v in enumerate(value)]
    return value


def lacks_secrets(
    plugin: PluginSpec, descriptor: AnyDescriptor | None, secrets: Mapping[str, JsonValue]
) -> bool:
    """Whether a secret of the plugin is missing: most are deleted at the end of their job."""
    try:
        with_secrets(plugin, descriptor, secrets)
    except Refused:
        return True
    return False
