"""Copy, FieldRename, Replace, Split, RegexExtract: new fields, new names and new texts."""

from __future__ import annotations

from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

from headrace.errors import Refused
from tests.spark.transforms.test_fields import frame, run, table


def rows(made: DataFrame) -> list[tuple[object, ...]]:
    return [tuple(row) for row in made.collect()]


@pytest.fixture
def people(session: SparkSession) -> DataFrame:
    return frame(session, "1 as id", "'Joy Ding' as name", "cast(null as string) as `a.b`")


def test_copies_follow_at_the_end_and_are_of_what_came_in(people: DataFrame) -> None:
    made = run("Copy", {"fields": {"name1": "name", "name": "id", "n": "a.b"}}, people)

    assert made.columns == ["id", "name", "a.b", "name1", "n"]
    assert rows(made) == [(1, 1, None, "Joy Ding", None)]


def test_one_field_is_copied_as_older_job_files_say(people: DataFrame) -> None:
    made = run("Copy", {"src_field": "id", "dest_field": "again"}, people)

    assert rows(made) == [(1, "Joy Ding", None, 1)]


@pytest.mark.parametrize(
    ("options", "names"),
    [
        ({"convert_case": "UPPER"}, ["ID", "NAME", "A.B"]),
        ({"prefix": "f_", "suffix": "_s"}, ["f_id_s", "f_name_s", "f_a.b_s"]),
        (
            {
                "convert_case": "UPPER",
                "replacements_with_regex": [{"replace_from": "[ei]", "replace_to": "o"}],
            },
            ["oD", "NAMo", "A.B"],
        ),
        (
            {
                "replacements_with_regex": [
                    {"replace_from": "i", "replace_to": "x"},
                    {"replace_from": "id", "replace_to": "key", "is_regex": False},
                    {"replace_from": "am", "replace_to": "o", "is_regex": False},
                ]
            },
            ["key", "name", "a.b"],
        ),
        (
            {
                "prefix": "p_",
                "specific": [{"field_name": "id", "target_name": "Key"}],
            },
            ["Key", "p_name", "p_a.b"],
        ),
    ],
)
def test_fields_are_renamed_by_rules(
    people: DataFrame, options: dict[str, Any], names: list[str]
) -> None:
    made = run("FieldRename", options, people)

    assert made.columns == names


def test_two_fields_that_would_get_one_name_are_refused(session: SparkSession) -> None:
    given = frame(session, "1 as a1", "2 as a2")
    rule = {"replace_from": "[0-9]", "replace_to": ""}

    with pytest.raises(Refused, match=r"FieldRename-1: fields 'a1', 'a2' would all be called 'a'"):
        run("FieldRename", {"replacements_with_regex": [rule]}, given)


REPLACED: list[tuple[str | None, dict[str, Any], str | None]] = [
    ("a.b.c", {"pattern": ".", "replacement": "$1"}, "a$1b$1c"),
    ("a1b22", {"pattern": "[0-9]+", "replacement": "_", "is_regex": True}, "a_b_"),
    (
        "a1b22",
        {"pattern": "[0-9]+", "replacement": "_", "is_regex": True, "replace_first": True},
        "a_b22",
    ),
    (
        "x\na1b1b1",
        {
            "pattern": r"(?<=a)([0-9])(b)\1",
            "replacement": r"<$0|$2$1\$|$11>",
            "is_regex": True,
            "replace_first": True,
        },
        "x\na<1b1|b1$|11>b1",
    ),
    (
        "none",
        {"pattern": "[0-9]", "replacement": "_", "is_regex": True, "replace_first": True},
        "none",
    ),
    (None, {"pattern": "a", "replacement": "b"}, None),
]


def test_texts_are_replaced(session: SparkSession) -> None:
    names = [f"t{number}" for number in range(len(REPLACED))]
    schema = ", ".join(f"{name} string" for name in names)
    made = table(session, [tuple(text for text, _, _ in REPLACED)], schema)

    for name, (_, options, _) in zip(names, REPLACED, strict=True):
        made = run("Replace", {"replace_field": name, **options}, made)

    assert made.columns == names
    assert rows(made) == [tuple(result for _, _, result in REPLACED)]


def test_numbers_are_not_replaced(people: DataFrame) -> None:
    options = {"replace_field": "id", "pattern": "1", "replacement": "2"}
    with pytest.raises(Refused, match="field 'id' must be a text, and is int; cast it with Sql"):
        run("Replace", options, people)


SPLITS: dict[str | None, tuple[str | None, ...]] = {
    "a b": ("a", "b", None),
    "a b c d": ("a", "b", "c d"),
    "a  ": ("a", "", ""),
    "": ("", None, None),
    None: (None, None, None),
}


def test_a_field_is_split_and_the_last_part_takes_the_rest(session: SparkSession) -> None:
    given = table(session, [(text,) for text in SPLITS], "t string")
    options = {"split_field": "t", "separator": " ", "output_fields": ["a", "b", "c"]}

    assert rows(run("Split", options, given)) == [(text, *parts) for text, parts in SPLITS.items()]


def test_groups_fill_fields_and_defaults_stand_in(session: SparkSession) -> None:
    given = table(session, [("<a@b>",), ("none",), (None,)], "t string")
    options = {
        "source_field": "t",
        "regex_pattern": "([a-z]+)@(?:x|(?<host>[a-z]+))",
        "output_fields": ["who", "where"],
    }

    made = run("RegexExtract", {**options, "default_values": ["?", "-"]}, given)
    nulls = {**options, "output_fields": ["a", "b"]}

    assert rows(run("RegexExtract", nulls, made)) == [
        ("<a@b>", "a", "b", "a", "b"),
        ("none", "?", "-", None, None),
        (None, "?", "-", None, None),
    ]


def test_a_group_that_took_no_part_is_null(session: SparkSession) -> None:
    texts = ["12", "12-34", "12-", "x\n1 2-3", "a"]
    given = table(session, [(text,) for text in texts], "t string")
    options = {
        "source_field": "t",
        "regex_pattern": r"(\d+)(-(\d*))?",
        "output_fields": ["a", "b", "c"],
        "default_values": ["?", "?", "?"],
    }
    assert [tuple(row)[1:] for row in rows(run("RegexExtract", options, given))] == [
        ("12", None, None),
        ("12", "-34", "34"),
        ("12", "-", ""),
        ("1", None, None),
        ("?", "?", "?"),
    ]


@pytest.mark.parametrize(
    ("plugin", "options"),
    [
        ("Copy", {"fields": {"x": "nix"}}),
        ("FieldRename", {"specific": [{"field_name": "nix", "target_name": "x"}]}),
        ("Replace", {"replace_field": "nix", "pattern": "a", "replacement": "b"}),
        ("Split", {"split_field": "nix", "separator": ",", "output_fields": ["a"]}),
        ("RegexExtract", {"source_field": "nix", "regex_pattern": "(a)", "output_fields": ["x"]}),
    ],
)
def test_a_field_that_is_missing_is_named(
    people: DataFrame, plugin: str, options: dict[str, Any]
) -> None:
    with pytest.raises(Refused, match=f"transform {plugin}-1: there is no field 'nix'; there are"):
        run(plugin, options, people)
