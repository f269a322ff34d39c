"""From the tables a plugin reads to the one it makes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


class Transform(Protocol):
    # Whether it may give other than one row for each: Spark hands conditions down to sources.
    has_conditions: bool

    def __call__(
        self, session: SparkSession, inputs: Mapping[str, DataFrame], *, now_ms: int
    ) -> DataFrame:
        """`inputs` by table name; `now_ms` is what NOW() and its like mean in this epoch."""
        ...
