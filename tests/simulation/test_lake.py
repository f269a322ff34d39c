"""The model of a lake must see what it is there to see, or no history could fail by it."""

from __future__ import annotations

from random import Random

import pytest

from headrace.lake.iceberg.token import ProcessAt
from headrace.model.jobs.epoch import SpentBy
from headrace.model.tables.files import DeleteKind
from tests.simulation.faults import Faults
from tests.simulation.lake import Entry, Lake, Table
from tests.simulation.lake_people import EDITS, append, upsert
from tests.simulation.world import World

EDITS_MANY = 60
FILES = 3
AT = ProcessAt("owner", 1, "execution")


class Told(list[tuple[str, str]]):
    def __call__(self, invariant: str, what: str) -> None:
        self.append((invariant, what))


@pytest.fixture
def told() -> Told:
    return Told()


@pytest.fixture
def lake(told: Told) -> Lake:
    return Lake(Faults(World("0"), ()), told, rewrite_s=0.1)


def filled(lake: Lake) -> Table:
    table, random = lake.make("t", {}), Random(1)
    for _ in range(FILES):
        append(lake, table, random)
    return table


@pytest.mark.parametrize("kind", sorted(EDITS))
def test_whatever_writers_do_their_rows_are_there(lake: Lake, told: Told, kind: str) -> None:
    table, random = filled(lake), Random(kind)
    for _ in range(EDITS_MANY):
        EDITS[random.choice(["append", kind])](lake, table, random)
    assert told == []
    assert table.truth


def test_a_snapshot_that_loses_a_file_is_told(lake: Lake, told: Told) -> None:
    table = filled(lake)
    table.commit(table.current.files[1:], table.current.deletes)
    assert [invariant for invariant, _ in told] == ["every_table_row_once"]


def test_a_snapshot_with_a_file_that_is_gone_is_told(lake: Lake, told: Told) -> None:
    table = filled(lake)
    table.commit([*table.current.files, Entry("staged", 0, table.sequence)], ())
    assert [invariant for invariant, _ in told] == ["every_table_row_once"]


def test_a_file_that_takes_a_newer_sequence_escapes_an_equality_delete_and_is_told(
    lake: Lake, told: Told
) -> None:
    table = lake.make("t", {})
    for _ in range(2):
        upsert(lake, table, Random(3))  # the same value: the second takes the row of the first
    old, *others = table.current.files
    newer = Entry(old.path, old.partition, table.sequence + 1)
    assert all(each.kind is DeleteKind.EQUALITY for each in table.current.deletes)
    table.commit([*others, newer], table.current.deletes)
    assert [invariant for invariant, _ in told] == ["every_table_row_once"]


def test_a_mark_outlives_the_snapshot_that_spent_its_token(lake: Lake) -> None:
    table = filled(lake)
    assert table.spent(AT.commit_at) is None
    marks = {AT.commit_at.mark_key: "1"}
    table.commit(table.current.files, table.current.deletes, {}, marks)
    append(lake, table, Random(1))
    table.expire()
    spent = table.spent(AT.commit_at)
    assert spent is not None
    assert spent.by is SpentBy.DATA
