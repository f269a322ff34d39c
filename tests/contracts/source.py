"""What every source promises: classes of tests, and the harness that they need.

A source proves itself with one `SourceHarness` for each mode it has, and a class that gives it:

    class TestMySource(SourceContract, RepeatableContract):
        @pytest.fixture
        def harness(self, session, tmp_path) -> SourceHarness:
            return MyHarness(session, tmp_path)

`SourceContract` is for all of them, `RepeatableContract` for those that say `repeatable`, and
`ArrivalContract` for those that read what comes in later. Each step is taken by a source of its
own, as after a crash, and all that one leaves to the next goes through JSON, as it does on its way
through the store.
"""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from pydantic import JsonValue
from pyspark.sql import DataFrame, SparkSession

from headrace.connectors.connector import Source
from headrace.errors import Refused
from headrace.protocol.messages import Slice

PIECES = 3
PIECE_ROWS = 2
SLICES_MAX = 20
LEARNED_BYTES_MAX = 100_000  # it goes into the store with every epoch
Rows = tuple[list[str], list[tuple[Any, ...]]]  # the columns, and the rows


class SourceHarness(ABC):
    """An input of PIECES pieces with PIECE_ROWS rows each, and sources that read it.

    A piece is the least that the source can take into a slice: a file, a snapshot, some rows. The
    rows have a column `id`, and those of the first pieces are 0 to 5.
    """

    cuts = True  # whether `rows_max` cuts the input into pieces

    def __init__(self, session: SparkSession) -> None:
        self.session = session

    @abstractmethod
    def source(self) -> Source:
        """A new source, as another process would make it."""

    def add(self, piece: int) -> None:
        """A stranger adds a piece, with rows `ids_of(piece)`."""
        raise NotImplementedError

    def change(self) -> None:
        """A stranger puts other rows in the place of those of the first piece."""
        raise NotImplementedError

    def remove(self) -> None:
        """A stranger takes the first piece away, as far as that can be done."""
        raise NotImplementedError


def ids_of(*pieces: int) -> list[int]:
    return [piece * PIECE_ROWS + row for piece in pieces for row in range(PIECE_ROWS)]


ALL_IDS = ids_of(*range(PIECES))


class SourceCase:
    """Of which the parts of the contract are made; a subclass gives the harness."""

    @pytest.fixture
    def harness(self) -> SourceHarness:
        raise NotImplementedError

    def plan(
        self, harness: SourceHarness, position: JsonValue, *, rows_max: int | None = None
    ) -> Slice | None:
        """What a new source plans, as the next one reads it from the store."""
        planned = harness.source().plan(harness.session, through_json(position), rows_max=rows_max)
        if planned is None:
            return None
        stored = Slice.model_validate_json(planned.model_dump_json())
        assert stored == planned, "a slice is JSON, and nothing else"
        return stored

    def first(self, harness: SourceHarness) -> Slice:
        planned = self.plan(harness, None)
        assert planned is not None
        return planned

    def chain(self, harness: SourceHarness) -> list[Slice]:
        """All slices, each the smallest there is. None is read before the next one is planned."""
        found: list[Slice] = []
        planned = self.plan(harness, None, rows_max=1)
        while planned is not None:
            found.append(planned)
            assert len(found) < SLICES_MAX, "it plans on and on"
            planned = self.plan(harness, planned.after, rows_max=1)
        return found

    def read(self, harness: SourceHarness, part: Slice) -> Rows:
        return rows_of(harness.source().read(harness.session, part))

    def ids(self, harness: SourceHarness, part: Slice) -> list[int]:
        frame = harness.source().read(harness.session, part)
        return sorted(row["id"] for row in frame.select("id").collect())


def rows_of(frame: DataFrame) -> Rows:
    found: list[tuple[Any, ...]] = [tuple(row) for row in frame.collect()]  # pyright: ignore[reportUnknownArgumentType]
    return frame.columns, sorted(found, key=str)


def through_json(value: JsonValue) -> JsonValue:
    sent: JsonValue = json.loads(json.dumps(value))
    assert sent == value, "a position is JSON, and nothing else"
    return sent


class SourceContract(SourceCase):
    def test_every_row_is_in_one_slice_in_whatever_order_they_are_read(
        self, harness: SourceHarness
    ) -> None:
        parts = self.chain(harness)
        found = {
            number: self.ids(harness, part) for number, part in reversed(list(enumerate(parts)))
        }

        assert sorted(id_ for ids in found.values() for id_ in ids) == ALL_IDS
        assert all(part.rows in {None, len(found[n])} for n, part in enumerate(parts))
        if harness.cuts:
            assert max(len(ids) for ids in found.values()) <= PIECE_ROWS, "rows_max cuts"

    def test_without_a_limit_a_slice_is_everything_there_is(self, harness: SourceHarness) -> None:
        whole = self.first(harness)

        assert self.ids(harness, whole) == ALL_IDS
        assert self.plan(harness, whole.after) is None

    def test_a_plan_is_the_same_again_from_every_position(self, harness: SourceHarness) -> None:
        """Whoever takes over plans anew what was not recorded."""
        parts = self.chain(harness)
        positions = [None, *(part.after for part in parts)]

        again = [self.plan(harness, position, rows_max=1) for position in reversed(positions)]

        assert again == [None, *reversed(parts)]
        rest = self.plan(harness, positions[1])
        assert (rest is None) == (len(parts) == 1), "what is left from there, in one slice"

    def test_only_the_end_of_a_bounded_source_is_last(self, harness: SourceHarness) -> None:
        bounded = harness.source().bounded
        *others, end = self.chain(harness)

        assert not any(part.last for part in others)
        assert bounded or not end.last
        assert self.first(harness).last == bounded
        assert self.plan(harness, end.after, rows_max=1) is None, "the end stays the end"

    def test_no_rows_have_the_columns_of_rows(self, harness: SourceHarness) -> None:
        nothing = harness.source().empty(harness.session)
        read = harness.source().read(harness.session, self.first(harness))

        assert nothing.dtypes == read.dtypes
        assert nothing.count() == 0

    def test_a_commit_may_be_told_twice_late_and_to_a_successor(
        self, harness: SourceHarness
    ) -> None:
        session, found = harness.session, list[int]()
        before: JsonValue = None
        for part in self.chain(harness):
            one = harness.source()
            if before is not None:  # as each execution begins: what was learned is not known
                one.committed(session, before, learned=None)
            found += [row["id"] for row in one.read(session, part).select("id").collect()]
            learned = through_json(one.learned())
            assert len(json.dumps(learned)) <= LEARNED_BYTES_MAX
            for told in (part.after, part.after, *([] if before is None else [before])):
                one.committed(session, told, learned=learned)
            harness.source().committed(session, part.after, learned=learned)
            one.close()
            before = through_json(part.after)

        assert sorted(found) == ALL_IDS

    def test_closing_is_done_twice_also_when_nothing_was_opened(
        self, harness: SourceHarness
    ) -> None:
        unused, used, other = harness.source(), harness.source(), harness.source()
        part = self.first(harness)
        assert len(rows_of(used.read(harness.session, part))[1]) == len(ALL_IDS)

        for each in (unused, used):
            each.close()
            each.close()

        assert len(rows_of(other.read(harness.session, part))[1]) == len(ALL_IDS)
        other.close()

    def test_what_it_says_about_itself_is_what_it_is_tested_for(
        self, harness: SourceHarness
    ) -> None:
        source = harness.source()
        assert source.repeatable == isinstance(self, RepeatableContract)
        assert not (source.bounded and isinstance(self, ArrivalContract))
        assert source.name


class RepeatableContract(SourceCase):
    """A slice gives the rows it was planned with, or is refused (E5)."""

    @pytest.mark.req("E5")
    def test_a_slice_gives_the_same_rows_again(self, harness: SourceHarness) -> None:
        parts = [self.first(harness), *self.chain(harness)]
        assert [self.read(harness, part) for part in parts] == [
            self.read(harness, part) for part in parts
        ]


class ChangingInputContract(RepeatableContract):
    """That others can change the input of, which a source that makes its rows up has not."""

    @pytest.mark.req("E5")
    def test_a_slice_gives_the_same_rows_also_when_others_came(
        self, harness: SourceHarness
    ) -> None:
        part = self.first(harness)
        before = self.read(harness, part)
        harness.add(PIECES)
        assert self.read(harness, part) == before

    @pytest.mark.req("E5")
    def test_a_slice_whose_rows_were_changed_is_never_read_otherwise(
        self, harness: SourceHarness
    ) -> None:
        self._as_planned_or_refused(harness, harness.change)

    @pytest.mark.req("E5")
    def test_a_slice_whose_rows_are_gone_is_never_read_without_them(
        self, harness: SourceHarness
    ) -> None:
        self._as_planned_or_refused(harness, harness.remove)

    def _as_planned_or_refused(self, harness: SourceHarness, meanwhile: Callable[[], None]) -> None:
        part = self.first(harness)
        before = self.read(harness, part)
        meanwhile()
        try:
            now = self.read(harness, part)
        except Refused as refused:
            assert harness.source().name in str(refused)  # noqa: PT017  either is right
        else:
            assert now == before


class ArrivalContract(SourceCase):
    """An unbounded source whose input grows."""

    def test_what_comes_in_is_read_once_from_wherever_the_job_goes_on(
        self, harness: SourceHarness
    ) -> None:
        positions: list[JsonValue] = [None]
        for piece in range(PIECES, PIECES + 2):
            planned = self.plan(harness, positions[-1])
            assert planned is not None
            assert not planned.last
            positions.append(planned.after)
            assert self.plan(harness, planned.after) is None, "nothing is new"
            harness.add(piece)

        expected: Sequence[list[int]] = [
            ids_of(*range(PIECES + 2)),
            ids_of(PIECES, PIECES + 1),
            ids_of(PIECES + 1),
        ]
        for position, ids in zip(positions, expected, strict=True):
            planned = self.plan(harness, position)
            assert planned is not None
            assert self.ids(harness, planned) == ids
            assert self.plan(harness, planned.after) is None
