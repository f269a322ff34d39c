"""The Protocol of transforms, and how the one that a plugin's name stands for is made."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Protocol

from pydantic import JsonValue

from headrace.model.jobs.spec import PluginSpec
from headrace.plugins.factory import make_plugin

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


def make_transform(
    spec: PluginSpec, setting: object, *, secrets: Mapping[str, JsonValue]
) -> Transform:
    """The transform that a plugin's name stands for. Raises `Refused` when it is not installed
    here, or refuses its options."""
    transform: Transform = make_plugin("transform", spec, setting, secrets=secrets)
    return transform
