"""What a sink does that has no target: nothing, wherever a target would be asked.

There is nothing to open, nowhere to stage, no token to spend. So such a sink promises nothing:
an epoch that is committed again is shown, counted or judged again.
"""

from __future__ import annotations

from collections.abc import Collection

from pydantic import JsonValue
from pyspark.sql import DataFrame, Observation, SparkSession
from pyspark.sql import functions as f

from headrace.connectors.connector import Committed, Mark
from headrace.formats.spark_counts import told_or_fail
from headrace.model.epoch import EpochAt


class Targetless:
    opens = False
    leaves_stage = False

    def read_mark(self, session: SparkSession, at: EpochAt) -> Mark | None:  # noqa: ARG002
        return None

    def survey(self, session: SparkSession, frame: DataFrame, at: EpochAt) -> JsonValue:  # noqa: ARG002
        """It has no save modes."""
        return None

    def open(self, session: SparkSession, handle: JsonValue, at: EpochAt) -> Committed:  # noqa: ARG002
        return Committed(already=False, facts={})

    def sweep(self, session: SparkSession, handle: JsonValue, at: EpochAt) -> None:
        """Nothing is staged anywhere but in the handle."""

    def abort(self, session: SparkSession, at: EpochAt) -> None:
        """Nothing is staged anywhere, and there is no token to spend."""

    def forget(self, session: SparkSession, at: EpochAt, *, owners: Collection[str] | None) -> None:
        """It leaves nothing anywhere."""

    def close(self, rows: int) -> None:
        """Any number of rows is right."""


def count_rows(frame: DataFrame) -> int:
    """Runs the whole of the frame, as a sink would, and keeps nothing of it."""
    seen = Observation()
    frame.observe(seen, f.count(f.lit(1)).alias("rows")).write.format("noop").mode(
        "overwrite"
    ).save()
    return int(told_or_fail(seen)["rows"])
