"""DataValidator: rows that break a rule fail the job or are left out."""

from __future__ import annotations

import json
from functools import reduce
from typing import Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from headrace.errors import Refused
from tests.spark.transforms.test_fields import run, table

VALUES: dict[str, tuple[str, list[Any]]] = {
    "n": ("int", [1, 5, 9, None]),
    "d": ("double", [1.0, 5.0, 9.0, None]),
    "s": ("string", ["a", "bb", "a\n", None]),
    "a": ("array<int>", [[1], [1, 2], [], None]),
    "e": (
        "string",
        [" j@d.org ", "", "j@dorg", "a@b@c.d", "@d.org", "x" * 64 + "@d.org", "o'x@d.org", None],
    ),
}


RULES: list[tuple[str, dict[str, Any], list[Any]]] = [
    ("n", {"rule_type": "NOT_NULL"}, [1, 5, 9]),
    ("n", {"rule_type": "RANGE", "min_value": 5}, [5, 9, None]),
    ("n", {"rule_type": "RANGE", "max_value": 5, "max_inclusive": False}, [1, None]),
    ("n", {"rule_type": "RANGE", "min_value": 1.5, "max_value": 5}, [5, None]),
    (
        "d",
        {"rule_type": "RANGE", "min_value": 1, "min_inclusive": False, "max_value": 8},
        [5, None],
    ),
    ("s", {"rule_type": "LENGTH", "min_length": 2}, ["bb", "a\n", None]),
    ("a", {"rule_type": "LENGTH", "min_length": 1, "max_length": 1}, [[1], None]),
    ("a", {"rule_type": "LENGTH", "exact_length": 0}, [[], None]),
    ("s", {"rule_type": "REGEX", "pattern": "a|b"}, ["a", None]),
    ("s", {"rule_type": "REGEX", "pattern": "B+", "case_sensitive": False}, ["bb", None]),
    ("e", {"rule_type": "UDF", "function_name": "email"}, [" j@d.org ", "", None]),
]


def kept(session: SparkSession, field: str, rule: dict[str, Any]) -> DataFrame:
    kind, values = VALUES[field]
    frame = table(session, [(value,) for value in values], f"{field} {kind}")
    options = {"field_rules": [{"field_name": field, **rule}], "row_error_handle_way": "SKIP"}
    return run("DataValidator", options, frame)


def test_rows_that_break_a_rule_are_left_out(session: SparkSession) -> None:
    """All rules in one go: what each keeps, as JSON, beside its number."""
    found = [
        kept(session, field, rule).selectExpr(
            f"{number} as n", f"to_json(struct({field} as v)) as v"
        )
        for number, (field, rule, _) in enumerate(RULES)
    ]
    rows = [
        (row["n"], json.loads(row["v"]).get("v"))
        for row in reduce(DataFrame.union, found).collect()
    ]

    for number, (_, _, wanted) in enumerate(RULES):
        assert [value for of, value in rows if of == number] == wanted, RULES[number]


def test_rules_may_be_nested_and_all_of_them_count(session: SparkSession) -> None:
    rules = [{"rule_type": "NOT_NULL"}, {"rule_type": "LENGTH", "max_length": 1}]
    assert [row[0] for row in kept(session, "s", {"rules": rules}).collect()] == ["a"]


def test_otherwise_the_first_broken_rule_is_said(session: SparkSession) -> None:
    frame = table(session, [(7, None)], "n int, s string")
    rules: list[dict[str, Any]] = [
        {"field_name": "n", "rule_type": "RANGE", "max_value": 9},
        {"field_name": "s", "rule_type": "NOT_NULL", "custom_message": "names are needed"},
    ]
    with pytest.raises(PySparkException, match="-1: field 's' breaks its rule: names are needed"):
        run("DataValidator", {"field_rules": rules}, frame).collect()
    rules[0]["max_value"] = 5
    with pytest.raises(PySparkException, match=r"field 'n' breaks its rule: .* within \[, 5\]"):
        run("DataValidator", {"field_rules": rules}, frame).count()  # needs no column at all


@pytest.mark.parametrize(
    ("rule", "why"),
    [
        ({"rule_type": "RANGE", "min_value": 1}, "'s' is string, and a rule of type RANGE"),
        ({"field_name": "n", "rule_type": "LENGTH", "min_length": 1}, "LENGTH is for texts"),
        ({"field_name": "x", "rule_type": "NOT_NULL"}, "there is no field 'x'"),
    ],
)
def test_a_rule_that_does_not_fit_its_field_is_refused(
    session: SparkSession, rule: dict[str, Any], why: str
) -> None:
    frame = table(session, [(7, None)], "n int, s string")
    with pytest.raises(Refused, match=f"transform DataValidator-1: .*{why}"):
        run("DataValidator", {"field_rules": [{"field_name": "s", **rule}]}, frame)
