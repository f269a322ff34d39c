"""Options: declared, found by dotted path, converted, and refused with the nearest name."""

from __future__ import annotations

import pytest
from pydantic import JsonValue

from headrace.jobfile.registry import find_plugin
from headrace.model.text import hint
from headrace.plugins.catalog import INSTALL, catalog, installed
from headrace.plugins.descriptor import AnyDescriptor
from headrace.plugins.options import Kind
from headrace.plugins.syntax_tree import NOWHERE
from tests.jobfile.samples import job, problem, read

SCHEMA = "schema { fields { id = int } }"
SINKS = ", ".join(catalog().names("sink"))


def source_options(written: str) -> dict[str, JsonValue]:
    options = dict(read(job(source=written)).pipelines[0].sources[0].options)
    del options["schema"]
    return options


@pytest.mark.parametrize(
    ("written", "options"),
    [
        ("row.num = 5", {"row.num": 5}),
        ("row { num = 5 }", {"row.num": 5}),
        ('"row.num" = "5"', {"row.num": 5}),
        ("row.num = null", {}),
        ("int.fake.mode = template", {"int.fake.mode": "TEMPLATE"}),
        ("float.min = 1", {"float.min": 1.0}),
        ("string.template = [a, 1.10, true]", {"string.template": ["a", "1.10", "true"]}),
        ("auto.increment.enabled = TRUE", {"auto.increment.enabled": True}),
        ("parallelism = 4", {"parallelism": 4}),
    ],
)
def test_an_option_is_found_by_its_path_and_converted(
    written: str, options: dict[str, JsonValue]
) -> None:
    assert source_options(written) == options


@pytest.mark.parametrize(
    ("written", "said"),
    [
        (
            "row.numm = 5",
            "5:1: unknown option 'row.numm' of source FakeSource; did you mean 'row.num'?",
        ),
        (
            "row { numm = 5 }",
            "5:7: unknown option 'row.numm' of source FakeSource; did you mean 'row.num'?",
        ),
        (
            "row.num = 9223372036854775807",
            "5:11: option 'row.num' of source FakeSource must be at most 922337203685477, "
            "and is 9223372036854775807",
        ),
        (
            "Row.Num = 5",
            "5:1: unknown option 'Row.Num' of source FakeSource; did you mean 'row.num'?",
        ),
        (
            "row.num = many",
            "5:11: option 'row.num' of source FakeSource must be a whole number, and is 'many'",
        ),
        (
            "row.num = ${rows}",
            "5:11: option 'row.num' of source FakeSource: variable 'rows' has no value; give it "
            "with -i rows=… or in the environment, or write $${rows} for the text ${rows} itself",
        ),
        (
            "row.num = 1.5",
            "5:11: option 'row.num' of source FakeSource must be a whole number, and is 1.5",
        ),
        (
            "row.num = [1]",
            "5:11: option 'row.num' of source FakeSource must be a whole number, and is a list",
        ),
        (
            "row.num = 99999999999999999999",
            "5:11: option 'row.num' of source FakeSource must be a whole number, and is "
            "99999999999999999999",
        ),
        (
            "row.num = -1",
            "5:11: option 'row.num' of source FakeSource must be at least 0, and is -1",
        ),
        (
            "date.month.template = [1, 13]",
            "5:27: each value of option 'date.month.template' of source FakeSource must be at "
            "most 12, and is 13",
        ),
        (
            "int.fake.mode = RANG",
            "5:17: option 'int.fake.mode' of source FakeSource can't be 'RANG'; "
            "did you mean 'RANGE'?",
        ),
        (
            "auto.increment.enabled = 1",
            "5:26: option 'auto.increment.enabled' of source FakeSource must be true or false, "
            "and is 1",
        ),
        (
            "float.min = x",
            "5:13: option 'float.min' of source FakeSource must be a number, and is 'x'",
        ),
        (
            "float.min = 1e999",
            "5:13: option 'float.min' of source FakeSource must be a number, and is '1e999'",
        ),
        (
            "int.template { a = 1 }",
            "5:14: option 'int.template' of source FakeSource must be a list, and is an object",
        ),
        (
            'int.template = "[1,"',
            "5:16: '[1,' is no JSON list: Expecting value: line 1 column 4 (char 3)",
        ),
        (
            "int.min = 5, int.max = 4",
            "4:10: option 'int.min' of source FakeSource is above 'int.max'",
        ),
        (
            "plugin_output = a, result_table_name = b",
            "5:20: 'plugin_output' and 'result_table_name' are the same option of source "
            "FakeSource; give one",
        ),
        (
            "tables_configs = []",
            "5:18: tables_configs names no table",
        ),
    ],
)
def test_a_wrong_option_is_refused_with_its_place_and_the_way_out(written: str, said: str) -> None:
    assert problem(job(source=written), strict=True) == f"job.conf:{said}"


@pytest.mark.parametrize(
    ("sink", "said"),
    [
        ("FakeSource {}", "2:1: FakeSource is a source, not a sink"),
        ("Consolle {}", f"2:1: there is no sink 'Consolle'; did you mean 'Console'? {INSTALL}."),
        ("Zzz {}", f"2:1: there is no sink 'Zzz'; known sinks: {SINKS}. {INSTALL}."),
        ("kafka {}", f"2:1: sink kafka is not built yet; built so far: {SINKS}"),
        (
            "Iceberg {}",
            "2:1: sink Iceberg needs the option 'table': the name of the table to write to.",
        ),
        (
            "Iceberg { table = t, iceberg.table.upsert-mode-enabled = true }",
            "2:22: option 'iceberg.table.upsert-mode-enabled' of sink Iceberg with the value true "
            "is not built yet: rows are appended, and upserts come later; leave it out",
        ),
        (
            "Iceberg { table = t, iceberg.table.commit-branch = b }",
            "2:22: option 'iceberg.table.commit-branch' of sink Iceberg is not built yet",
        ),
        (
            "Iceberg { table = t, data_save_mode = custom_processing }",
            "2:22: option 'data_save_mode' of sink Iceberg with the value 'custom_processing' "
            "is not possible: a statement of your own can't be made to happen exactly once in "
            "Iceberg; use data_save_mode = DROP_DATA, or the Jdbc sink",
        ),
        (
            "Iceberg { table = t, custom_sql = x }",
            "2:22: option 'custom_sql' of sink Iceberg is not possible: a statement of your own "
            "can't be made to happen exactly once in Iceberg; use data_save_mode = DROP_DATA, or "
            "the Jdbc sink",
        ),
        (
            "Iceberg { table = t, hadoop.config = { a = [1] } }",
            "2:44: 'a' in option 'hadoop.config' of sink Iceberg must be a text, and is a list",
        ),
        (
            "Iceberg { table = t, hadoop.config = 5 }",
            "2:38: option 'hadoop.config' of sink Iceberg must be an object of texts, and is 5",
        ),
    ],
)
def test_a_sink_that_can_not_be_used_is_refused(sink: str, said: str) -> None:
    text = f"sink {{\n{sink}\n}}\nsource {{ FakeSource {{ {SCHEMA} }} }}"

    assert problem(text) == f"job.conf:{said}"


def test_the_known_options_are_listed_when_none_is_near() -> None:
    assert problem(job(sink="somewhere = 1"), strict=True) == (
        "job.conf:10:1: unknown option 'somewhere' of sink Console; known options: "
        "log.print.data, log.print.delay.ms, plugin_input, source_table_name, parallelism"
    )
    assert hint("zz", map(str, range(23)), noun="numbers").endswith("18, 19 and 3 more")
    assert hint("zz", [], noun="numbers") == "there are no numbers"


def test_a_query_is_required_of_sql() -> None:
    assert problem(job(transform="Sql {}")) == (
        "job.conf:8:13: transform Sql needs the option 'query': a SELECT statement."
    )


def test_a_source_needs_its_schema() -> None:
    assert problem("source { FakeSource {} }\nsink { Console {} }") == (
        "job.conf:1:10: source FakeSource needs the option 'schema' or 'tables_configs'"
    )


def test_the_keys_of_a_map_are_flat_and_its_values_texts() -> None:
    text = (
        f"source {{ FakeSource {{ {SCHEMA} }} }}\n"
        "sink { iceberg { table = t, iceberg.catalog.config { type = hadoop, a.b = 1.10 }\n"
        ' iceberg.table.write-props = { "x.y" = true, z { w = null } } } }'
    )

    sink = read(text).pipelines[0].sinks[0]

    assert (sink.name, sink.plugin) == ("Iceberg-1", "Iceberg")
    assert sink.options == {
        "table": "t",
        "iceberg.catalog.config": {"type": "hadoop", "a.b": "1.10"},
        "iceberg.table.write-props": {"x.y": "true"},
    }


def test_every_declared_option_resolves_to_a_value_or_its_default() -> None:
    options = find_plugin("source", "fakesource", NOWHERE).resolve({"row.num": 9})

    assert options["row.num"] == 9
    assert options["split.num"] == 1
    assert options["tables_configs"] is None
    assert "plugin_output" not in options


@pytest.mark.parametrize("declared", installed(), ids=lambda each: each.title)
def test_every_default_is_a_value_its_own_option_supports(declared: AnyDescriptor) -> None:
    assert find_plugin(declared.role, declared.name.upper(), NOWHERE) == declared
    names = [name for option in declared.options.declared for name in option.names]
    assert len(names) == len(set(names))
    for option in declared.options.declared:
        if option.default is None:
            continue
        assert option.supported is None or option.default in option.supported
        assert not option.choices or option.default in option.choices
        assert isinstance(option.default, bool) == (option.kind is Kind.BOOL)
