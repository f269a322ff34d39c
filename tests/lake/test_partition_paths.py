"""Partitions are called as Iceberg calls them, without asking it."""

from __future__ import annotations

from typing import Any

import pytest

from headrace.lake.iceberg.scan import Partitions, forgotten_specs, partition_path
from headrace.model.tables.files import Partition


@pytest.mark.parametrize(
    ("transform", "value", "told"),
    [
        ("identity", 7, "7"),
        ("identity", None, "null"),
        ("identity", "null", "%6Eull"),  # another partition than the one before
        ("identity", True, "true"),
        ("identity", "a b/c=d*~", "a+b%2Fc%3Dd*%7E"),
        ("year", 0, "1970"),
        ("year", -1, "1969"),
        ("month", 0, "1970-01"),
        ("month", -1, "1969-12"),
        ("month", 673, "2026-02"),
        ("day", "2026-01-31", "2026-01-31"),
        ("hour", -1, "1969-12-31-23"),
        ("hour", 0, "1970-01-01-00"),
        ("hour", 70_399_031, "10001-01-30-23"),
        ("hour", -18_000_000, "-084-07-28-00"),
        ("bucket[16]", 3, "3"),
        ("void", None, "null"),
    ],
)
def test_values_are_told_by_their_transform(transform: str, value: Any, told: str) -> None:
    assert partition_path([("f", transform)], [value]) == f"f={told}"


def test_a_partition_is_made_once_and_specs_are_told_apart() -> None:
    partitions = Partitions({0: [("p", "identity")], 1: [("p", "identity")], 2: []})
    first = partitions.of({"spec-id": 0, "partition": [1]})

    assert partitions.of({"spec-id": 0, "partition": [1]}) is first
    assert partitions.of({"spec-id": 1, "partition": [1]}) == Partition(1, "p=1")
    assert partitions.of({"spec-id": 2, "partition": []}) == Partition(2, "")


def test_values_that_only_look_alike_are_two_partitions() -> None:
    partitions = Partitions({0: [("p", "identity")]})

    for one, other in ((None, "null"), (0.0, -0.0)):
        made = [partitions.of({"spec-id": 0, "partition": [value]}) for value in (one, other)]
        assert made[0] != made[1]


def test_a_spec_by_a_column_that_was_dropped_is_forgotten() -> None:
    inner = {"type": "struct", "fields": [{"id": 3, "type": "int"}]}
    told: dict[str, Any] = {
        "current-schema-id": 1,
        "schemas": [
            {"schema-id": 0, "fields": [{"id": 9, "type": "int"}]},
            {"schema-id": 1, "fields": [{"id": 1, "type": "int"}, {"id": 2, "type": inner}]},
        ],
        "partition-specs": [
            {"spec-id": 0, "fields": []},
            {"spec-id": 1, "fields": [{"source-id": 3, "transform": "identity"}]},
            {"spec-id": 2, "fields": [{"source-id": 9, "transform": "identity"}]},
            {"spec-id": 3, "fields": [{"source-id": 9, "transform": "void"}]},
            {"spec-id": 4, "fields": [{"source-ids": [1, 9], "transform": "bucket[4]"}]},
        ],
    }

    assert forgotten_specs(told) == {2, 4}
