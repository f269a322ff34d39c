"""Transforms: from the tables a plugin reads to the one it makes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

from pyspark.sql import DataFrame, SparkSession

from headrace.errors import Refused
from headrace.model.jobspec import PluginSpec
from headrace.transforms.sql import SqlTransform


class HasOptions(Protocol):
    @property
    def options(self) -> Mapping[str, Any]: ...


class Transform(Protocol):
    def __call__(
        self, session: SparkSession, inputs: Mapping[str, DataFrame], *, now_ms: int
    ) -> DataFrame:
        """`inputs` by table name; `now_ms` is what NOW() and its like mean in this epoch."""
        ...


def make_transform(spec: PluginSpec, setting: HasOptions) -> Transform:
    if spec.plugin.lower() == "sql":
        return SqlTransform(spec.name, str(setting.options.get("query") or ""))
    raise Refused(f"this worker has no transform {spec.plugin!r}; known are Sql")
