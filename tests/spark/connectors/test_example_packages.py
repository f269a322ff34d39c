"""The packages of examples/, installed as a stranger would install them, and a job through both."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from headrace.clock import SystemClock
from headrace.plugins.catalog import catalog
from headrace.store.core.keyring import own_file
from headrace.worker.runner import Runner
from headrace.worker.warm_session import WarmSpark
from tests.spark.connectors.test_pairs import Coordinators
from tests.stores import KEY


def rows_in(path: Path, table: str) -> list[tuple[Any, ...]]:
    with closing(sqlite3.connect(path)) as database:
        return database.execute(f"SELECT * FROM {table} ORDER BY 1").fetchall()


def test_both_are_found_with_their_packages(installed: Path) -> None:
    toys = [each for each in catalog().descriptors if each.name.startswith("Toy")]

    assert [(each.role, each.name, each.brought_by) for each in toys] == [
        ("source", "ToySqlite", "headrace-connector-toy 0.1.0"),
        ("transform", "ToyUpper", "headrace-transform-toy 0.1.0"),
        ("sink", "ToySqlite", "headrace-connector-toy 0.1.0"),
    ]
    assert not catalog().broken


@pytest.fixture
def coordinators(
    warm: WarmSpark, warehouse: str, sqlite_template: Path, tmp_path: Path
) -> Iterator[Coordinators]:
    (tmp_path / "store.db").write_bytes(sqlite_template.read_bytes())
    own_file(tmp_path / "store.db").write([KEY])
    runner = Runner(warm, SystemClock(), warehouse=warehouse)
    made = Coordinators([f"sqlite:///{tmp_path}/store.db"], tmp_path / "home", runner)
    yield made
    made.close()


def test_a_job_runs_through_all_three(
    installed: Path, coordinators: Coordinators, tmp_path: Path
) -> None:
    path = tmp_path / "toy.db"
    with closing(sqlite3.connect(path)) as database, database:
        database.execute("CREATE TABLE people (id INTEGER, name TEXT)")
        database.executemany("INSERT INTO people VALUES (?, ?)", [(1, "ann"), (2, "bo")])
    place = {"plugin_name": "ToySqlite", "path": str(path)}
    job = {
        "env": {"job.mode": "BATCH"},
        "source": [
            {
                **place,
                "table": "people",
                "plugin_output": "a",
                "schema": {"fields": {"id": "bigint", "name": "string"}},
            }
        ],
        "transform": [
            {
                "plugin_name": "ToyUpper",
                "fields": ["name"],
                "plugin_input": ["a"],
                "plugin_output": "b",
            }
        ],
        "sink": [{**place, "table": "shouted", "plugin_input": ["b"]}],
    }

    done = coordinators.run(json.dumps(job))

    assert rows_in(path, "shouted") == [(1, "ANN"), (2, "BO")]
    assert (done.rows_in, done.rows_out) == (2, 2)
    assert rows_in(path, "headrace_stage") == []
