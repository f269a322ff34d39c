"""Who can't take the kinds of rows that may come, or their tables, is refused by name."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from headrace.errors import BadJobFile, Refused
from headrace.jobfile.reader import examine_job, read_job
from headrace.jobfile.spec_checks import check_spec
from headrace.model.jobs.spec import JobSpec
from headrace.plugins import catalog as catalog_module
from headrace.plugins.catalog import PluginCatalog, installed
from headrace.plugins.descriptor import Capabilities
from headrace.plugins.row_flow import flows_of
from headrace.plugins.row_kinds import KIND_COLUMN, TABLE_COLUMN, RowFlow, RowKind

I, B, A, D = RowKind.INSERT, RowKind.UPDATE_BEFORE, RowKind.UPDATE_AFTER, RowKind.DELETE  # noqa: E741
SCHEMA = "schema { fields { id = bigint } }"


def fake(*kinds: str, output: str = "a") -> str:
    rows = ", ".join(f"{{kind = {kind}, fields = [1]}}" for kind in kinds)
    return f"FakeSource {{ plugin_output = {output}, {SCHEMA}, rows = [{rows}] }}"


def read(*sources: str, transforms: str = "", sink: str = "Console {}") -> JobSpec:
    newline = "\n"
    return read_job(
        "job.conf",
        text=f"source {{\n{newline.join(sources)}\n}}\ntransform {{\n{transforms}\n}}\n"
        f"sink {{\n{sink}\n}}\n",
    )


def step(plugin: str, options: str, *, reads: str = "a", makes: str = "b") -> str:
    return f"{plugin} {{ plugin_input = [{reads}], plugin_output = {makes}, {options} }}\n"


@pytest.fixture
def as_if(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Pretend that an installed plugin had other capabilities."""

    def pretend(role: str, name: str, **capabilities: Any) -> None:
        changed = tuple(
            replace(each, flow=None, capabilities=Capabilities(**capabilities))
            if (each.role, each.name) == (role, name)
            else each
            for each in installed()
        )
        found = PluginCatalog(changed)
        monkeypatch.setattr(catalog_module, "catalog", lambda: found)
        monkeypatch.setattr("headrace.plugins.row_flow.catalog", lambda: found)

    return pretend


@pytest.mark.parametrize(
    ("kinds", "expected"),
    [
        ((), RowFlow()),
        (("INSERT", "insert"), RowFlow()),
        (("INSERT", "delete"), RowFlow(frozenset({I, D}))),
        (("UPDATE_BEFORE", "UPDATE_AFTER"), RowFlow(frozenset({B, A}))),
    ],
)
def test_the_options_of_a_source_say_which_kinds_come(
    kinds: tuple[str, ...], expected: RowFlow
) -> None:
    (pipeline,) = read(fake(*kinds)).pipelines

    assert flows_of(pipeline)["a"] == expected
    assert (KIND_COLUMN in expected.columns) == (expected.kinds != {I})


def test_transforms_carry_narrow_and_end_kinds() -> None:
    (pipeline,) = read(
        fake("INSERT", "DELETE", "UPDATE_AFTER"),
        fake("INSERT", output="p"),
        transforms=step("Sql", 'query = "select id from a"')
        + step("FilterRowKind", "exclude_kinds = [DELETE]", reads="b, p", makes="c")
        + step("FieldMapper", "field_mapper { id = x }", reads="c", makes="d")
        + step("RowKindExtractor", "", reads="d", makes="e"),
        sink="Console { plugin_input = [e] }",
    ).pipelines

    flows = {name: flow.kinds for name, flow in flows_of(pipeline).items()}

    assert flows == {"a": {I, A, D}, "p": {I}, "b": {I, A, D}, "c": {I, A}, "d": {I, A}, "e": {I}}


SINKS = [
    ('LocalFile { path = "/out" }', "LocalFile-1"),
    ("Iceberg { table = t }", "Iceberg-1"),
    ('Jdbc { url = "jdbc:postgresql://h/d", table = t }', "Jdbc-1"),
]


@pytest.mark.req("E8")
@pytest.mark.parametrize(("sink", "name"), SINKS)
def test_a_sink_that_can_not_take_a_kind_is_refused_where_it_stands(sink: str, name: str) -> None:
    with pytest.raises(BadJobFile) as refused:
        read(fake("INSERT", "DELETE", "UPDATE_AFTER"), sink=sink)

    text = str(refused.value)
    assert text.startswith(f"job.conf:8:1: sink {name} can't take rows of the kind UPDATE_AFTER, ")
    assert "DELETE, which may come with table 'a'; it takes INSERT. " in text
    assert "FilterRowKind" in text
    assert "RowKindExtractor" in text


@pytest.mark.req("E8")
def test_a_sink_is_refused_by_a_coordinator_too() -> None:
    spec = read(fake("INSERT", "DELETE"))
    (pipeline,) = spec.pipelines
    (sink,) = pipeline.sinks
    iceberg = sink.model_copy(update={"plugin": "Iceberg", "options": {"table": "t"}})
    changed = pipeline.model_copy(update={"sinks": (iceberg,)})

    check_spec(spec)
    with pytest.raises(Refused, match=r"^sink Console-1 can't take rows of the kind DELETE"):
        check_spec(spec.model_copy(update={"pipelines": (changed,)}))


@pytest.mark.parametrize(("sink", "_name"), SINKS)
@pytest.mark.parametrize(
    "way_out", [("FilterRowKind", "include_kinds = [INSERT]"), ("RowKindExtractor", "")]
)
def test_both_ways_out_lead_out(sink: str, _name: str, way_out: tuple[str, str]) -> None:
    check_spec(read(fake("INSERT", "DELETE"), transforms=step(*way_out), sink=sink))


def test_one_of_several_inputs_is_enough_to_be_refused() -> None:
    with pytest.raises(BadJobFile, match=r"with table 'p' and 'a'; it takes INSERT"):
        read(
            fake("INSERT", "DELETE"),
            fake("INSERT", output="p"),
            sink="Iceberg { table = t, plugin_input = [p, a] }",
        )


@pytest.mark.req("E8")
def test_a_transform_that_says_nothing_of_kinds_is_refused_where_they_may_come(
    as_if: Any,
) -> None:
    as_if("transform", "Filter")
    choose = step("Filter", "include_fields = [id]")

    read(fake("INSERT"), transforms=choose)
    with pytest.raises(BadJobFile) as refused:
        read(fake("DELETE"), transforms=choose)

    assert str(refused.value).startswith(
        "job.conf:5:1: transform Filter-1 does not say what it makes of rows of the kinds DELETE, "
        "which come with table 'a'; "
    )


@pytest.mark.req("E8")
def test_rows_of_several_tables_need_a_sink_that_takes_them(as_if: Any) -> None:
    as_if("source", "FakeSource", multi_table=True)

    (pipeline,) = read(fake("INSERT")).pipelines
    assert flows_of(pipeline)["a"].columns == (TABLE_COLUMN,)
    with pytest.raises(BadJobFile, match=r"sink Iceberg-1 can't take rows of several tables"):
        read(fake("INSERT"), sink="Iceberg { table = t }")
    with pytest.raises(BadJobFile, match=r"sink Iceberg-1 can't take rows of several tables"):
        read(fake("INSERT"), transforms=step("RowKindExtractor", ""), sink="Iceberg { table = t }")


def test_a_source_that_does_not_go_by_its_options_gives_what_it_is_capable_of(as_if: Any) -> None:
    as_if("source", "FakeSource", row_kinds=frozenset({I, D}))

    with pytest.raises(BadJobFile, match="can't take rows of the kind DELETE"):
        read(fake("INSERT"), sink="Iceberg { table = t }")


@pytest.mark.parametrize(
    ("rows", "said"),
    [
        ("[{kind = UPSERT, fields = [1]}]", "row 1 of FakeSource is of an unknown kind 'UPSERT'"),
        ("[{fields = [1]}, {kind = DELETE}]", "row 2 of FakeSource has no 'fields'"),
        ("[1]", "row 1 of FakeSource has no 'fields'"),
        ("7", "must be a list of"),
    ],
)
def test_rows_that_make_no_sense_are_refused_where_they_stand(rows: str, said: str) -> None:
    with pytest.raises(BadJobFile, match=rf"^job\.conf:2:1: source FakeSource: .*{said}"):
        read(f"FakeSource {{ {SCHEMA}, rows = {rows} }}")


@pytest.mark.parametrize(
    ("transform", "said"),
    [
        ("FilterRowKind {}", "needs the option 'include_kinds' or 'exclude_kinds'"),
        (
            "FilterRowKind { include_kinds = [INSERT], exclude_kinds = [DELETE] }",
            "give include_kinds or exclude_kinds, and not both",
        ),
        ("FilterRowKind { include_kinds = [] }", "include_kinds names no kind"),
        ("FilterRowKind { include_kinds = [INSRT] }", "can't be 'INSRT'; did you mean 'INSERT'"),
        ("RowKindExtractor { transform_type = LONG }", "can't be 'LONG'"),
        ('RowKindExtractor { custom_field_name = "" }', "a field must have a name"),
        ("RowKindExtractor { custom_field_name = __headrace_x }", "'__headrace_' are reserved"),
    ],
)
def test_wrong_options_are_refused(transform: str, said: str) -> None:
    with pytest.raises(BadJobFile, match=said):
        read(fake("INSERT"), transforms=transform)


@pytest.mark.parametrize("name", [KIND_COLUMN, "__HEADRACE_x"])
def test_a_column_of_a_reserved_name_is_refused(name: str) -> None:
    with pytest.raises(BadJobFile, match=f"column '{name}' has a name that is reserved"):
        read(f"FakeSource {{ schema {{ fields {{ {name} = int }} }} }}")


def tables(*configs: str, more: str = "") -> str:
    return f"FakeSource {{ plugin_output = a, {more} tables_configs = [{', '.join(configs)}] }}"


ONE = "{ row.num = 3, schema { table = db.one, fields { id = bigint } } }"
ROW = "{kind = DELETE, fields = [1, 2]}"
TWO = f"{{ schema {{ table = db.two, fields {{ id = bigint, x = int }} }}, rows = [{ROW}] }}"


def test_a_source_of_several_tables_says_so() -> None:
    (pipeline,) = read(tables(ONE, TWO)).pipelines
    (single,) = read(tables(ONE)).pipelines

    assert flows_of(pipeline)["a"] == RowFlow(frozenset({I, D}), several_tables=True)
    assert flows_of(pipeline)["a"].columns == (KIND_COLUMN, TABLE_COLUMN)
    assert flows_of(single)["a"].is_plain
    check_spec(read(tables(ONE, TWO)))
    rules = "rules { row_rules = [{rule_type = MAX_ROW, rule_value = 9}] }"
    with pytest.raises(BadJobFile, match="sink Assert-1 can't take rows of several tables"):
        read(tables(ONE, TWO), sink=f"Assert {{ {rules} }}")


@pytest.mark.parametrize(
    ("source", "said"),
    [
        (tables(), "tables_configs names no table"),
        (f"FakeSource {{ tables_configs = {ONE} }}", "tables_configs must be a list"),
        (tables("1"), "a table of FakeSource must be an object"),
        (tables("{ row.num = 3 }"), "each table needs a schema that says its name, 'table'"),
        (tables("{ schema { fields { id = int } } }"), "each table needs a schema"),
        (tables(ONE, ONE), "there are two tables 'db.one'"),
        (
            tables(ONE, "{ schema { table = t, fields { id = string } } }"),
            "column 'id' of table 't' is of another type than that of 'db.one'",
        ),
        (
            tables(ONE, "{ schema { table = t, fields { Id = string } } }"),
            "column 'Id' of table 't' is 'id' in 'db.one'; write both alike",
        ),
        (
            tables(
                "{ schema { table = t, fields { id = int } }, rows = [{kind = X, fields = 1}] }"
            ),
            "row 1 of FakeSource is of an unknown kind 'X'",
        ),
        (tables(ONE, more="row.num = 5,"), "option 'row.num' has no effect beside tables_configs"),
    ],
)
def test_tables_that_make_no_sense_are_refused(source: str, said: str) -> None:
    with pytest.raises(BadJobFile, match=said):
        read(source)


def test_an_unknown_option_of_a_table_is_a_warning_with_the_nearest_name() -> None:
    misspelled = "{ row.nun = 3, schema { table = t, fields { id = bigint } } }"
    text = f"source {{\n{tables(ONE, misspelled)}\n}}\nsink {{ Console {{}} }}\n"

    warnings = examine_job("job.conf", text=text).warnings

    (told,) = [each.text for each in warnings if "row.nun" in each.text]
    assert told.startswith("unknown option 'row.nun' of a table of FakeSource is ignored")
    assert "row.num" in told
