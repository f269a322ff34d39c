"""No sink opens a table or a folder that another pipeline of the job writes to."""

from __future__ import annotations

import pytest

from headrace.errors import BadJobFile, Refused
from headrace.jobfile.reader import read_job
from headrace.jobfile.spec_checks import check_spec
from headrace.model.jobs.spec import JobSpec

DROP = "data_save_mode = DROP_DATA"
URL = "jdbc:postgresql://h/d"
DATABASE = f'Jdbc {{ url = "{URL}", '
HDFS = 'HdfsFile { fs.defaultFS = "hdfs://h:1", '


def read(*sinks: str, inputs: tuple[str, ...] = ("a", "b")) -> JobSpec:
    """Each sink reads from a source of its own, so that it is a pipeline."""
    fake = "FakeSource {{ schema {{ fields {{ id = bigint }} }}, plugin_output = {} }}"
    sources = "\n".join(fake.format(name) for name in sorted(set(inputs)))
    written = "\n".join(
        f"{sink.removesuffix('}')}, plugin_input = {name} }}"
        for sink, name in zip(sinks, inputs, strict=True)
    )
    text = f"source {{\n{sources}\n}}\nsink {{\n{written}\n}}\n"
    return read_job("job.conf", text=text)


SAME = [
    (f'LocalFile {{ path = "/out", {DROP} }}', 'LocalFile { path = "file:///out/" }'),
    (f'LocalFile {{ path = "/out", {DROP} }}', 'LocalFile { path = "/out/deep/er" }'),
    (f'{HDFS} path = "/o", {DROP} }}', f'{HDFS} path = "hdfs://h:1/o" }}'),
    (f"Iceberg {{ table = t, {DROP} }}", "Iceberg { table = t, namespace = default }"),
    (f"{DATABASE} table = t, {DROP} }}", f"{DATABASE} table = public.t }}"),
    (
        f"{DATABASE} table = t, schema_save_mode = RECREATE_SCHEMA }}",
        f'Jdbc {{ url = "{URL}?ssl=true", query = "INSERT INTO t (id) VALUES (?)" }}',
    ),
    (
        'LocalFile { path = "/out", data_save_mode = ERROR_WHEN_DATA_EXISTS }',
        'LocalFile { path = "/out" }',
    ),
]


@pytest.mark.req("E1")
@pytest.mark.parametrize(("opener", "other"), SAME)
def test_a_sink_that_opens_what_another_pipeline_writes_to_is_refused(
    opener: str, other: str
) -> None:
    with pytest.raises(
        BadJobFile, match=r"^job\.conf:7:1: sink \S+-1 of pipeline 1 and sink \S+-2 "
    ):
        read(opener, other)
    with pytest.raises(
        BadJobFile, match=r"^job\.conf:6:1: sink \S+-2 of pipeline 2 and sink \S+-1 "
    ):
        read(other, opener)


def test_the_refusal_names_both_the_modes_and_the_way_out() -> None:
    with pytest.raises(BadJobFile) as refused:
        read(*SAME[0])
    assert str(refused.value) == (
        "job.conf:7:1: sink LocalFile-1 of pipeline 1 and sink LocalFile-2 of pipeline 2 write to "
        "the same place, which LocalFile-1 opens with schema_save_mode = "
        "CREATE_SCHEMA_WHEN_NOT_EXIST and data_save_mode = DROP_DATA: pipelines don't wait for "
        "each other, so it could find the rows of the other one. Feed one sink with both tables "
        "(plugin_input = [a, b]), or write to two places"
    )


OTHERS = [
    (f'LocalFile {{ path = "/out", {DROP} }}', 'LocalFile { path = "/output" }'),
    (f'LocalFile {{ path = "/out/deep", {DROP} }}', 'LocalFile { path = "/out" }'),
    ('LocalFile { path = "/out" }', 'LocalFile { path = "/out" }'),
    (f'{HDFS} path = "/o", {DROP} }}', f'LocalFile {{ path = "/o", {DROP} }}'),
    (f"Iceberg {{ table = t, {DROP} }}", "Iceberg { table = t, namespace = n }"),
    (f"Iceberg {{ table = t, {DROP} }}", "Iceberg { table = t, catalog_name = c }"),
    (f"{DATABASE} table = t, {DROP} }}", f"{DATABASE} table = u, {DROP} }}"),
    (f'Jdbc {{ url = "{URL}2", table = t, {DROP} }}', f"{DATABASE} table = t }}"),
]


@pytest.mark.parametrize("sinks", OTHERS)
def test_sinks_that_can_not_meet_may_be_of_several_pipelines(sinks: tuple[str, str]) -> None:
    check_spec(read(*sinks))


def test_sinks_of_one_pipeline_are_opened_before_any_of_them_writes() -> None:
    check_spec(read(*SAME[0], inputs=("a", "a")))


@pytest.mark.req("E1")
@pytest.mark.parametrize(("opener", "other"), [SAME[0], SAME[4]])
def test_such_a_job_is_refused_over_the_wire(opener: str, other: str) -> None:
    spec = read(opener.replace(f", {DROP}", ""), other)
    first, second = spec.pipelines
    options = {**first.sinks[0].options, "data_save_mode": "DROP_DATA"}
    sink = first.sinks[0].model_copy(update={"options": options})
    first = first.model_copy(update={"sinks": (sink,)})
    spec = spec.model_copy(update={"pipelines": (first, second)})
    with pytest.raises(Refused, match=r"^sink \S+-1 of pipeline 1 and sink \S+-2 of pipeline 2"):
        check_spec(spec)
