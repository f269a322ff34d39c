"""From a file to a JobSpec: files, forms, secrets, and jobs that came over the wire."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from pydantic import JsonValue

from headrace.errors import BadJobFile, JobFileUnreadable, Refused
from headrace.jobfile.reader import JOB_FILE_BYTES_MAX, read_job
from headrace.jobfile.spec_checks import check_declared, check_spec
from headrace.model.jobs.spec import REDACTED, JobSpec, PluginSpec
from headrace.plugins.catalog import catalog
from headrace.plugins.descriptor import Descriptor
from headrace.plugins.options import Kind, Option, OptionSet
from headrace.plugins.secrets import lacks_secrets, take_secrets, with_secrets
from tests.jobfile.samples import FIRST, JSON, TWO_PIPELINES, job, problem, read

SINKS = ", ".join(catalog().names("sink"))


def test_a_job_file_becomes_a_spec(tmp_path: Path) -> None:
    file = tmp_path / "first.conf"
    file.write_text(FIRST, encoding="utf-8")

    spec = read_job(file)

    (pipeline,) = spec.pipelines
    assert (spec.name, spec.env.parallelism) == ("demo", 2)
    assert spec.env.other == {"spark.master": "local[2]"}
    assert pipeline.sources == (
        PluginSpec(
            name="FakeSource-1",
            plugin="FakeSource",
            output="fake",
            options={
                "row.num": 16,
                "schema": {
                    "fields": {
                        "id": "bigint",
                        "name": "string",
                        "score": "decimal(10, 2)",
                        "tags": "map<string, array<int>>",
                        "inner": {"a": "int", "b": "date"},
                    }
                },
            },
        ),
    )
    query = "\n      select id, name from fake\n      where name <> 'none'\n    "
    assert pipeline.transforms[0].options == {"query": query}
    assert (pipeline.sinks[0].name, pipeline.sinks[0].inputs) == ("Iceberg-1", ("good",))
    check_spec(JobSpec.model_validate_json(spec.model_dump_json()))


def test_a_json_job_is_read_with_its_variables() -> None:
    spec = read(JSON, path="job.json", variables={"left": "replaced"})

    assert spec.name == "job"
    assert spec.pipelines[0].sources[0].options == {
        "row.num": 7,
        "schema": {"comment": "replaced ${as} written", "fields": {"id": "int"}},
    }
    assert spec.pipelines[0].sinks[0].inputs == ("fake",)


@pytest.mark.parametrize("name", ["job.yaml", "job.YML", "job.conf", "job"])
@pytest.mark.parametrize("before", ["", "---\n", "\n# mine\n---\n"])
def test_a_yaml_file_is_known_by_its_name_or_its_looks(name: str, before: str) -> None:
    text = (
        f"{before}env:\n  'job.mode': BATCH\nsource:   # rows\n  - plugin_name: FakeSource\n"
        "    schema: {fields: {id: int}}\nsink:\n- plugin_name: Console\n"
    )

    assert read(text, path=name).pipelines[0].sinks[0].plugin == "Console"


def test_a_line_of_dashes_somewhere_in_a_file_does_not_make_it_yaml() -> None:
    with pytest.raises(BadJobFile, match="the file ends too early"):
        read('env { job.name = """\n---\n"""\n')


def test_hocon_that_opens_its_blocks_by_a_colon_is_not_taken_for_yaml() -> None:
    assert read(TWO_PIPELINES.replace("source {", "source: {\n").replace("sink {", "sink:\n {"))
    with pytest.raises(BadJobFile, match="the file ends too early"):
        read("env: {\n  parallelism: 1\n")


def test_a_job_file_whose_name_is_not_utf_8_gives_its_job_a_name_that_can_be_sent(
    tmp_path: Path,
) -> None:
    file = tmp_path / os.fsdecode(b"name\xe9.conf")
    file.write_text(TWO_PIPELINES)

    spec = read_job(file)

    assert spec.name == "name\\xe9"
    assert spec.model_dump_json()


def test_a_file_that_begins_with_a_byte_order_mark_is_read(tmp_path: Path) -> None:
    file = tmp_path / "a.conf"
    file.write_bytes(b"\xef\xbb\xbf" + TWO_PIPELINES.encode())

    assert len(read_job(file).pipelines) == 2


def test_a_file_that_can_not_be_read_is_refused_in_one_line(tmp_path: Path) -> None:
    def said(path: Path | str) -> str:
        with pytest.raises(JobFileUnreadable) as refused:
            read_job(path)
        return str(refused.value).removeprefix(f"{path}: ")

    latin, large = tmp_path / "latin.conf", tmp_path / "large.conf"
    latin.write_bytes("env { job.name = é }".encode("latin-1"))
    large.write_bytes(b"#" * (JOB_FILE_BYTES_MAX + 1))

    assert said(tmp_path / "no.conf") == (
        "can't be read: no such file; check its name and the directory you are in"
    )
    assert said(tmp_path) == "can't be read: is a directory; check what the path names"
    assert said("a\0b") == "can't be read: embedded null byte; check what the path names"
    assert said(latin) == "can't be read: byte 17 is not UTF-8; save the file in that encoding"
    assert said(large) == (
        "can't be read: it is larger than 1000000 bytes; keep data out of job files"
    )
    os.mkfifo(tmp_path / "pipe.conf")
    for endless in (tmp_path / "pipe.conf", "/dev/zero"):
        assert said(endless) == (
            "can't be read: it is no regular file; save the job in a file and name that"
        )


def test_an_unknown_block_is_refused_but_a_constant_is_not() -> None:
    assert problem("sinks { }\n" + TWO_PIPELINES) == (
        "job.conf:1:1: unknown block 'sinks'; did you mean 'sink'?"
    )
    constant = "rows = 3\n" + job(source="row.num = ${rows}")
    assert read(constant).pipelines[0].sources[0].options["row.num"] == 3


SECRETIVE = """\
env { spark.hadoop.fs.s3a.secret.key = "env-secret", spark.x = 1 }
source { FakeSource { schema { fields { password = string } }
  rows = [{ kind = INSERT, fields { password = "row-secret" } }] } }
sink { Iceberg { table = t, iceberg.catalog.config {
  type = rest, credential = "id:secret", s3.secret-access-key = "${KEY}" } } }
"""


def test_secrets_stand_apart_and_can_be_put_back() -> None:
    spec = read(SECRETIVE, environment={"KEY": "s3-secret"})
    source, sink = spec.pipelines[0].sources[0], spec.pipelines[0].sinks[0]

    assert spec.secrets == {
        "env.spark.hadoop.fs.s3a.secret.key": "env-secret",
        "FakeSource-1.rows[0].fields.password": "row-secret",
        "Iceberg-1.iceberg.catalog.config.credential": "id:secret",
        "Iceberg-1.iceberg.catalog.config.s3.secret-access-key": "s3-secret",
    }
    shown = spec.model_copy(update={"secrets": {}}).model_dump_json()
    assert "-secret" not in shown.replace("s3.secret-access-key", "")
    assert source.options["schema"] == {"fields": {"password": "string"}}
    assert with_secrets(sink, None, spec.secrets)["iceberg.catalog.config"] == {
        "type": "rest",
        "credential": "id:secret",
        "s3.secret-access-key": "s3-secret",
    }
    assert spec.env.other == {"spark.hadoop.fs.s3a.secret.key": REDACTED, "spark.x": 1}
    assert sink.options["iceberg.catalog.config"] == {
        "type": "rest",
        "credential": REDACTED,
        "s3.secret-access-key": REDACTED,
    }
    assert with_secrets(source, None, spec.secrets)["rows"] == [
        {"kind": "INSERT", "fields": {"password": "row-secret"}}
    ]
    check_spec(spec)


def test_a_secret_that_got_lost_is_not_replaced_by_stars() -> None:
    sink = read(SECRETIVE, environment={"KEY": "s3-secret"}).pipelines[0].sinks[0]

    with pytest.raises(Refused) as refused:
        with_secrets(sink, None, {})

    assert str(refused.value) == (
        "the secret 'Iceberg-1.iceberg.catalog.config.credential' is missing; "
        "submit the job again with its value"
    )


def test_an_option_is_secret_when_it_is_declared_so_whatever_its_name() -> None:
    pin = Option("pin", Kind.STRING, sensitive=True)
    safe = Descriptor(
        name="Safe",
        role="sink",
        make="safe.sink:Sink",
        options=OptionSet((pin, Option("note", Kind.STRING))),
        read_options=lambda options: options.text("pin"),
    )

    options, secrets = take_secrets("Safe-1", safe, {"pin": "1234", "note": REDACTED})

    assert (options, secrets) == ({"pin": REDACTED, "note": REDACTED}, {"Safe-1.pin": "1234"})
    plugin = PluginSpec(name="Safe-1", plugin="Safe", options=options)
    assert with_secrets(plugin, safe, secrets) == {"pin": "1234", "note": REDACTED}
    assert not lacks_secrets(plugin, safe, secrets)
    assert lacks_secrets(plugin, safe, {})
    with pytest.raises(Refused, match=r"the secret 'Safe-1\.pin' is missing"):
        with_secrets(plugin, safe, {})


def test_a_url_that_got_lost_is_not_replaced_by_stars() -> None:
    """It may hold a password, so it stands apart, whatever its name."""
    spec = read(FIRST)
    way: dict[str, JsonValue] = {"url": REDACTED, "driver": "org.postgresql.Driver", "table": "t"}
    lost = changed(spec, "sinks", name="Jdbc-1", plugin="Jdbc", options=way)

    with pytest.raises(Refused, match=r"the secret 'Jdbc-1\.url' is missing"):
        check_spec(lost)


def changed(spec: JobSpec, role: str, **update: object) -> JobSpec:
    """The job with its first source, transform or sink changed."""
    pipeline = spec.pipelines[0]
    plugins: tuple[PluginSpec, ...] = getattr(pipeline, role)
    plugin = plugins[0].model_copy(update=update)
    pipeline = pipeline.model_copy(update={role: (plugin, *plugins[1:])})
    return spec.model_copy(update={"pipelines": (pipeline, *spec.pipelines[1:])})


@pytest.mark.parametrize(
    ("role", "update", "said"),
    [
        (
            "sinks",
            {"options": {"log.print": True}},
            "Console-1: unknown option 'log.print' of sink Console; did you mean 'log.print.data'?",
        ),
        (
            "sinks",
            {"plugin": "Kafka"},
            f"Console-1: sink Kafka is not built yet; built so far: {SINKS}",
        ),
        ("sinks", {"plugin": "console"}, "Console-1: write 'Console' for 'console'"),
        ("sinks", {"inputs": ("b",)}, "Console-1: table 'b' is not made before it is read"),
        ("sinks", {"inputs": ()}, "Console-1: a sink can't have these inputs and this output"),
        (
            "sources",
            {"output": None},
            "FakeSource-1: a source can't have these inputs and this output",
        ),
        ("sources", {"name": "Console-1"}, "two plugins of the job are called 'Console-1'"),
        (
            "sinks",
            {"options": {"log.print.delay.ms": "5"}},
            "Console-1: option 'log.print.delay.ms' must be 5 here",
        ),
        (
            "sinks",
            {"options": {"plugin_input": ["a"]}},
            "Console-1: option 'plugin_input' must stand under its declared name",
        ),
    ],
)
def test_a_spec_that_came_over_the_wire_is_checked_too(
    role: str, update: dict[str, JsonValue], said: str
) -> None:
    with pytest.raises(Refused) as refused:
        check_spec(changed(read(TWO_PIPELINES), role, **update))

    assert str(refused.value) == said


def test_a_table_made_twice_and_a_wrong_number_are_refused_over_the_wire() -> None:
    spec = read(TWO_PIPELINES)
    first, second = spec.pipelines
    twice = first.model_copy(
        update={
            "sources": (second.sources[0].model_copy(update={"output": "a"}),),
            "sinks": (second.sinks[0].model_copy(update={"inputs": ("a",)}),),
            "number": 2,
        }
    )

    with pytest.raises(Refused, match=r"^FakeSource-2: table 'a' is made twice$"):
        check_spec(spec.model_copy(update={"pipelines": (first, twice)}))
    with pytest.raises(Refused, match=r"^pipeline 2 should have the number 1$"):
        check_spec(spec.model_copy(update={"pipelines": (second,)}))


def test_an_env_that_can_not_be_run_is_refused_over_the_wire() -> None:
    spec = read(job())
    spec = spec.model_copy(update={"env": spec.env.model_copy(update={"parallelism": 10_001})})

    check_declared(spec)
    with pytest.raises(Refused, match=r"^parallelism must be at most 10000, and is 10001$"):
        check_spec(spec)


def test_checking_a_spec_loads_no_parser() -> None:
    """A coordinator checks specs and reads no files; it should start without lark."""
    code = "import sys, headrace.jobfile.spec_checks; sys.exit('lark' in sys.modules)"

    assert subprocess.run([sys.executable, "-c", code], check=False, timeout=300).returncode == 0
