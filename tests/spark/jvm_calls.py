"""Try every JVM call that lake/iceberg relies on, on fresh JVMs: a script, not a test.

    python -m tests.spark.jvm_calls [TIMES]

py4j resolves overloaded methods by the order in which a JVM happens to list them, so a call that
worked in one JVM may not in the next. Each round starts one, runs stage, commit, refusal, abort,
sweep, opening, reading, optimizing, cancel and progress in it, and says how long that took.
"""

from __future__ import annotations

import sys
import tempfile
import time

import pytest
from pyspark.sql import SparkSession

from headrace.config import Settings
from headrace.errors import TokenSpent
from headrace.exactly_once.operations import open_target
from headrace.lake.iceberg import replace as optimizing
from headrace.lake.iceberg.catalogs import load_table
from headrace.lake.iceberg.commit_target import IcebergTarget
from headrace.lake.iceberg.creation import TableDefinition
from headrace.lake.iceberg.save_modes import TableOpening, opening_change
from headrace.lake.iceberg.snapshots import history_of, read_appended, read_snapshot
from headrace.lake.iceberg.token import TableCommitAt
from headrace.model.jobs.epoch import EpochAt
from headrace.worker.warm_session import WarmSpark, start_spark, task_session
from tests.spark.lake import Lake, abort, commit, sweep
from tests.spark.written import MERGE_ON_READ, Written

TIMES = 5


def all_calls(warm: WarmSpark, warehouse: str) -> None:
    with task_session(warm, "calls") as session:
        lake = Lake(session, warehouse)
        lost, owner = lake.at(1, "t1.1"), lake.at(1, "t1.2")
        zombie = lake.staged(10, lost)
        handle = lake.staged(10, owner)
        assert not commit(session, lake.ref, handle, owner).already
        assert commit(session, lake.ref, zombie, lost).already
        sweep(session, lake.ref, handle, owner)
        assert not lake.folder(lost).exists()
        aborted = lake.at(2)
        spent = lake.staged(10, aborted)
        abort(session, lake.ref, aborted)
        with pytest.raises(TokenSpent):
            commit(session, lake.ref, spent, aborted)
        assert lake.count() == 10
        opens_and_reads(lake)
        optimizes(session, warehouse)
        warm.cancel("calls")
        assert warm.rows_written("calls") is None
        assert warm.tasks_finished("none") == (-1, 0)


def opens_and_reads(lake: Lake) -> None:
    session = lake.session
    lake.append_foreign(first=5, rows=2)
    history = history_of(session, load_table(session, lake.ref))
    first, *_, last = reversed(list(history.lineage(history.current)))
    table = load_table(session, lake.ref)
    assert read_snapshot(session, table, first.id).count() == 10
    found = read_appended(session, table, after=first.id, until=last.id, schema=history.schema)
    assert found.count() == 2
    columns = lake.frame(1).schema
    opening = TableOpening(
        table=lake.table,
        uuid=str(table.uuid()),
        execution="t1.1",
        columns=columns.jsonValue(),
        recreate=True,
    )
    wanted = TableDefinition(columns=columns, partition_keys=["bucket(id, 4)"])
    at = TableCommitAt(EpochAt("1" * 32, 1, 0, "t1.1"), "Iceberg-1")
    change = opening_change(session, lake.ref, opening, wanted)
    opened = open_target(IcebergTarget(session, lake.ref), at, change)
    assert not opened.already
    assert lake.count() == 0


def optimizes(session: SparkSession, warehouse: str) -> None:
    """Scan, choose, rewrite, replace, conflict and abort, with every kind of delete."""
    for version in ("2", "3"):
        properties = {"format-version": version, **MERGE_ON_READ}
        written = Written(session, warehouse, partitioned="p", properties=properties)
        written.append(0)
        written.append(10)
        written.sql("DELETE FROM {t} WHERE id = 3")
        written.delete_named(["4"], partition="p=0")
        assert len(written.scan("p = 0 AND id < 5").files) == 1
        groups = written.rewritten()
        written.sql("DELETE FROM {t} WHERE id = 6")
        assert len(written.replace(groups).conflicts) == 1
        optimizing.abort(session, written.ref, written.at(2))
        assert written.ids() == [n for n in range(20) if n not in (3, 4, 6)]


def main(times: int) -> None:
    for number in range(1, times + 1):
        with tempfile.TemporaryDirectory() as folder:
            began = time.monotonic()
            warm = start_spark(Settings(), warehouse=f"file:{folder}", master="local[2]")
            started = time.monotonic()
            try:
                all_calls(warm, f"file:{folder}")
            finally:
                called = time.monotonic()
                warm.stop()
            sys.stdout.write(
                f"JVM {number} of {times}: start {started - began:.1f} s, "
                f"calls {called - started:.1f} s, stop {time.monotonic() - called:.1f} s\n"
            )
            sys.stdout.flush()


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else TIMES)
