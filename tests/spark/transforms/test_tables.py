"""Metadata, TableFilter, TableMerge, TableRename go by the names that tables have in the job."""

from __future__ import annotations

from typing import Any

import pytest
from pyspark.sql import SparkSession

from headrace.errors import Refused
from headrace.model.jobs.spec import PluginSpec
from headrace.transforms.registry import make_transform


def made(session: SparkSession, plugin: str, options: dict[str, Any], *tables: str) -> list[Any]:
    spec = PluginSpec(name=f"{plugin}-1", plugin=plugin, options=options)
    transform = make_transform(spec, None, secrets={})
    inputs = {
        table: session.range(1).selectExpr(f"{number} as id")
        for number, table in enumerate(tables, 1)
    }
    return [tuple(row) for row in transform(session, inputs, now_ms=0).collect()]


@pytest.mark.parametrize(
    ("table", "database", "name"),
    [("t", None, "t"), ("db.t", "db", "t"), ("db.s.t", "db", "t")],
)
def test_names_of_tables_become_fields(
    session: SparkSession, table: str, database: str | None, name: str
) -> None:
    fields = {"Table": "from_table", "Database": "from_db"}
    assert made(session, "Metadata", {"metadata_fields": fields}, table) == [(1, name, database)]


def test_each_row_has_the_name_of_its_own_table(session: SparkSession) -> None:
    options = {"metadata_fields": {"Table": "t"}}
    assert made(session, "Metadata", options, "a", "b") == [(1, "a"), (2, "b")]


def test_a_field_that_exists_is_not_overwritten(session: SparkSession) -> None:
    with pytest.raises(Refused, match="Metadata-1: there is a field 'id' already"):
        made(session, "Metadata", {"metadata_fields": {"Table": "id"}}, "a")


@pytest.mark.parametrize(
    ("options", "kept"),
    [
        ({"table_pattern": r"user_\d+"}, [1, 2]),
        ({"table_pattern": r"user_\d+", "pattern_mode": "EXCLUDE"}, [3]),
        ({"table_pattern": "user"}, []),
        ({"database_pattern": "db", "table_pattern": "user_.*"}, [2]),
        ({"schema_pattern": ".*"}, []),
    ],
)
def test_tables_are_kept_by_their_names(
    session: SparkSession, options: dict[str, Any], kept: list[int]
) -> None:
    found = made(session, "TableFilter", options, "user_1", "db.user_2", "shop")
    assert [row[0] for row in found] == kept


def test_tables_are_merged(session: SparkSession) -> None:
    assert made(session, "TableMerge", {"table": "all"}, "a", "b") == [(1,), (2,)]


def test_a_renamed_table_has_its_rows(session: SparkSession) -> None:
    assert made(session, "TableRename", {"prefix": "x_"}, "a") == [(1,)]
