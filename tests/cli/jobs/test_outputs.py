"""What a summary says of where the rows are, and the commands that show them."""

from __future__ import annotations

import json
import re
import shlex
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import create_engine

from headrace.cli.jobs.text import output_lines, outputs_of
from headrace.client.views import JobView, PipelineView

EMBEDDED = {
    "table": "headrace.demo.events",
    "snapshot": 1,
    "location": "file:/my lake/warehouse/demo/events",
    "warehouse": "file:/my lake/warehouse",
}
MINE = {"table": "mine.ns.t-1", "location": "s3://bucket/ns/t-1"}
FILES = {"folder": "file:/data/out", "files": 2}
JDBC = {"table": "public.orders", "database": "jdbc:postgresql://host/db"}


def job(**commits: Any) -> JobView:
    done = PipelineView(number=1, status="FINISHED", commits=commits)
    times = {"created_at_ms": 1, "started_at_ms": 2, "ended_at_ms": 3}
    named = {"id": "j1", "name": "demo", "status": "FINISHED", "group": "default"}
    return JobView.model_validate({**named, **times, "pipelines": (done,)})


def test_a_table_of_the_embedded_catalog_is_shown_by_commands_that_are_complete() -> None:
    [output] = outputs_of(job(Iceberg=EMBEDDED))

    python, option, program = shlex.split(output["pyiceberg"])
    assert (python, option) == ("python", "-c")
    compile(program, "program", "exec")
    assert 'uri="sqlite:////my%20lake/warehouse/catalog.db"' in program
    assert '.load_table("demo.events")' in program
    spark = shlex.split(output["spark"])
    assert spark[0] == "spark-sql"
    assert spark[-1] == "SELECT * FROM headrace.demo.events LIMIT 10"
    assert "spark.sql.catalog.headrace.warehouse=file:/my lake/warehouse" in spark


@pytest.mark.parametrize("name", ["a b", "a#b", "a?b", "100%20x", "a'b", 'a"b', "é"])
def test_the_folder_of_a_warehouse_may_have_any_name(tmp_path: Path, name: str) -> None:
    folder = tmp_path / name
    folder.mkdir()
    with closing(sqlite3.connect(folder / "catalog.db")) as made:
        made.execute("CREATE TABLE mark (a)")
        made.commit()
    facts = {**EMBEDDED, "location": f"file:{folder}/demo/events", "warehouse": f"file:{folder}"}

    [output] = outputs_of(job(Iceberg=facts))

    program = shlex.split(output["pyiceberg"])[2]
    compile(program, "program", "exec")
    [uri] = re.findall(r"uri=(\".*?\")\)", program)
    engine = create_engine(json.loads(uri))
    with engine.connect() as conn:
        assert conn.exec_driver_sql("SELECT count(*) FROM mark").scalar() == 0
    engine.dispose()
    assert f"spark.sql.catalog.headrace.uri=jdbc:sqlite:{folder}/catalog.db" in shlex.split(
        output["spark"]
    )


def test_a_table_of_another_catalog_is_shown_through_the_settings_of_its_owner() -> None:
    [output] = outputs_of(job(Iceberg=MINE))

    assert 'load_catalog("mine").load_table("ns.t-1")' in output["pyiceberg"]
    assert output["spark"] == "spark-sql -e 'SELECT * FROM mine.ns.`t-1` LIMIT 10'"
    assert list(output_lines([output]))[-1] == "  Both need the settings of your catalog 'mine'."


@pytest.mark.parametrize("name", ["größe", "1st", "a b", 'a"b'])
def test_a_name_that_spark_does_not_take_plain_is_quoted(name: str) -> None:
    [output] = outputs_of(job(Iceberg={**MINE, "table": f"mine.ns.{name}"}))

    assert f"mine.ns.`{name}` LIMIT" in shlex.split(output["spark"])[-1]
    compile(shlex.split(output["pyiceberg"])[2], "program", "exec")


def test_files_and_databases_are_named_and_a_console_is_not() -> None:
    outputs = outputs_of(job(LocalFile=FILES, Jdbc=JDBC, Console={"rows": 3}))

    assert list(output_lines(outputs)) == [
        "LocalFile is in file:/data/out",
        "public.orders is in jdbc:postgresql://host/db",
    ]
