"""Options of transforms that can't be carried out are refused when the job file is read."""

from __future__ import annotations

import json
from typing import Any

import pytest

from headrace.errors import BadJobFile
from headrace.jobfile.reader import read_job
from headrace.transforms.java_regex import capture_groups, first_match
from headrace.transforms.sql.descriptor import Engine
from headrace.transforms.sql.dialect import AmbiguousSql, translate
from headrace.transforms.sql.tokens import NESTING_MAX, flat, parse


def job(plugin: str, options: dict[str, Any]) -> str:
    source = {"plugin_name": "FakeSource", "schema": {"fields": {"a": "string"}}}
    return json.dumps(
        {
            "env": {"job.mode": "BATCH"},
            "source": [source],
            "transform": [{"plugin_name": plugin, **options}],
            "sink": [{"plugin_name": "Console"}],
        }
    )


RULE = {"field_name": "a"}
COLUMN = {"src_field": "a", "dest_field": "b", "path": "$.x"}
REPLACE = {"replace_field": "a", "pattern": "x", "replacement": "y"}


@pytest.mark.parametrize(
    ("plugin", "options", "why"),
    [
        ("Copy", {}, "fields"),
        ("Copy", {"src_field": "a"}, "src_field and dest_field belong together"),
        ("Copy", {"fields": {"b": "a"}, "src_field": "a"}, "give fields or src_field, and not"),
        ("FieldRename", {}, "nothing says how names change; give one of convert_case"),
        (
            "FieldRename",
            {"replacements_with_regex": [{"replace_from": "(", "replace_to": "x"}]},
            "replace_from is no regular expression",
        ),
        ("FieldRename", {"specific": [{"field_name": "a"}]}, "must have 'target_name'"),
        ("Replace", {**REPLACE, "pattern": ""}, "pattern is empty"),
        ("Split", {"split_field": "a", "separator": ",", "output_fields": ["x", "x"]}, "'x' twice"),
        (
            "RegexExtract",
            {"source_field": "a", "regex_pattern": "(a)(?:b)", "output_fields": ["x", "y"]},
            "regex_pattern has 1 groups in parentheses and output_fields 2",
        ),
        ("JsonPath", {"columns": [{**COLUMN, "path": "$..x"}]}, r"path '\$\.\.x' can't be used"),
        ("JsonPath", {"columns": [COLUMN, COLUMN]}, "two columns have the dest_field 'b'"),
        ("JsonPath", {"columns": [{**COLUMN, "path": ["$.x", "$.y"]}]}, "belong together one by"),
        ("JsonPath", {"columns": [{**COLUMN, "dest_type": "no"}]}, "unknown type 'no'"),
        (
            "JsonPath",
            {"columns": [COLUMN], "row_error_handle_way": "ROUTE_TO_TABLE"},
            "ROUTE_TO_TABLE.* is not built yet",
        ),
        ("Metadata", {"metadata_fields": {"RowKind": "k"}}, "use the transform RowKindExtractor"),
        ("Metadata", {"metadata_fields": {"Delay": "d"}}, "Delay comes from a change data capture"),
        ("Metadata", {"metadata_fields": {"table": "t"}}, "there is no 'table'; SeaTunnel has"),
        ("TableFilter", {}, "nothing says which tables"),
        ("TableFilter", {"table_pattern": "("}, "it is no regular expression"),
        ("TableMerge", {}, "'table'"),
        ("DataValidator", {"field_rules": []}, "a list of at least one rule"),
        (
            "DataValidator",
            {"field_rules": [{**RULE, "rule_type": "NO"}]},
            "rule_type can't be 'NO'",
        ),
        ("DataValidator", {"field_rules": [{**RULE, "rule_type": "RANGE"}]}, "'min_value' or"),
        (
            "DataValidator",
            {"field_rules": [{**RULE, "rule_type": "NOT_NULL", "pattern": "x"}]},
            "unknown key 'pattern' of a rule of type NOT_NULL",
        ),
        (
            "DataValidator",
            {"field_rules": [{**RULE, "rule_type": "UDF", "function_name": "PHONE"}]},
            "runs EMAIL only, not 'PHONE'",
        ),
        (
            "DataValidator",
            {
                "field_rules": [{**RULE, "rule_type": "NOT_NULL"}],
                "row_error_handle_way": "ROUTE_TO_TABLE",
            },
            "can't be sent elsewhere; SKIP leaves them out",
        ),
        ("Replace", {**REPLACE, "table_match_regex": "db.*"}, "a flow holds one table"),
        ("Sql", {"query": "select 1", "table_transform": []}, "a flow holds one table"),
        (
            "dynamiccompile",
            {"compile_language": "GROOVY"},
            "DynamicCompile compiles Java or Groovy code .* write it as a Sql transform, or as a "
            "transform of your own: docs/how-to/write-a-transform.md",
        ),
    ],
)
def test_a_flaw_is_told_with_its_place(plugin: str, options: dict[str, Any], why: str) -> None:
    with pytest.raises(BadJobFile, match=why) as refused:
        read_job("job.json", text=job(plugin, options))
    assert refused.value.line == 1


def test_names_of_tables_are_told_to_have_no_effect() -> None:
    told: list[str] = []
    read_job("job.json", text=job("TableRename", {"prefix": "x_"}), note=told.append)
    assert any("'prefix' of transform TableRename has no effect yet: rows carry" in t for t in told)


@pytest.mark.parametrize(
    ("expression", "groups"),
    [("(a)(?:b)(?<n>c)(?=d)", 2), (r"\((a)[(]", 1), (r"\Q((\E(a)", 1), ("[^](]()", 1), ("", 0)],
)
def test_groups_are_counted_as_java_does(expression: str, groups: int) -> None:
    assert capture_groups(expression) == groups


def test_only_the_first_match_is_replaced() -> None:
    matched, by = first_match(r"(a)\1", "<$1$0$12>")

    assert matched == r"\A([\s\S]*?)((a)(?:\3))"
    assert by == r"$1<$3$2$3\2>"


@pytest.mark.parametrize(
    "query",
    [
        "select 'a,(b', \"c)\", `d(` from t\n where x in (1, 2) /* ( */",
        "select f(g(1), (2, 3)), a.concat(b), (select 1) from t) ,",
        "select f(1, (2",
        "",
    ],
)
def test_a_query_that_is_read_and_put_together_is_the_same(query: str) -> None:
    assert "".join(token.text for token in flat(parse(query))) == query


def no_types(query: str) -> dict[int, list[str]]:
    raise AssertionError(query)


@pytest.mark.parametrize(
    ("query", "translated"),
    [
        ("select TRIM( BOTH '*' from c ) x from t", "select TRIM( BOTH '*' from c ) x from t"),
        ("select `concat`, t.concat, 'concat(a)' from t", None),
        ("select datediff(DAY, a, b) from t", None),
        ("select dateadd(DAY, 1, '2020-01-01') from t", None),
        ("select trunc(), insert(a), is_date(a), translate(a), mod(a) from t", None),
        ("select a -- day_of_week(a)\nfrom t", "select a  \nfrom t"),
        ("select 1.5, 2, 1e3 from t", None),
    ],
)
def test_what_needs_no_types_is_translated_without_spark(query: str, translated: str) -> None:
    assert translate(query, engine=None, types_of=no_types) == (translated or query)


@pytest.mark.parametrize("name", ["offset", "limit", "values", "group", "window"])
def test_a_column_that_is_called_like_a_clause_says_nothing_of_the_engine(name: str) -> None:
    with pytest.raises(AmbiguousSql, match="DAYNAME has two meanings here"):
        translate(f"select dayname(a), {name} from t", engine=None, types_of=no_types)


def test_a_query_of_parentheses_is_refused() -> None:
    deep = "(" * (NESTING_MAX + 2)
    with pytest.raises(AmbiguousSql, match="more than 200 parentheses within each other"):
        translate(f"select {deep}", engine=Engine.ZETA, types_of=no_types)
