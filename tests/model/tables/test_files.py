"""The values a scan brings."""

from __future__ import annotations

from headrace.model.tables.files import DeleteKind, Partition
from tests.model.tables.samples import EQUALITY, file, position, table


def test_a_partition_tells_its_spec_since_its_path_may_be_another_s_too() -> None:
    assert str(Partition(2, "day=1")) == "day=1 (spec 2)"
    assert str(Partition(0, "")) == "unpartitioned (spec 0)"
    assert Partition(0, "day=1") != Partition(1, "day=1")


def test_a_file_names_its_deletes_by_index() -> None:
    one = file(1, deletes=(1,))

    assert table([one], [EQUALITY, position(3)]).deletes_of(one) == [position(3)]


def test_all_but_an_equality_delete_count_rows() -> None:
    assert [kind for kind in DeleteKind if not kind.by_position] == [DeleteKind.EQUALITY]


def test_a_partition_is_known_by_its_spec_and_path_and_found_again() -> None:
    for one in (Partition(0, ""), Partition(3, "day=2026-01-31/region=a%2Fb")):
        assert Partition.of_id(one.id) == one
    assert Partition(3, "a=1/b=2").id == "3/a=1/b=2"
