"""Which transform a plugin's name stands for."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Protocol

from headrace.errors import Refused
from headrace.model.jobspec import PluginSpec
from headrace.transforms.fields import FieldMapperTransform, FilterTransform
from headrace.transforms.sql import SqlTransform
from headrace.transforms.transform import Transform


class HasOptions(Protocol):
    @property
    def options(self) -> Mapping[str, Any]: ...


def make_transform(spec: PluginSpec, setting: HasOptions) -> Transform:
    made = _TRANSFORMS.get(spec.plugin.lower())
    if made is None:
        known = "FieldMapper, Filter, Sql"
        raise Refused(f"this worker has no transform {spec.plugin!r}; known are {known}")
    return made(spec.name, setting.options)


def _field_mapper(name: str, options: Mapping[str, Any]) -> Transform:
    return FieldMapperTransform(name, options.get("field_mapper") or {})


def _filter(name: str, options: Mapping[str, Any]) -> Transform:
    return FilterTransform(
        name,
        include=options.get("include_fields") or (),
        exclude=options.get("exclude_fields") or (),
    )


def _sql(name: str, options: Mapping[str, Any]) -> Transform:
    return SqlTransform(name, str(options.get("query") or ""))


_TRANSFORMS: Mapping[str, Callable[[str, Mapping[str, Any]], Transform]] = {
    "fieldmapper": _field_mapper,
    "filter": _filter,
    "sql": _sql,
}
