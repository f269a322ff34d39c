"""What each target says is spent, and that it holds what was prepared, or says so (E7)."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession

from headrace.connectors.connector import Mark, Sink
from headrace.connectors.iceberg.sink import IcebergSink
from headrace.errors import StoreOlderThanTarget
from headrace.lake.iceberg.catalogs import load_table
from tests.spark.base import Base
from tests.spark.folder import sink as file_sink
from tests.spark.settings import at, setting

KINDS = ["Iceberg", "LocalFile", "Jdbc"]


@dataclass
class Place:
    """A sink of one kind, to a target that is not there yet."""

    session: SparkSession
    sink: Sink
    count: Callable[[], int]

    def frame(self, rows: int, first: int = 0) -> DataFrame:
        return self.session.range(first, first + rows).selectExpr("id", "'x' as name")

    def commit(self, epoch: int, execution: str = "t1.1", rows: int = 2) -> None:
        staged = self.sink.stage(self.session, self.frame(rows), at(epoch, execution))
        self.sink.commit(self.session, staged.handle, at(epoch, execution))

    def mark(self, epoch: int = 0) -> Mark | None:
        return self.sink.read_mark(self.session, at(epoch))


@pytest.fixture(params=KINDS)
def place(
    request: pytest.FixtureRequest, session: SparkSession, warehouse: str, tmp_path: Path
) -> Place:
    match request.param:
        case "Iceberg":
            table = f"t_{uuid.uuid4().hex[:12]}"
            options = {"namespace": "marks", "table": table}
            made = setting("Iceberg", "sink", options, warehouse=warehouse)
            iceberg = IcebergSink("Iceberg-1", made)
            return Place(session, iceberg, lambda: session.table(f"headrace.marks.{table}").count())
        case "LocalFile":
            folder = tmp_path / "target"
            files = file_sink(folder, file_format_type="json")
            return Place(session, files, lambda: session.read.json(str(folder)).count())
        case _:
            base: Base = request.getfixturevalue("base")
            base.run("DROP TABLE orders")
            return Place(session, base.sink(), base.count)


@pytest.mark.req("E7")
def test_a_target_says_which_epoch_is_the_highest_that_is_spent_and_by_what(place: Place) -> None:
    assert place.mark() is None, "there is no target yet"
    place.commit(1)
    assert place.mark() == Mark(1, aborted=False)
    place.commit(10)  # nine had no rows; as a text it would be below 2
    place.commit(11)
    assert place.mark(epoch=99) == Mark(11, aborted=False)
    place.sink.abort(place.session, at(12))
    assert place.mark() == Mark(12, aborted=True)
    assert place.sink.read_mark(place.session, at(0, incarnation="another")) is None


@pytest.mark.req("E7")
def test_rows_that_another_execution_staged_are_not_taken_for_those_that_were_prepared(
    place: Place,
) -> None:
    """A worker of the time before the store was restored wakes, and commits its epoch 2."""
    place.commit(1)
    before = place.sink.stage(place.session, place.frame(3, 100), at(2, "before.1"))
    staged = place.sink.stage(place.session, place.frame(5, 200), at(2, "now.1"))
    place.sink.commit(place.session, before.handle, at(2, "before.1"))

    with pytest.raises(StoreOlderThanTarget, match=r"holds epoch 2 .* execution before\.1"):
        place.sink.commit(place.session, staged.handle, at(2, "now.1"))

    assert place.count() == 5
    assert place.sink.commit(place.session, before.handle, at(2, "now.2")).already, "as prepared"


@pytest.mark.req("E7")
def test_an_epoch_that_the_target_holds_with_rows_is_not_given_up(place: Place) -> None:
    """In the time that the store has forgotten 2 was committed, and 3 was given up."""
    place.commit(1)
    place.commit(2)
    place.sink.abort(place.session, at(3))

    place.sink.abort(place.session, at(3, "now.1"))  # it was, so it may be said again
    with pytest.raises(StoreOlderThanTarget, match=r"holds epoch 2 with rows, and in this store"):
        place.sink.abort(place.session, at(2, "now.1"))

    assert place.mark() == Mark(3, aborted=True)


@pytest.mark.req("E4", "E7")
def test_the_mark_of_a_table_outlives_the_expiry_of_its_snapshots(
    session: SparkSession, warehouse: str
) -> None:
    options = {"namespace": "marks", "table": f"t_{uuid.uuid4().hex[:12]}"}
    made = setting("Iceberg", "sink", options, warehouse=warehouse)
    to = IcebergSink("Iceberg-1", made)
    place = Place(session, to, lambda: 0)
    for epoch in (1, 2):
        place.commit(epoch)
    table = load_table(session, to.table_ref)
    table.expireSnapshots().expireOlderThan(1 << 60).retainLast(1).commit()

    assert place.mark() == Mark(2, aborted=False)
