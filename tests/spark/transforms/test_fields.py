"""FieldMapper and Filter choose fields by their exact names, and name what is missing."""

from __future__ import annotations

from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

from headrace.errors import Refused, Unavailable
from headrace.model.jobs.spec import PluginSpec
from headrace.transforms.registry import make_transform


def run(plugin: str, options: dict[str, Any], *frames: DataFrame) -> DataFrame:
    spec = PluginSpec(name=f"{plugin}-1", plugin=plugin, options=options)
    transform = make_transform(spec, None, secrets={})
    inputs = {f"t{number}": frame for number, frame in enumerate(frames, 1)}
    return transform(frames[0].sparkSession, inputs, now_ms=0)


def frame(session: SparkSession, *columns: str) -> DataFrame:
    return session.range(1).selectExpr(*columns)


@pytest.fixture
def people(session: SparkSession) -> DataFrame:
    return frame(
        session, "1 as id", "'x' as name", "2.5 as `the.score`", "named_struct('a', 1) as r"
    )


def test_a_mapper_keeps_mapped_fields_in_the_order_of_the_mapping(people: DataFrame) -> None:
    made = run("FieldMapper", {"field_mapper": {"the.score": "score", "id": "id"}}, people)

    assert made.columns == ["score", "id"]
    assert [(float(row["score"]), row["id"]) for row in made.collect()] == [(2.5, 1)]


def test_a_mapper_can_swap_names(people: DataFrame) -> None:
    made = run("FieldMapper", {"field_mapper": {"id": "name", "name": "id"}}, people)

    assert [row.asDict() for row in made.collect()] == [{"name": 1, "id": "x"}]


@pytest.mark.parametrize(
    ("options", "columns"),
    [
        ({"include_fields": ["r", "id"]}, ["r", "id"]),
        ({"exclude_fields": ["id", "r"]}, ["name", "the.score"]),
    ],
)
def test_a_filter_keeps_fields_and_all_rows(
    people: DataFrame, options: dict[str, Any], columns: list[str]
) -> None:
    made = run("Filter", options, people)

    assert made.columns == columns
    assert made.count() == 1


@pytest.mark.parametrize(
    ("plugin", "options"),
    [
        ("FieldMapper", {"field_mapper": {"ID": "id"}}),
        ("Filter", {"include_fields": ["id", "ID"]}),
        ("Filter", {"exclude_fields": ["ID"]}),
    ],
)
def test_a_field_that_is_missing_is_said_with_those_that_are_there(
    people: DataFrame, plugin: str, options: dict[str, Any]
) -> None:
    with pytest.raises(Refused) as refused:
        run(plugin, options, people)
    assert str(refused.value) == (
        f"transform {plugin}-1: there is no field 'ID'; there are 'id', 'name', 'the.score', 'r'"
    )


def test_a_name_that_two_fields_have_is_refused(session: SparkSession) -> None:
    with pytest.raises(Refused, match="2 fields are called 'id'"):
        run("Filter", {"include_fields": ["id"]}, frame(session, "1 as id", "2 as id"))


def test_a_filter_that_leaves_nothing_is_refused(session: SparkSession) -> None:
    with pytest.raises(Refused, match="transform Filter-1: no field is left"):
        run("Filter", {"exclude_fields": ["id"]}, session.range(1))


def test_rows_of_several_inputs_go_together(session: SparkSession) -> None:
    first = frame(session, "1 as a", "2 as b")
    second = frame(session, "3 as b", "4 as a")
    made = run("Filter", {"include_fields": ["a"]}, first, second)

    assert sorted(row["a"] for row in made.collect()) == [1, 4]
    with pytest.raises(Refused, match="tables 't1' and 't2' have different fields"):
        run("Filter", {"include_fields": ["a"]}, first, frame(session, "1 as a"))


def test_a_transform_that_is_unknown_is_told_with_those_that_are_known() -> None:
    spec = PluginSpec(name="Copy-1", plugin="Copy", options={})
    with pytest.raises(
        Unavailable, match="no transform 'Copy'; known are FieldMapper, Filter, FilterRowKind"
    ):
        make_transform(spec, None, secrets={})
