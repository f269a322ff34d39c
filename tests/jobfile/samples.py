"""Job files for the tests, and how they are read."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from headrace.errors import BadJobFile
from headrace.jobfile.reader import read_job
from headrace.model.jobs.spec import JobSpec

FIRST = """\
# A first job: made-up rows, one query, a lake table.
env {
  job.mode = "BATCH"
  job.name = demo
  parallelism = 2
  spark.master = local[2]   // a hint
}

source {
  FakeSource {
    row.num = 16
    result_table_name = "fake"
    schema = {
      fields {
        id = bigint
        name = string
        score = "decimal(10, 2)"
        tags = "map<string, array<int>>"
        inner { a = int, b = date }
      }
    }
  }
}

transform {
  Sql {
    source_table_name = "fake"
    result_table_name = "good"
    query = \"\"\"
      select id, name from fake
      where name <> '${nobody:none}'
    \"\"\"
  }
}

sink {
  Iceberg {
    source_table_name = "good"
    namespace = db
    table = people
    iceberg.table.write-props = { write.format.default = "parquet" }
  }
}
"""

TWO_PIPELINES = """\
env { parallelism = 1 }
source {
  FakeSource { plugin_output = a, schema { fields { x = int } } }
  FakeSource { plugin_output = b, schema { fields { x = int } } }
}
sink {
  console { plugin_input = [a] }
  Console { plugin_input = "b", log.print.data = false }
}
"""

JSON = """\
{
  "env": {"job.mode": "BATCH", "parallelism": 3},
  "source": [
    {"plugin_name": "FakeSource", "row.num": 7, "result_table_name": "fake",
     "schema": {"comment": "${left:old} $${as} written", "fields": {"id": "int"}}}
  ],
  "transform": [],
  "sink": [{"plugin_name": "Console", "source_table_name": ["fake"]}]
}
"""

# The same as FIRST.
YAML = """\
env:
  job.mode: BATCH
  job.name: demo
  parallelism: 2
  spark.master: local[2]
source:
  - plugin_name: FakeSource
    row.num: 16
    result_table_name: fake
    schema:
      fields:
        id: bigint
        name: string
        score: decimal(10, 2)
        tags: map<string, array<int>>
        inner: {a: int, b: date}
transform:
  - plugin_name: Sql
    source_table_name: fake
    result_table_name: good
    query: "\\n      select id, name from fake\\n      where name <> '${nobody:none}'\\n    "
sink:
  Iceberg:
    namespace: db
    table: people
    source_table_name: good
    iceberg.table.write-props: {write.format.default: parquet}
"""

SQL = """\
/* config
env {
  job.mode = BATCH
  job.name = demo
  parallelism = 2
}
*/
CREATE TABLE fake WITH (
  'connector' = 'FakeSource', 'type' = 'source',
  'row.num' = '16',  -- for each reader
  'schema' = '{ fields { id = bigint, name = string } }'
);
CREATE TABLE people WITH (
  'connector' = 'Iceberg', 'type' = 'sink', 'namespace' = 'db', 'table' = 'people'
);
INSERT INTO people SELECT id, name FROM fake WHERE name <> '${nobody:none}';
"""

SAMPLES = {
    "first.conf": FIRST,
    "two.conf": TWO_PIPELINES,
    "job.json": JSON,
    "job.yaml": YAML,
    "job.sql": SQL,
}


def job(*, env: str = "", source: str = "row.num = 1", sink: str = "", transform: str = "") -> str:
    """A job whose blocks begin on lines 1 (env), 3 (source) and 8 (sink)."""
    return (
        f"env {{\n{env}\n}}\n"
        "source { FakeSource {\n"
        f"{source}\n"
        "schema { fields { id = int } }\n"
        "}}\n"
        f"transform {{ {transform} }}\n"
        "sink { Console {\n"
        f"{sink}\n"
        "}}\n"
    )


def read(
    text: str,
    *,
    path: str = "job.conf",
    variables: Mapping[str, str] | None = None,
    environment: Mapping[str, str] | None = None,
    strict: bool = False,
) -> JobSpec:
    return read_job(
        path,
        text=text,
        variables=variables or {},
        environment=environment or {},
        strict=strict,
    )


def outcome(path: Path | str, *, text: str | None = None) -> JobSpec | BadJobFile:
    """The job, or why there is none; any other exception is a bug."""
    try:
        return read_job(path, text=text)
    except BadJobFile as refused:
        return refused


def problem(text: str, *, path: str = "job.conf", strict: bool = False) -> str:
    """What is said first about a job file that can't be taken, from its name on."""
    return problems(text, path=path, strict=strict)[0]


def problems(text: str, *, path: str = "job.conf", strict: bool = False) -> list[str]:
    """All that is said about a job file that can't be taken, each from its name on."""
    with pytest.raises(BadJobFile) as refused:
        read(text, path=path, strict=strict)
    return str(refused.value).split("\n")


def notes(text: str, *, path: str = "job.conf") -> list[str]:
    """All warnings about a job file, which is taken."""
    told: list[str] = []
    read_job(path, text=text, note=told.append)
    return told
