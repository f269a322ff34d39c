"""Row kinds go through every projection and filter; whatever merges rows is refused by name."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

from headrace.connectors.registry import make_source
from headrace.errors import Refused
from headrace.jobfile.reader import read_job
from headrace.model.jobs.spec import PipelineSpec
from headrace.plugins.row_kinds import KIND_COLUMN, TABLE_COLUMN
from headrace.protocol.messages import EpochPlan
from headrace.spark.row_carrier import SparkRowCarrier
from headrace.spark.row_counts import SparkRowCounter
from headrace.transforms.registry import make_transform
from headrace.worker.dataflow import Dataflow
from tests.spark.lake import some
from tests.spark.settings import setting

ROWS = [
    ("INSERT", 1, "a"),
    ("UPDATE_BEFORE", 1, "a"),
    ("UPDATE_AFTER", 1, "b,c"),
    ("INSERT", 2, "d"),
    ("DELETE", 2, "d"),
]
KINDS = {"INSERT": "+I", "UPDATE_BEFORE": "-U", "UPDATE_AFTER": "+U", "DELETE": "-D"}
CHANGES = [(number, name, KINDS[kind]) for kind, number, name in ROWS]


def fake(output: str, rows: Sequence[tuple[str, int, str]] = ROWS) -> str:
    listed = ", ".join(f'{{kind = {kind}, fields = [{n}, "{name}"]}}' for kind, n, name in rows)
    schema = "schema { fields { id = int, name = string } }"
    return f"FakeSource {{ plugin_output = {output}, {schema}, rows = [{listed}] }}"


INSERTED = fake("plain", [("INSERT", 2, "d"), ("INSERT", 3, "e")])


def sql(query: str, *inputs: str, output: str = "made") -> str:
    named = ", ".join(inputs or ("changes",))
    return f'Sql {{ plugin_input = [{named}], plugin_output = {output}, query = """{query}""" }}'


def dataflow(session: SparkSession, pipeline: PipelineSpec) -> tuple[Dataflow, EpochPlan]:
    sources = [
        make_source(plugin, setting("FakeSource", "source", plugin.options)[1], secrets={})
        for plugin in pipeline.sources
    ]
    transforms = [make_transform(plugin, None, secrets={}) for plugin in pipeline.transforms]
    counting, carrier = SparkRowCounter("kinds"), SparkRowCarrier()
    slices = {source.name: some(source.plan(session, None)) for source in sources}
    flow = Dataflow(pipeline, sources, transforms, session, counting, carrier)
    return flow, EpochPlan(slices=slices, now_ms=0)


def job(*plugins: str, sinks: Sequence[str] = ("Console {}",)) -> PipelineSpec:
    """Of these sources and transforms."""
    sources = [each for each in plugins if each.startswith("FakeSource")]
    transforms = [each for each in plugins if each not in sources]
    blocks = {"source": sources, "transform": transforms, "sink": sinks}
    text = "\n".join("\n".join([f"{role} {{", *listed, "}"]) for role, listed in blocks.items())
    (pipeline,) = read_job("job.conf", text=text).pipelines
    return pipeline


def made(session: SparkSession, *plugins: str, read: str = "made") -> DataFrame:
    """The frame that a sink is given which reads these tables."""
    sink = f"Console {{ plugin_input = [{read}] }}"
    pipeline = job(fake("changes"), *plugins, sinks=[sink])
    flow, plan = dataflow(session, pipeline)
    with flow.frames_of(plan) as frames:
        given = flow.input_of(pipeline.sinks[0], frames)
        empty = flow.input_of(pipeline.sinks[0], flow.empty())
    assert empty.columns == given.columns
    return given


def rows(frame: DataFrame) -> list[tuple[Any, ...]]:
    found: list[Any] = frame.collect()
    return sorted(tuple(row) for row in found)


CARRIED = [
    ("select * from changes", "id name", CHANGES),
    ("select name, id from changes", "name id", [(b, a, kind) for a, b, kind in CHANGES]),
    ("select c.id + 1 as `a.b` from changes c", "a.b", [(a + 1, kind) for a, _, kind in CHANGES]),
    (
        "select x from (select id as x, name from changes where id < 2) z where name <> 'a'",
        "x",
        [(1, "+U")],
    ),
    (
        "with a as (select id, name from changes), b as (select id from a where name = 'd') "
        "select id from b",
        "id",
        [(2, "+I"), (2, "-D")],
    ),
    (
        "with a as (select id from changes where id = 2) select * from a union all select * from a",
        "id",
        [(2, "+I"), (2, "+I"), (2, "-D"), (2, "-D")],
    ),
    (
        "select case when id = 1 then 'one' else 'two' end as text, * from changes where id = 2",
        "text id name",
        [("two", 2, "d", "+I"), ("two", 2, "d", "-D")],
    ),
    (
        "select id + 1 as q, q * 2 as r from changes where id = 2",
        "q r",
        [(3, 6, "+I"), (3, 6, "-D")],
    ),
    (
        "select id, part from changes lateral view explode(split(name, ',')) p as part "
        "where id = 1",
        "id part",
        [(1, "a", "+I"), (1, "a", "-U"), (1, "b", "+U"), (1, "c", "+U")],
    ),
    ("from changes |> where id = 2 |> select name", "name", [("d", "+I"), ("d", "-D")]),
    ("select id, id from changes where id = 2", "id id", [(2, 2, "+I"), (2, 2, "-D")]),
    ("select 7 as x", "x", [(7, "+I")]),
    (
        f"select id, {KIND_COLUMN} as k from (select id, 'x' as {KIND_COLUMN} from changes) "
        "where id = 2",
        "id k",
        [(2, "x", "+I"), (2, "x", "-D")],
    ),
]


@pytest.mark.req("E8")
@pytest.mark.parametrize(("query", "columns", "expected"), CARRIED, ids=[q for q, *_ in CARRIED])
def test_a_query_carries_the_kind_of_each_row(
    session: SparkSession, query: str, columns: str, expected: list[tuple[Any, ...]]
) -> None:
    frame = made(session, sql(query))

    assert frame.columns == [*columns.split(), KIND_COLUMN]
    assert rows(frame) == sorted(expected)


@pytest.mark.req("E8")
def test_a_condition_may_look_into_a_table_whose_rows_are_all_inserted(
    session: SparkSession,
) -> None:
    query = "select id from changes where id in (select id from plain) and id < "
    query += "(select max(id) from plain)"

    frame = made(session, INSERTED, sql(query, "changes", "plain"))

    assert rows(frame) == [(2, "+I"), (2, "-D")]


@pytest.mark.req("E8")
def test_rows_of_a_table_without_kinds_are_inserted_and_may_be_merged_before(
    session: SparkSession,
) -> None:
    query = "select id from changes union all select sum(id) from plain"

    frame = made(session, INSERTED, sql(query, "changes", "plain"))

    assert rows(frame) == sorted([(a, kind) for a, _, kind in CHANGES] + [(5, "+I")])


MERGING = [
    ("select count(*) as n from changes", "an aggregate function"),
    ("select id from changes group by id", "GROUP BY"),
    ("select id from changes group by id having count(*) > 1", "GROUP BY"),
    ("select * from (select max(id) as m from changes) where m > 1", "an aggregate function"),
    ("with a as (select max(id) as m from changes) select m from a", "an aggregate function"),
    ("select distinct id from changes", "DISTINCT"),
    ("select id from changes union select id from changes", "UNION without ALL"),
    ("select id from changes except select id from plain", "EXCEPT"),
    ("select id from changes intersect select id from plain", "INTERSECT"),
    ("select c.id from changes c join plain p on c.id = p.id", "JOIN"),
    ("select p.id from plain p left anti join changes c on c.id = p.id", "JOIN"),
    ("select p.id from changes, plain p where p.id = changes.id", "JOIN"),
    ("select id, row_number() over (order by id) as n from changes", "a window function"),
    ("select id from changes limit 2", "LIMIT"),
    ("select id from changes offset 2", "OFFSET"),
    ("select id from changes order by id limit 2", "ORDER BY"),
    ("select id from changes order by id", "ORDER BY"),
    ("select id from changes sort by id", "SORT BY"),
    ("select id from changes distribute by id", "DISTRIBUTE BY"),
    ("select /*+ repartition(3) */ id from changes", "a hint that moves rows"),
    ("select id from changes tablesample (50 percent)", "TABLESAMPLE"),
    ("select * from changes unpivot (v for n in (id))", "UNPIVOT"),
    ("select * from changes pivot (count(1) for name in ('a'))", "an aggregate function"),
    ("select id from plain where id > (select avg(id) from changes)", "a subquery in it reads"),
    ("select id from plain where exists (select 1 from changes where id = plain.id)", "a subquery"),
    ("select id, (select max(id) from changes) as top from changes", "a subquery in it reads"),
    ("select id from changes where id in (select id from changes where name = 'a')", "a subquery"),
    (
        "with a as (select id from changes) select id from plain where id in (select id from a)",
        "a subquery in it reads",
    ),
    (
        "select id from plain where id in (with a as (select id from changes) select id from a)",
        "a subquery in it reads",
    ),
    (
        "with recursive r(n) as (select id from changes union all select n + 1 from r where n < 3) "
        "select n from r",
        "what Spark calls",
    ),
]


@pytest.mark.req("E8")
@pytest.mark.parametrize(("query", "construct"), MERGING, ids=[query for query, _ in MERGING])
def test_a_query_that_merges_rows_is_refused_before_it_runs(
    session: SparkSession, query: str, construct: str
) -> None:
    pipeline = job(fake("changes"), INSERTED, sql(query, "changes", "plain"))
    with pytest.raises(Refused) as refused:
        dataflow(session, pipeline)[0].empty()

    text = str(refused.value)
    assert text.startswith("transform Sql-1 would lose the kind or the table of rows: ")
    assert construct in text
    assert "RowKindExtractor" in text, "it says the way out"


def test_the_same_queries_run_where_all_rows_are_inserted(session: SparkSession) -> None:
    queries = [query for query, _ in MERGING]
    transforms = [
        sql(query, "changes", "plain", output=f"made{number}")
        for number, query in enumerate(queries)
    ]
    outputs = [f"made{number}" for number in range(len(queries))]
    sinks = [f"Console {{ plugin_input = {output} }}" for output in outputs]
    pipeline = job(fake("changes", [("INSERT", 1, "a")]), INSERTED, *transforms, sinks=sinks)

    frames = dataflow(session, pipeline)[0].empty()

    assert not any(KIND_COLUMN in frames[output].columns for output in outputs)


@pytest.mark.req("E8")
@pytest.mark.parametrize(
    ("transform", "expected"),
    [
        ("FieldMapper {{ {}, field_mapper {{ name = id, id = name }} }}", "id name"),
        ("Filter {{ {}, include_fields = [name] }}", "name"),
        ("Filter {{ {}, exclude_fields = [id] }}", "name"),
    ],
)
def test_a_choice_of_fields_keeps_the_kind_though_nobody_lists_it(
    session: SparkSession, transform: str, expected: str
) -> None:
    frame = made(session, transform.format("plugin_input = [changes], plugin_output = made"))

    assert frame.columns == [*expected.split(), KIND_COLUMN]
    assert sorted(row[KIND_COLUMN] for row in frame.collect()) == sorted(k for *_, k in CHANGES)


@pytest.mark.req("E8")
def test_kinds_go_through_a_chain_and_through_unions(session: SparkSession) -> None:
    frame = made(
        session,
        INSERTED,
        "Filter { plugin_input = [changes, plain], plugin_output = one, include_fields = [id] }",
        sql("select id as x from one where id > 1", "one", output="two"),
        "FieldMapper { plugin_input = [two], plugin_output = made, field_mapper { x = y } }",
    )

    assert rows(frame) == [(2, "+I"), (2, "+I"), (2, "-D"), (3, "+I")]


@pytest.mark.req("E8")
def test_a_sink_of_two_tables_is_given_kinds_for_all_of_their_rows(session: SparkSession) -> None:
    frame = made(session, INSERTED, read="plain, changes")

    assert rows(frame) == sorted([*CHANGES, (2, "d", "+I"), (3, "e", "+I")])


FILTER = "FilterRowKind {{ plugin_input = [{}], plugin_output = made, {} }}"


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ("include_kinds = [INSERT, delete]", ["+I", "+I", "-D"]),
        ("exclude_kinds = [INSERT]", ["+U", "-D", "-U"]),
        ("include_kinds = [UPDATE_AFTER]", ["+U"]),
    ],
)
def test_rows_are_chosen_by_their_kind(
    session: SparkSession, options: str, expected: list[str]
) -> None:
    frame = made(session, FILTER.format("changes", options))

    assert frame.columns == ["id", "name", KIND_COLUMN]
    assert [kind for *_, kind in sorted(rows(frame), key=lambda row: row[2])] == expected


@pytest.mark.parametrize("table", ["changes", "changes, plain"])
def test_where_only_inserts_are_left_no_column_is(session: SparkSession, table: str) -> None:
    kept = FILTER.format(table, "include_kinds = [INSERT]").replace("= made", "= kept")
    counted = sql("select count(*) as n from kept", "kept")

    frame = made(session, *([INSERTED] if "plain" in table else []), kept, counted)

    assert (frame.columns, rows(frame)) == (["n"], [(4 if "plain" in table else 2,)])


@pytest.mark.parametrize(("option", "left"), [("include", 2), ("exclude", 0)])
def test_rows_without_a_kind_are_inserted(session: SparkSession, option: str, left: int) -> None:
    pipeline = job(INSERTED, FILTER.format("plain", f"{option}_kinds = [INSERT]"))
    flow, plan = dataflow(session, pipeline)

    with flow.frames_of(plan) as frames:
        assert (frames["made"].columns, frames["made"].count()) == (["id", "name"], left)


EXTRACT = "RowKindExtractor {{ plugin_input = [{}], plugin_output = made, {} }}"


def test_the_kind_becomes_a_field_and_every_row_an_insert(session: SparkSession) -> None:
    frame = made(session, EXTRACT.format("changes", ""))

    assert frame.columns == ["id", "name", "row_kind"]
    assert rows(frame) == sorted(CHANGES)


def test_kinds_that_were_ended_do_not_come_back_in_a_later_transform(
    session: SparkSession,
) -> None:
    frame = made(
        session,
        sql("select * from changes", output="copied"),
        "RowKindExtractor { plugin_input = [copied], plugin_output = log, custom_field_name = k }",
        sql(
            "select id, k from log union all select id, name from changes where id = 99",
            "log",
            "changes",
        ),
    )
    assert rows(frame) == sorted((number, kind, "+I") for number, _, kind in CHANGES)


def test_the_kind_is_written_out_under_another_name(session: SparkSession) -> None:
    frame = made(
        session,
        INSERTED,
        EXTRACT.format("changes, plain", "custom_field_name = op, transform_type = full"),
    )

    found = sorted((row["id"], row["name"], row["op"]) for row in frame.collect())
    expected = [(n, name, kind) for kind, n, name in ROWS]
    assert found == sorted([*expected, (2, "d", "INSERT"), (3, "e", "INSERT")])


def test_a_field_that_is_there_already_is_not_overwritten(session: SparkSession) -> None:
    with pytest.raises(
        Refused, match=r"transform RowKindExtractor-1: there is a field 'Name' alre"
    ):
        made(session, EXTRACT.format("changes", "custom_field_name = Name"))


@pytest.mark.parametrize("name", [KIND_COLUMN, TABLE_COLUMN, "__Headrace_Mine"])
def test_a_column_of_a_reserved_name_is_refused(session: SparkSession, name: str) -> None:
    with pytest.raises(Refused) as refused:
        made(session, sql(f"select id, 'x' as {name} from changes"))

    assert name in str(refused.value)
    assert "transform Sql-1" in str(refused.value)


def test_a_column_of_a_reserved_name_is_refused_where_all_rows_are_inserted(
    session: SparkSession,
) -> None:
    pipeline = job(INSERTED, sql(f"select 1 as {KIND_COLUMN} from plain", "plain"))
    flow, _ = dataflow(session, pipeline)

    with pytest.raises(Refused, match=rf"transform Sql-1 gives a column '{KIND_COLUMN}'"):
        flow.empty()


TABLES = """FakeSource {
  plugin_output = many
  tables_configs = [
    { schema { table = db.one, fields { id = int } }, rows = [{fields = [1]}, {fields = [2]}] }
    { schema { table = db.two, fields { id = int } }, rows = [{kind = DELETE, fields = [3]}] }
  ]
}"""


@pytest.mark.req("E8")
def test_the_table_of_a_row_goes_along_with_its_kind(session: SparkSession) -> None:
    query = "select id + 1 as x from many where id > 1 union all select id from changes"
    pipeline = job(
        TABLES,
        fake("changes"),
        sql(query, "many", "changes"),
        EXTRACT.format("made", "").replace("= made,", "= last,"),
    )
    flow, plan = dataflow(session, pipeline)

    with flow.frames_of(plan) as frames:
        found, last = frames["made"], frames["last"]

    assert found.columns == ["x", KIND_COLUMN, TABLE_COLUMN]
    assert rows(found) == sorted(
        [(3, "+I", "db.one"), (4, "-D", "db.two"), *((n, k, "changes") for n, _, k in CHANGES)]
    )
    assert last.columns == ["x", TABLE_COLUMN, "row_kind"]
    with pytest.raises(Refused, match="transform Sql-1 would lose the kind or the table of rows"):
        dataflow(session, job(TABLES, sql("select count(*) as n from many", "many")))[0].empty()


@pytest.mark.req("E8")
def test_rows_that_say_no_table_get_the_id_of_their_own(session: SparkSession) -> None:
    both = "Copy { plugin_input = [many, one], plugin_output = made, fields = { z = id } }"
    only_id = sql("select id from plain", "plain", output="one")
    counted = "select id from many union all select cast(count(*) as int) from plain"
    for transforms, table in (([only_id, both], "one"), ([sql(counted, "many", "plain")], "made")):
        flow, plan = dataflow(session, job(TABLES, INSERTED, *transforms))
        with flow.frames_of(plan) as frames:
            found = [(row["id"], row[TABLE_COLUMN]) for row in frames["made"].collect()]
        said = [(1, "db.one"), (2, "db.one"), (3, "db.two")]
        told = [(2, table), (3, table)] if table == "one" else [(2, table)]
        assert sorted(found) == sorted([*said, *told])


def test_where_all_rows_are_inserted_the_plan_is_that_of_the_transforms_alone(
    session: SparkSession,
) -> None:
    """So such a job can't be slower than before: bench/row_kinds.py has the figures."""
    pipeline = job(
        INSERTED,
        "Filter { plugin_input = [plain], plugin_output = one, include_fields = [id] }",
        sql("select id as x from one where id > 1", "one"),
    )
    flow, plan = dataflow(session, pipeline)
    with flow.frames_of(plan) as frames:
        given = flow.input_of(pipeline.sinks[0], frames)
        bare = frames["plain"]
        for spec in pipeline.transforms:
            transform = make_transform(spec, None, secrets={})
            bare = transform(session, {spec.inputs[0]: bare}, now_ms=0)

    assert given.sameSemantics(bare)
    assert not given.sameSemantics(frames["one"])
