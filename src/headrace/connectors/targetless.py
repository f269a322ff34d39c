"""`Targetless`: the base of sinks without a target, such as Console, InMemory and Assert.

Where a target would be asked, such a sink does nothing: there is nothing to open, nowhere to stage,
and no token to spend. So it promises nothing, either: an epoch that is committed again is shown,
counted or judged again.
"""

from __future__ import annotations

from collections.abc import Collection

from pydantic import JsonValue
from pyspark.sql import DataFrame, Observation, SparkSession
from pyspark.sql import functions as f

from headrace.connectors.connector import Committed, Sink
from headrace.exactly_once.target import Mark
from headrace.model.jobs.epoch import EpochAt
from headrace.spark.row_counts import require_metrics


class Targetless(Sink):
    """The base of sinks without a target: all of `Sink` but `stage` and `commit`."""

    leaves_stage = False

    def read_mark(self, session: SparkSession, at: EpochAt) -> Mark | None:  # noqa: ARG002
        return None

    def survey(self, session: SparkSession, frame: DataFrame, at: EpochAt) -> JsonValue:  # noqa: ARG002
        """There are no save modes."""
        return None

    def open(self, session: SparkSession, handle: JsonValue, at: EpochAt) -> Committed:  # noqa: ARG002
        return Committed(already=False, facts={})

    def sweep(self, session: SparkSession, handle: JsonValue, at: EpochAt) -> None:
        """Nothing is staged anywhere but in the handle."""

    def abort(self, session: SparkSession, at: EpochAt) -> None:
        """Nothing is staged, and there is no token to spend."""

    def forget(self, session: SparkSession, at: EpochAt, *, owners: Collection[str] | None) -> None:
        """Nothing was left anywhere."""


def count_rows(frame: DataFrame) -> int:
    """Count the rows by running the whole frame, as a sink would, without keeping any."""
    counted = Observation()
    frame.observe(counted, f.count(f.lit(1)).alias("rows")).write.format("noop").mode(
        "overwrite"
    ).save()
    return int(require_metrics(counted)["rows"])
