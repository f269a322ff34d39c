"""ToyUpper: from a frame to a frame. Reading, writing and committing are none of its business."""

from __future__ import annotations

from collections.abc import Mapping

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from headrace.errors import Refused
from headrace_transform_toy.descriptor import ToyUpperOptions


class ToyUpperTransform:
    has_conditions = False  # every row goes on

    def __init__(self, name: str, options: ToyUpperOptions, setting: object) -> None:  # noqa: ARG002
        self.name, self._fields = name, options.fields

    def __call__(
        self,
        session: SparkSession,  # noqa: ARG002
        inputs: Mapping[str, DataFrame],
        *,
        now_ms: int,  # noqa: ARG002
    ) -> DataFrame:
        ((table, frame),) = inputs.items()
        for field in self._fields:
            if field not in frame.columns:
                raise Refused(f"transform {self.name}: table {table!r} has no field {field!r}")
            frame = frame.withColumn(field, f.upper(frame[field]))
        return frame
