"""Job files in SQL, as SeaTunnel has them: tables are plugins, and statements connect them."""

from __future__ import annotations

import pytest

from headrace.model.jobs.spec import PluginSpec
from tests.jobfile.samples import SQL, notes, problem, problems, read

SOURCE = (
    "CREATE TABLE s WITH ('connector' = 'FakeSource', 'type' = 'source',\n"
    "  'schema' = '{ fields { id = int } }');\n"
)
SINK = "CREATE TABLE k WITH ('connector' = 'console', 'type' = 'sink');\n"


def test_a_query_between_two_tables_is_a_transform() -> None:
    spec = read(SQL, path="job.sql")

    (pipeline,) = spec.pipelines
    assert (spec.name, spec.env.parallelism) == ("demo", 2)
    assert pipeline.sources[0].options["row.num"] == 16
    assert pipeline.transforms == (
        PluginSpec(
            name="Sql-1",
            plugin="Sql",
            options={"query": "SELECT id, name FROM fake WHERE name <> 'none'"},
            inputs=("fake",),
            output="people__1",
        ),
    )
    assert pipeline.sinks[0].inputs == ("people__1",)
    assert pipeline.sinks[0].options == {"namespace": "db", "table": "people"}


def test_a_table_may_be_inserted_as_it_is_and_twice_into_one_sink() -> None:
    text = SOURCE + SINK + "INSERT INTO k SELECT s;\ninsert into k select `id` from s -- x"

    spec = read(text, path="job.sql")

    assert [sink.inputs for sink in spec.pipelines[0].sinks] == [("s",), ("k__2",)]
    assert spec.pipelines[0].transforms[0].options == {"query": "select `id` from s"}


def test_a_table_may_be_made_by_a_query() -> None:
    text = SOURCE + SINK + "CREATE TABLE t AS SELECT id /* all */ FROM s; INSERT INTO k SELECT t"

    (pipeline,) = read(text, path="job.sql").pipelines

    assert (pipeline.transforms[0].inputs, pipeline.transforms[0].output) == (("s",), "t")
    assert pipeline.sinks[0].inputs == ("t",)


def test_values_are_texts_with_escapes_or_hocon() -> None:
    text = (
        SOURCE.replace("'type'", "'string.template' = '[\"a''b\", c]', row.num = 3, 'type'")
        + "CREATE TABLE k WITH ('connector' = 'LocalFile', 'type' = 'sink', 'path' = '/tmp/x',\n"
        "'file_format_type' = 'csv', 'field_delimiter' = '\\t');\nINSERT INTO k SELECT s;"
    )

    (pipeline,) = read(text, path="job.sql").pipelines

    assert pipeline.sources[0].options["string.template"] == ["a'b", "c"]
    assert pipeline.sources[0].options["row.num"] == 3
    assert pipeline.sinks[0].options["field_delimiter"] == "\t"


def test_columns_and_sinks_without_an_insert_are_told() -> None:
    columns = SOURCE.replace("TABLE s", "TABLE s (id INT, d DECIMAL(1, 2))")
    text = columns + SINK + SINK.replace("TABLE k", "TABLE q") + "INSERT INTO k SELECT s;"

    assert notes(text, path="job.sql") == [
        "job.sql:1:16: the columns of table 's' have no effect; a 'schema' among its options has "
        "one",
        "job.sql:4:14: nothing is inserted into table 'q', which is left out",
    ]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (SINK.replace("sink", "snk"), "1:56: option 'type' of table 'k' can't be 'snk'; did you"),
        (SINK.replace(", 'type' = 'sink'", ""), "1:14: table 'k' needs the option 'type'"),
        (SINK.replace("'connector' = 'console', ", ""), "1:14: table 'k' needs the option 'conn"),
        (SINK + SINK, "2:14: table 'k' is declared in line 1 already"),
        (SINK.replace(")", ""), "1:21: this '(' is never closed; add ')' before the ';'"),
        (SINK.replace("'sink'", "'sink"), '1:56: this text has no end: "\'" is missing'),
        ("/* config\nenv {}\n", "1:1: this comment has no end: '*/' is missing"),
        ("DROP TABLE x;", "1:1: 'DROP' was not expected here; a job in SQL has the statements"),
        (SINK + "INSERT INTO k SELECT * FROM s", "2:29: there is no table 's' of type source"),
        (SOURCE + "INSERT INTO kk SELECT s", "3:13: there is no table 'kk' of type sink"),
        (SOURCE + SINK + "INSERT INTO k (id) SELECT s", "4:15: '(' was not expected here; no col"),
        (SOURCE + SINK + "INSERT INTO k SELECT 1 + 1", "4:15: 'SELECT' was not expected here; a S"),
        (SOURCE + SINK + "INSERT INTO k SELECT k", "4:22: there is no table 'k' to read; it is a"),
        (SOURCE + SINK + "INSERT INTO k", "4:14: the statement ends early; SELECT comes here"),
        (SOURCE + "CREATE TABLE t LIKE s", "3:16: 'LIKE' was not expected here; WITH ( or AS"),
        (SOURCE.replace("id = int", "id = = int"), "2:31: '=' was not expected here"),
        (SINK.replace("' =", "' ,", 1), "1:34: ',' was not expected here; '=' and a value come"),
        ("/* config env { a = = 1 } */", "1:21: '=' was not expected here"),
        ("/* config sink { Console {} } */", "1:18: sink Console can't stand in `/* config */`"),
        (SOURCE, "1:1: the job has no sink; write CREATE TABLE … WITH (…, 'type' = 'sink'), and"),
        ("", "1:1: the job has no source"),
    ],
)
def test_what_can_not_be_understood_is_said_with_its_place(text: str, said: str) -> None:
    assert problem(text, path="job.sql").startswith(f"job.sql:{said}")


def test_all_statements_are_looked_at() -> None:
    text = SINK.replace("sink", "snk") + "DROP x;\n" + SOURCE + "INSERT INTO k SELECT s;"

    assert [line.split(": ")[0] for line in problems(text, path="job.sql")] == [
        "job.sql:1:56",
        "job.sql:2:1",
    ]


def test_options_have_their_places_also_inside_of_a_value() -> None:
    text = SQL.replace("'16'", "'many'").replace("name = string", "name = stringg")

    assert [line.split(": ")[0] for line in problems(text, path="job.sql")] == [
        "job.sql:10:15",
        "job.sql:11:46",
    ]
