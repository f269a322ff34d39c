"""SeaTunnel's own checks of its FakeSource hold for ours: its job files, read where they lie."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession

from headrace.connectors.connector import Setting
from headrace.connectors.registry import make_sink, make_source
from headrace.errors import Refused
from headrace.jobfile.reader import read_job
from headrace.model.jobs.spec import JobSpec, PipelineSpec, PluginSpec
from headrace.transforms.registry import make_transform
from tests.conformance import job_files
from tests.spark.lake import some
from tests.spark.settings import INCARNATION, at

KEPT = (
    "connector-assert-e2e/assertion/fake_row_to_assert.conf",
    "connector-assert-e2e/assertion/fakesource_to_assert.conf",
    "connector-fake-e2e/fake_to_assert.conf",
    "connector-fake-e2e/fake_to_assert_verify_flink_metrics.conf",
    "connector-fake-e2e/fake_to_assert_with_range.conf",
    "connector-seatunnel-e2e-base/batch_fake_multi_table_to_console.conf",
    "connector-seatunnel-e2e-base/classloader/fake_to_inmemory.conf",
    "connector-seatunnel-e2e-base/savemode/fake_to_inmemory_savemode.conf",
    "seatunnel-transforms-v2-e2e-part-1/filter_row_kind_exclude_delete.conf",
    "seatunnel-transforms-v2-e2e-part-1/filter_row_kind_exclude_insert.conf",
    "seatunnel-transforms-v2-e2e-part-1/copy_transform.conf",
    "seatunnel-transforms-v2-e2e-part-1/filter_transform.conf",
    "seatunnel-transforms-v2-e2e-part-2/json_path_transform/array_test.conf",
    "seatunnel-transforms-v2-e2e-part-2/spark_date_time_transform.conf",
    "seatunnel-transforms-v2-e2e-part-2/sql_transform/func_datetime.conf",
    "seatunnel-transforms-v2-e2e-part-2/sql_transform/func_from_unixtime.conf",
    "seatunnel-transforms-v2-e2e-part-2/sql_transform/func_numeric.conf",
    "seatunnel-transforms-v2-e2e-part-2/sql_transform/func_system.conf",
)
# It needs DES, which Spark has not: docs/reference/sql-functions.md.
DES = "seatunnel-transforms-v2-e2e-part-2/sql_transform/func_string.conf"
BROKEN = "connector-fake-e2e/fake_to_assert_with_multitable_exception.conf"


def run(session: SparkSession, spec: JobSpec) -> None:
    """Every pipeline as one epoch, without a coordinator."""
    for pipeline in spec.pipelines:
        frames = _frames(session, spec, pipeline)
        for plugin in pipeline.sinks:
            sink = make_sink(plugin, _setting(spec, plugin), secrets=spec.secrets)
            (table,) = plugin.inputs
            sink.finish(sink.stage(session, frames[table], at()).rows)


def _frames(session: SparkSession, spec: JobSpec, pipeline: PipelineSpec) -> dict[str, DataFrame]:
    frames: dict[str, DataFrame] = {}
    for plugin in pipeline.sources:
        source = make_source(plugin, _setting(spec, plugin), secrets=spec.secrets)
        frames[plugin.output or plugin.name] = source.read(
            session, some(source.plan(session, None))
        )
    for plugin in pipeline.transforms:
        transform = make_transform(plugin, None, secrets=spec.secrets)
        inputs = {name: frames[name] for name in plugin.inputs}
        frames[plugin.output or plugin.name] = transform(session, inputs, now_ms=0)
    return frames


def _setting(spec: JobSpec, plugin: PluginSpec) -> Setting:
    return Setting(
        job="job-1",
        incarnation=INCARNATION,
        pipeline=1,
        parallelism=int(str(plugin.options.get("parallelism") or spec.env.parallelism)),
        streaming=False,
        warehouse="file:/nowhere",
    )


@pytest.mark.parametrize("file", job_files(*KEPT))
def test_the_rules_of_a_job_are_kept(session: SparkSession, file: Path) -> None:
    run(session, read_job(file))


@pytest.mark.parametrize("file", job_files(BROKEN))
def test_a_job_that_is_meant_to_fail_does(session: SparkSession, file: Path) -> None:
    with pytest.raises(Refused, match="field 'score' breaks the rule MAX 100 in 1 of 7 rows"):
        run(session, read_job(file))


@pytest.mark.parametrize("file", job_files(DES))
def test_a_job_that_needs_des_is_refused_and_does_the_rest(
    session: SparkSession, file: Path
) -> None:
    with pytest.raises(Refused, match="DES_ENCRYPT is not built: Spark has no DES"):
        run(session, read_job(file))
    encrypted = "des_decrypt('1234567890', des_encrypt('1234567890', name))"
    text = file.read_text(encoding="utf-8")
    assert encrypted in text

    run(session, read_job(file.name, text=text.replace(encrypted, "name")))
