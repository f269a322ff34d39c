"""The registry of transforms: their Protocol, and which transform a plugin's name stands for."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Protocol

from headrace.errors import Refused
from headrace.model.jobs.spec import PluginSpec
from headrace.transforms.fields import FieldMapperTransform, FilterTransform
from headrace.transforms.sql import SqlTransform

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


class Transform(Protocol):
    """Makes the table of a plugin from the tables that it reads."""

    # Whether it may filter or multiply rows. Spark then pushes filters down to the sources.
    has_conditions: bool

    def __call__(
        self, session: SparkSession, inputs: Mapping[str, DataFrame], *, now_ms: int
    ) -> DataFrame:
        """`inputs` are by table name; `now_ms` is the time that NOW() and its like give in this
        epoch."""
        ...


class HasOptions(Protocol):
    @property
    def options(self) -> Mapping[str, Any]: ...


def make_transform(spec: PluginSpec, setting: HasOptions) -> Transform:
    """The transform that a plugin's name stands for. Raises `Refused`."""
    make = _TRANSFORMS.get(spec.plugin.lower())
    if make is None:
        known = "FieldMapper, Filter, Sql"
        raise Refused(f"this worker has no transform {spec.plugin!r}; known are {known}")
    return make(spec.name, setting.options)


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
