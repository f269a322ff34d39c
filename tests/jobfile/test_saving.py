"""Save modes as they are written, and sources that a streaming job can't have."""

from __future__ import annotations

import pytest
from pydantic import JsonValue

from headrace.connectors.jdbc.descriptor import sql_flaw
from headrace.errors import BadJobFile, Refused
from headrace.jobfile.reader import read_job
from headrace.jobfile.spec_checks import check_spec
from headrace.model.jobs.spec import JobSpec
from headrace.plugins.catalog import installed, save_modes_of
from headrace.plugins.save_modes import DataMode, SchemaMode

FAKE = "FakeSource { schema { fields { id = bigint } } }"
JDBC_SOURCE = 'Jdbc { url = "jdbc:postgresql://h/d", query = "SELECT 1" }'


def read(*, env: str = "", source: str = FAKE, sink: str = "Console {}") -> JobSpec:
    text = f"env {{ {env} }}\nsource {{\n  {source}\n}}\nsink {{\n  {sink}\n}}\n"
    return read_job("job.conf", text=text)


def sink_options(sink: str) -> dict[str, JsonValue]:
    return dict(read(sink=sink).pipelines[0].sinks[0].options)


@pytest.mark.parametrize("schema", [None, *SchemaMode])
@pytest.mark.parametrize("data", [None, *DataMode])
def test_only_what_can_not_be_said_twice_without_harm_needs_epoch_0(
    schema: SchemaMode | None, data: DataMode | None
) -> None:
    options: dict[str, JsonValue] = {"schema_save_mode": schema, "data_save_mode": data}
    given = {name: value for name, value in options.items() if value is not None}
    harmless = schema in {None, SchemaMode.CREATE, SchemaMode.IGNORE}
    modes = save_modes_of("Iceberg", given)
    assert modes is not None
    assert modes.opens == (not harmless or data not in {None, DataMode.APPEND})


@pytest.mark.parametrize(
    "sink",
    [
        'LocalFile { path = "/x", MODES }',
        'HdfsFile { path = "/x", fs.defaultFS = "hdfs://h:1", MODES }',
        'Jdbc { url = "jdbc:postgresql://h/d", table = t, MODES }',
    ],
)
def test_every_sink_with_save_modes_takes_them(sink: str) -> None:
    for schema in SchemaMode:
        for data in set(DataMode) - {DataMode.CUSTOM}:
            modes = f"schema_save_mode = {schema.lower()}, data_save_mode = {data}"
            options = sink_options(sink.replace("MODES", modes))
            assert (options["schema_save_mode"], options["data_save_mode"]) == (schema, data)


@pytest.mark.parametrize(
    ("sink", "said"),
    [
        (
            'Jdbc { url = "jdbc:postgresql://h/d", table = t, data_save_mode = CUSTOM_PROCESSING }',
            "6:3: sink Jdbc: data_save_mode = CUSTOM_PROCESSING needs the option 'custom_sql'",
        ),
        (
            'Jdbc { url = "jdbc:postgresql://h/d", table = t, custom_sql = "DELETE FROM t" }',
            "6:3: sink Jdbc: option 'custom_sql' needs data_save_mode = CUSTOM_PROCESSING",
        ),
        (
            'LocalFile { path = "/x", data_save_mode = CUSTOM_PROCESSING }',
            "6:28: option 'data_save_mode' of sink LocalFile with the value 'CUSTOM_PROCESSING' "
            "is not built yet",
        ),
    ],
)
def test_save_modes_that_make_no_sense_are_refused_with_their_place(sink: str, said: str) -> None:
    with pytest.raises(BadJobFile) as refused:
        read(sink=sink)
    assert str(refused.value) == f"job.conf:{said}"


@pytest.mark.parametrize(
    ("text", "ends"),
    [
        ("DELETE FROM t WHERE a = 'x; COMMIT'", False),
        ("DO $$ BEGIN DELETE FROM t; END $$", False),
        ("DO $body$ BEGIN DELETE FROM t; END $body$; SELECT 1", False),
        ('DELETE FROM "commit; rollback" -- ; commit', False),
        ("DELETE FROM t; /* ; */ DELETE FROM u;", False),
        ("SELECT CASE WHEN true THEN 1 END", False),
        ("DELETE FROM t; COMMIT", True),
        ("begin; DELETE FROM t;\n commit;", True),
        ("/* so */ rollback", True),
    ],
)
def test_custom_sql_can_not_end_the_transaction_that_fences_it(text: str, *, ends: bool) -> None:
    assert bool(sql_flaw(text)) == ends


def test_a_source_that_ends_is_refused_in_a_streaming_job_with_its_place() -> None:
    with pytest.raises(BadJobFile) as refused:
        read(env="job.mode = STREAMING", source=JDBC_SOURCE)
    assert str(refused.value) == (
        "job.conf:3:3: source Jdbc reads what is there, once, and a streaming job does not end; "
        "set job.mode = BATCH in env"
    )
    assert read(env="job.mode = STREAMING").env.job_mode == "STREAMING"


def test_a_source_that_ends_is_refused_in_a_streaming_job_over_the_wire() -> None:
    spec = read(source=JDBC_SOURCE)
    spec = spec.model_copy(update={"env": spec.env.model_copy(update={"job_mode": "STREAMING"})})
    with pytest.raises(Refused, match=r"^Jdbc-1: source Jdbc reads what is there, once"):
        check_spec(spec)


@pytest.mark.parametrize("form", ["parquet", "orc"])
@pytest.mark.parametrize(
    ("name", "more"), [("LocalFile", ""), ("HdfsFile", 'fs.defaultFS = "hdfs://h:1"')]
)
def test_a_stream_of_files_that_bring_their_columns_needs_a_schema(
    form: str, name: str, more: str
) -> None:
    source = f'{name} {{\n path = "/in"\n file_format_type = {form}\n SCHEMA\n {more}\n}}'
    with pytest.raises(BadJobFile) as refused:
        read(env="job.mode = STREAMING", source=source.replace("SCHEMA", ""))
    assert str(refused.value) == (
        f"job.conf:3:3: source {name}: in streaming mode {form} needs the option 'schema', since "
        "the folder may be empty when the job starts; add schema = { fields { … } }, or set "
        "job.mode = BATCH in env"
    )
    read(source=source.replace("SCHEMA", ""))
    given = source.replace("SCHEMA", "schema { fields { id = int } }")
    assert read(env="job.mode = STREAMING", source=given)


@pytest.mark.req("E5")
def test_only_a_source_whose_rows_may_be_others_when_read_again_is_labeled_so() -> None:
    sources = {
        each.name: each.capabilities.repeatable for each in installed() if each.role == "source"
    }
    assert {name for name, repeatable in sources.items() if not repeatable} == {"Jdbc"}
