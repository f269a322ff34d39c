"""Rules of Assert, and what FieldMapper, Filter and InMemory want, are judged with their place."""

from __future__ import annotations

import pytest

from headrace.connectors.assertion.descriptor import AssertRule, Equals, FieldRule, parse_rules
from headrace.errors import Refused
from headrace.jobfile.reader import read_job
from headrace.plugins.schema import PlainType, RowType
from tests.jobfile.samples import job, problem, read

ROWS = "row_rules = [{rule_type = MIN_ROW, rule_value = 1}]"


def with_sink(block: str) -> str:
    """A job whose sink begins on line 3."""
    source = "source { FakeSource { schema { fields { id = int } } } }"
    return f"env {{}}\n{source}\nsink {{\n{block}\n}}\n"


def asserting(rules: str) -> str:
    return with_sink(f"Assert {{ rules {{\n{rules}\n}} }}")


def test_rules_are_read_as_they_are_written() -> None:
    spec = read(
        asserting(
            "row_rules = [{rule_type = max_row, rule_value = 7}]\n"
            "field_rules = [{ field_name = a, field_type = {b = int}, field_value = [\n"
            "{rule_type = NOT_NULL, equals_to = [1]}, {rule_type = MIN, rule_value = 1.5}] }\n"
            "{ field_name = n, field_type = null }]"
        )
    )
    rules = parse_rules(spec.pipelines[0].sinks[0].options["rules"])

    assert rules.rows == (AssertRule("MAX_ROW", 7.0),)
    assert rules.fields == (
        FieldRule(
            "a",
            RowType((("b", PlainType("int")),)),
            (AssertRule("NOT_NULL"), Equals([1]), AssertRule("MIN", 1.5)),
        ),
        FieldRule("n", PlainType("null"), ()),
    )


@pytest.mark.parametrize(
    ("rules", "said"),
    [
        ("", "4:16: Assert has no rules; give row_rules or field_rules"),
        ("row_rules = 5", "5:13: row_rules must be a list, and is 5"),
        ("row_rules = [5]", "5:14: a rule in row_rules must be an object, and is 5"),
        ("row_rules = [{rule_value = 1}]", "5:14: a rule in row_rules must have 'rule_type'"),
        (
            "row_rules = [{rule_type = MIN, rule_value = 1}]",
            "5:27: unknown rule_type 'MIN' here; did you mean 'MIN_ROW'?",
        ),
        ("row_rules = [{rule_type = MAX_ROW}]", "a rule of type MAX_ROW must have 'rule_value'"),
        (
            "row_rules = [{rule_type = MAX_ROW, rule_value = many}]",
            "5:49: rule_value must be a number, and is 'many'",
        ),
        (
            "row_rules = [{rule_type = MAX_ROW, rule_value = true}]",
            "5:49: rule_value must be a number, and is true",
        ),
        ("field_rules = [{field_type = int}]", "must have 'field_name'"),
        ("field_rules = [{field_name = a}]", "must have 'field_type' or 'field_value'"),
        ("field_rules = [{field_name = a, field_type = itn}]", "5:46: unknown type 'itn'"),
        (
            "field_rules = [{field_name = a, field_type = float_vector}]",
            "5:46: vectors are not built yet",
        ),
        (
            "field_rules = [{field_name = a, field_value = [{equals_to = null}]}]",
            "5:48: a rule in field_value must have 'rule_type' or 'equals_to'; for null write NULL",
        ),
        (
            f"{ROWS}, catalog_table_rule {{ }}",
            "'catalog_table_rule' in the rules of Assert is not built: only rows are looked at",
        ),
        ("table-names = [a]", "5:1: 'table-names' in the rules of Assert is not built: a sink"),
        ("tables_configs = []", "5:1: 'tables_configs' in the rules of Assert is not built: write"),
    ],
)
def test_a_rule_that_can_not_be_judged_is_refused_with_its_place(rules: str, said: str) -> None:
    assert said in problem(asserting(rules))


def test_a_key_that_seatunnel_would_pass_over_is_told() -> None:
    told: list[str] = []
    read_job("job.conf", text=asserting(f"{ROWS}\nrule_ruls = []"), note=told.append)

    assert told == [
        "job.conf:6:1: key 'rule_ruls' of rules is unknown and has no effect; "
        "did you mean 'row_rules'?"
    ]


def test_rules_that_came_over_the_wire_are_refused_as_well() -> None:
    with pytest.raises(Refused, match="rules: Assert has no rules"):
        parse_rules({})


@pytest.mark.parametrize(
    ("transform", "said"),
    [
        ("FieldMapper { }", "transform FieldMapper needs the option 'field_mapper'"),
        ("FieldMapper { field_mapper { } }", "FieldMapper: field_mapper names no field"),
        ("FieldMapper { field_mapper { a = x, b = x } }", "gives two fields the name 'x'"),
        ("Filter { }", "transform Filter needs the option 'include_fields' or 'exclude_fields'"),
        ("Filter { fields = [] }", "transform Filter: include_fields names no field"),
        ("Filter { fields = [a, b, a] }", "transform Filter: include_fields names 'a' twice"),
        ("Filter { fields = [a], exclude_fields = [b] }", "and not both"),
        ("Filter { fields = [a], include_fields = [b] }", "are the same option of transform"),
    ],
)
def test_a_choice_of_fields_that_makes_no_sense_is_refused(transform: str, said: str) -> None:
    assert said in problem(job(transform=transform))


def test_a_mapping_keeps_its_order() -> None:
    spec = read(job(transform="FieldMapper { field_mapper { z = a, a = z, m = m } }"))
    (mapper,) = spec.pipelines[0].transforms
    mapping = mapper.options["field_mapper"]

    assert isinstance(mapping, dict)
    assert list(mapping.items()) == [("z", "a"), ("a", "z"), ("m", "m")]


@pytest.mark.parametrize("value", ["", "assert_options_value = b"])
def test_options_of_inmemory_that_do_not_match_are_refused(value: str) -> None:
    said = problem(with_sink(f"InMemory {{ assert_options_key = a, {value} }}"))

    assert "sink InMemory: assert_options_key is 'a', and assert_options_value" in said


def test_options_of_inmemory_that_match_are_taken() -> None:
    block = "InMemory { assert_options_key = a, assert_options_value = a }"

    assert read(with_sink(block)).pipelines[0].sinks[0].plugin == "InMemory"
