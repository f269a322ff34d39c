"""What the contract of sources finds: a queue whose source keeps it, and queues that break it.

No source of ours acknowledges what it read, so one stands here that does: its messages are gone
once they are committed.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from pydantic import JsonValue
from pyspark.sql import DataFrame, SparkSession

from headrace.connectors.connector import Source
from headrace.errors import Refused
from headrace.protocol.messages import Slice
from tests.contracts.source import (
    PIECES,
    ArrivalContract,
    ChangingInputContract,
    SourceContract,
    SourceHarness,
    ids_of,
)

COLUMNS = "id bigint, body string"


class Queue:
    """Messages by offset, until they are acknowledged by the receipts they were given with."""

    def __init__(self) -> None:
        self.messages: dict[int, tuple[int, str]] = {}
        self.added = 0
        self.planned: JsonValue = None

    def add(self, number: int) -> None:
        self.messages[self.added] = (number, "x")
        self.added += 1


class QueueSource(Source):
    """Keeps the contract. A position is the next offset."""

    name, bounded = "Queue-1", False

    def __init__(self, queue: Queue) -> None:
        self._queue, self._receipts = queue, list[int]()

    def plan(
        self, session: SparkSession, position: JsonValue, *, rows_max: int | None = None
    ) -> Slice | None:
        first = position if isinstance(position, int) else 0
        end = self._queue.added if rows_max is None else min(first + rows_max, self._queue.added)
        if end == first:
            return None
        bodies: JsonValue = [self._queue.messages[at][1] for at in range(first, end)]
        return Slice(data=[first, end, bodies], after=end, rows=end - first)

    def read(self, session: SparkSession, part: Slice) -> DataFrame:
        data: Any = part.data
        first, end, bodies = data
        self._receipts = list(range(first, end))
        found = [self._queue.messages.get(at, (-1, "")) for at in self._receipts]
        if [body for _, body in found] != bodies:
            raise Refused(f"{self.name}: messages were changed or acknowledged by others")
        return session.createDataFrame(found, COLUMNS)  # pyright: ignore[reportUnknownMemberType]

    def empty(self, session: SparkSession) -> DataFrame:
        return session.createDataFrame([], COLUMNS)  # pyright: ignore[reportUnknownMemberType]

    def learned(self) -> JsonValue:
        return list[JsonValue](self._receipts)

    def committed(self, session: SparkSession, position: JsonValue, *, learned: JsonValue) -> None:
        receipts: Any = learned or []
        for receipt in receipts:
            self._queue.messages.pop(receipt, None)


class QueueHarness(SourceHarness):
    def __init__(
        self, session: SparkSession, source: Callable[[Queue], Source] = QueueSource
    ) -> None:
        super().__init__(session)
        self._queue, self._source = Queue(), source
        for piece in range(PIECES):
            self.add(piece)

    def source(self) -> Source:
        return self._source(self._queue)

    def add(self, piece: int) -> None:
        for number in ids_of(piece):
            self._queue.add(number)

    def change(self) -> None:
        self._queue.messages[0] = (0, "other")

    def remove(self) -> None:
        del self._queue.messages[0]


class QueueContract(SourceContract, ChangingInputContract, ArrivalContract):
    """All of it."""


class TestQueue(QueueContract):
    @pytest.fixture
    def harness(self, session: SparkSession) -> SourceHarness:
        return QueueHarness(session)


class AcknowledgesOnce(QueueSource):
    def committed(self, session: SparkSession, position: JsonValue, *, learned: JsonValue) -> None:
        receipts: Any = learned or []
        for receipt in receipts:
            del self._queue.messages[receipt]


class AcknowledgesAhead(QueueSource):
    def committed(self, session: SparkSession, position: JsonValue, *, learned: JsonValue) -> None:
        if isinstance(position, int):
            self._queue.messages.pop(position, None)  # the next one, which nobody has read


class LearnsNoJson(QueueSource):
    def learned(self) -> JsonValue:
        receipts: Any = tuple(self._receipts)
        return receipts


class RemembersItsPlan(QueueSource):
    """Begins behind what was planned last, and not behind the position."""

    def plan(
        self, session: SparkSession, position: JsonValue, *, rows_max: int | None = None
    ) -> Slice | None:
        part = super().plan(session, self._queue.planned, rows_max=rows_max)
        self._queue.planned = None if part is None else part.after
        return part


class NeverCuts(QueueSource):
    def plan(
        self, session: SparkSession, position: JsonValue, *, rows_max: int | None = None
    ) -> Slice | None:
        return super().plan(session, position)


class EndsAStream(QueueSource):
    def plan(
        self, session: SparkSession, position: JsonValue, *, rows_max: int | None = None
    ) -> Slice | None:
        part = super().plan(session, position, rows_max=rows_max)
        return part and part.model_copy(update={"last": rows_max is None})


class EmptyLacksAColumn(QueueSource):
    def empty(self, session: SparkSession) -> DataFrame:
        return super().empty(session).select("id")


class ReadsWhatIsThere(QueueSource):
    def read(self, session: SparkSession, part: Slice) -> DataFrame:
        data: Any = part.data
        found = [self._queue.messages[at] for at in range(*data[:2]) if at in self._queue.messages]
        return session.createDataFrame(found, COLUMNS)  # pyright: ignore[reportUnknownMemberType]


class ClosesOnce(QueueSource):
    closed = False

    def close(self) -> None:
        assert not self.closed, "it is closed"
        self.closed = True


class SaysUnrepeatable(QueueSource):
    repeatable = False


@pytest.mark.parametrize(
    ("broken", "found_by"),
    [
        (AcknowledgesOnce, "test_a_commit_may_be_told_twice_late_and_to_a_successor"),
        (AcknowledgesAhead, "test_a_commit_may_be_told_twice_late_and_to_a_successor"),
        (LearnsNoJson, "test_a_commit_may_be_told_twice_late_and_to_a_successor"),
        (RemembersItsPlan, "test_a_plan_is_the_same_again_from_every_position"),
        (RemembersItsPlan, "test_what_comes_in_is_read_once_from_wherever_the_job_goes_on"),
        (NeverCuts, "test_every_row_is_in_one_slice_in_whatever_order_they_are_read"),
        (EndsAStream, "test_only_the_end_of_a_bounded_source_is_last"),
        (EmptyLacksAColumn, "test_no_rows_have_the_columns_of_rows"),
        (ReadsWhatIsThere, "test_a_slice_whose_rows_were_changed_is_never_read_otherwise"),
        (ReadsWhatIsThere, "test_a_slice_whose_rows_are_gone_is_never_read_without_them"),
        (ClosesOnce, "test_closing_is_done_twice_also_when_nothing_was_opened"),
        (SaysUnrepeatable, "test_what_it_says_about_itself_is_what_it_is_tested_for"),
    ],
)
def test_a_source_that_breaks_the_contract_is_found(
    session: SparkSession, broken: type[QueueSource], found_by: str
) -> None:
    harness = QueueHarness(session, broken)
    with pytest.raises((AssertionError, KeyError, Refused)):
        getattr(QueueContract(), found_by)(harness)
