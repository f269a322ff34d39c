"""Tables are found and looked at: each for itself, and only as closely as it takes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from headrace.errors import Refused, Unavailable
from headrace.lake.catalog import TableRef
from headrace.lake.iceberg.catalogs import identifier, local_path, open_catalog
from headrace.lake.iceberg.table_format import IcebergFormat
from headrace.model.tables.files import TableFiles
from headrace.model.task import TaskKind
from headrace.protocol.tables import (
    CatalogSpec,
    Clocks,
    EvaluatePayload,
    TableIdentifier,
    ToEvaluate,
)
from headrace.worker.execution import ExecutionStopped
from headrace.worker.warm_session import WarmSpark
from tests.spark.lake import some, sql
from tests.spark.table_stand import EMBEDDED, NOW_MS, Tasks, again, name_of
from tests.spark.written import Written, six_files

HOUR_MS = 3_600_000
AWAY = CatalogSpec(
    name="away",
    type="jdbc",
    properties={
        "uri": "jdbc:postgresql://127.0.0.1:1/none",
        "warehouse": "file:/nowhere",
        "jdbc.password": "******",
    },
)
SECRETS = {"away.jdbc.password": "s3cr3t"}


@pytest.fixture
def tasks(warm: WarmSpark, warehouse: str) -> Tasks:
    return Tasks(warm, warehouse)


@pytest.fixture
def written(session: SparkSession, warehouse: str) -> Written:
    return six_files(session, warehouse)


def test_tables_are_found_in_namespaces_of_any_depth_and_views_are_none(
    tasks: Tasks, session: SparkSession, written: Written
) -> None:
    sql(session, "CREATE NAMESPACE IF NOT EXISTS headrace.deep")
    sql(session, "CREATE NAMESPACE IF NOT EXISTS headrace.deep.er")
    sql(session, "CREATE TABLE IF NOT EXISTS headrace.deep.er.`o'dd` (id int) USING iceberg")
    sql(session, f"CREATE VIEW headrace.deep.seen AS SELECT * FROM {written.name}")

    everything = tasks.discover()
    some_of_it = tasks.discover(r"deep\..*")

    assert written.ref.name in everything.tables["tests"]
    assert everything.tables["deep\x1fer"] == ("o'dd",)
    assert (everything.tables["deep"], everything.failed, everything.filtered) == ((), {}, 0)
    assert [name for names in some_of_it.tables.values() for name in names] == ["o'dd"]
    assert some_of_it.filtered == sum(map(len, everything.tables.values())) - 1


@pytest.mark.parametrize("bad", ["tests.(", "x" * 501])
def test_a_filter_that_can_not_be_used_is_refused_with_the_way_out(tasks: Tasks, bad: str) -> None:
    with pytest.raises(Refused, match=r"the filter of catalog 'headrace' .* --filter REGEX"):
        tasks.discover(bad)


def test_a_catalog_that_is_away_is_named_and_no_table_is_blamed(tasks: Tasks) -> None:
    table = ToEvaluate(table=TableIdentifier(id="t1", namespace=("a",), name="b"))

    with pytest.raises(Unavailable, match=r"catalog 'away' .*headrace catalog show away"):
        tasks.discover(catalog=AWAY, secrets=SECRETS)
    with pytest.raises(Refused, match=r"'jdbc\.password' of catalog 'away' is redacted"):
        tasks.discover(catalog=AWAY)
    with pytest.raises(Refused, match="of type 'ftp', which this worker does not know"):
        tasks.discover(catalog=AWAY.model_copy(update={"type": "ftp"}))
    reached = AWAY.model_copy(update={"properties": {**AWAY.properties, "jdbc.password": "x"}})
    found = tasks.evaluate(table, catalog=reached)
    assert found.tables == ()
    assert "catalog 'away'" in (found.catalog_error or "")


def test_a_catalog_of_files_is_reached_with_hadoops_own_settings(
    tasks: Tasks, tmp_path: Path
) -> None:
    """And while its folder is away, its tables are not taken for dropped."""
    home = tmp_path / "lake"
    catalog = CatalogSpec(
        name="files",
        type="hadoop",
        properties={"warehouse": f"file:{home}", "hadoop.fs.file.impl.disable.cache": "true"},
    )
    (home / "sales").mkdir(parents=True)
    table = ToEvaluate(table=TableIdentifier(id="t1", namespace=("sales",), name="none"))

    assert tasks.discover(catalog=catalog).tables == {"sales": ()}
    assert [one.gone for one in tasks.evaluate(table, catalog=catalog).tables] == [True]
    home.rename(tmp_path / "away")
    found = tasks.evaluate(table, catalog=catalog)
    assert (found.tables, "catalog 'files'" in (found.catalog_error or "")) == ((), True)


def test_broken_tables_are_told_each_with_its_reason_and_the_others_are_evaluated(
    tasks: Tasks, session: SparkSession, warehouse: str, written: Written
) -> None:
    corrupt, missing, filtered, dropped = (Written(session, warehouse) for _ in range(4))
    corrupt.append(0)
    (listed,) = _metadata(corrupt).glob("snap-*.avro")
    listed.write_text("{ not avro")
    some(local_path(tasks.look(missing).pointer or "")).unlink()
    filtered.append(0)
    filtered.sql("ALTER TABLE {t} SET TBLPROPERTIES ('self-optimizing.filter'='nobody = 1')")
    dropped.sql("DROP TABLE {t}")
    every = (corrupt, missing, filtered, dropped, written)

    found = tasks.evaluate(*(ToEvaluate(table=name_of(one)) for one in every))

    assert found.catalog_error is None
    errors = [one.error or "" for one in found.tables]
    assert f"{corrupt.ref} can't be read" in errors[0]
    assert "metadata may be damaged" in errors[0]
    assert "a file of its metadata is missing" in errors[1]
    assert "self-optimizing.filter" in errors[2]
    assert "(id, p, name)" in errors[2]
    assert [one.gone for one in found.tables] == [False, False, False, True, False]
    assert found.tables[4].pending is not None
    for one in (corrupt, missing):  # what can't be read can't be dropped by SQL
        _forget(one)


def _metadata(written: Written) -> Path:
    return some(local_path(f"{written.table.location()}/metadata"))


def _forget(written: Written) -> None:
    catalog = open_catalog(written.session, written.ref.catalog)
    catalog.dropTable(identifier(written.session, written.ref), False)  # noqa: FBT003


def test_a_task_that_is_told_to_stop_ends_between_two_steps(tasks: Tasks, written: Written) -> None:
    told = EvaluatePayload(
        catalog=EMBEDDED, now_ms=NOW_MS, tables=(ToEvaluate(table=name_of(written)),)
    )
    stopped = tasks.execution(TaskKind.EVALUATE, told)
    stopped.stop()
    with pytest.raises(ExecutionStopped):
        tasks.runner.run(stopped)
    alive = tasks.execution(TaskKind.EVALUATE, told)
    before = alive.activity
    tasks.runner.run(alive)
    assert alive.activity >= before + 3  # the step, a page of files, the end of the look
    assert alive.progress.step == f"evaluating {written.ref} (1 of 1)"


def test_a_table_that_did_not_change_is_not_scanned_until_time_may_fire_a_rule(
    tasks: Tasks, written: Written, monkeypatch: pytest.MonkeyPatch
) -> None:
    scans: list[str] = []
    scan = IcebergFormat.scan

    def watched(
        self: IcebergFormat, session: SparkSession, ref: TableRef, **more: Any
    ) -> TableFiles:
        scans.append(str(ref))
        return scan(self, session, ref, **more)

    monkeypatch.setattr(IcebergFormat, "scan", watched)
    done: Clocks = {
        "0/p=0": (NOW_MS, None, None, None),
        "0/p=1": (NOW_MS + 5, None, None, None),
    }
    first = tasks.look(ToEvaluate(table=name_of(written), clocks=done))
    assert (first.pending, first.seen, len(scans)) == (None, (), 1)
    assert first.look_at_ms == NOW_MS + HOUR_MS + 1

    asked = again(written, first, clocks=done)
    same = tasks.look(asked, now_ms=NOW_MS + HOUR_MS)
    assert (same.unchanged, same.pointer, same.look_at_ms, len(scans)) == (
        True,
        first.pointer,
        first.look_at_ms,
        1,
    )
    due = tasks.look(asked, now_ms=NOW_MS + HOUR_MS + 1)
    assert (due.unchanged, some(due.pending).partitions, len(scans)) == (False, 1, 2)
    assert due.look_at_ms == NOW_MS + HOUR_MS + 6
    written.append(30)
    changed = tasks.look(asked, now_ms=NOW_MS + 1)
    assert (changed.unchanged, len(scans), changed.snapshot) == (False, 3, written.scan().snapshot)


def test_a_summary_tells_the_neediest_partitions_with_all_their_rules(
    tasks: Tasks, written: Written
) -> None:
    written.append(100, 1)  # one more, in p=0
    written.sql("ALTER TABLE {t} SET TBLPROPERTIES ('self-optimizing.quota'='much')")

    group, quota = "self-optimizing.group", "self-optimizing.quota"
    found = tasks.look(written, defaults={group: "night"}, groups={"night": {quota: "3"}})

    assert (found.chosen.group, found.chosen.quota) == ("night", 3)
    assert "self-optimizing.quota is 'much'" in found.flaws[0]
    summary = some(found.summary)
    assert (summary.set_by[group], summary.set_by[quota]) == ("catalog", "group")
    assert (summary.partitions, summary.due, summary.files, summary.rows) == (2, 2, 7, 31)
    assert [one.partition for one in summary.most] == ["p=0 (spec 0)", "p=1 (spec 0)"]
    assert {rule.name for rule in summary.most[0].rules if rule.fired} == {
        "self-optimizing.minor.trigger.interval"
    }
    assert len(summary.most[0].rules) == 6


def test_a_partition_that_is_new_and_not_due_is_told_once_to_be_timed(
    tasks: Tasks, session: SparkSession, warehouse: str
) -> None:
    written = Written(session, warehouse, partitioned="p")
    written.append(0, 2)  # a file in each of two partitions

    first = tasks.look(written)

    assert (first.pending, first.look_at_ms) == (None, None)
    assert first.seen == ("0/p=0", "0/p=1")
    clocks: Clocks = dict.fromkeys(first.seen, (None, None, None, NOW_MS))
    written.append(2, 1)  # a second one in p=0: it waits from the first sight of the partition
    later = tasks.look(again(written, first, clocks=clocks), now_ms=NOW_MS + 60_000)
    assert (later.pending, later.seen) == (None, ())
    assert later.look_at_ms == NOW_MS + HOUR_MS + 1


def test_a_table_that_nobody_optimizes_is_summed_up_without_a_scan(
    tasks: Tasks, written: Written, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(IcebergFormat, "scan", None)  # whoever called it would fail
    found = tasks.look(written, defaults={"self-optimizing.enabled": "false"})

    assert (found.chosen.enabled, found.pending, found.look_at_ms) == (False, None, None)
    assert (some(found.summary).files, some(found.summary).rows) == (6, 30)


def test_the_pre_check_spares_a_scan_until_its_interval_is_over(
    tasks: Tasks, written: Written, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of files that are all large enough; looked at closely the first time, and again later."""
    chosen = {
        "self-optimizing.evaluation.fallback-interval": "1h",
        "self-optimizing.target-size": "100",
        "self-optimizing.max-task-size-bytes": "100",
    }
    first = tasks.look(written, defaults=chosen)
    assert (first.pending, first.look_at_ms) == (None, NOW_MS + HOUR_MS)
    written.append(30)
    asked = again(written, first)

    with monkeypatch.context() as patched:
        patched.setattr(IcebergFormat, "scan", None)
        spared = tasks.look(asked, defaults=chosen, now_ms=NOW_MS + 1)
    closely = tasks.look(asked, defaults=chosen, now_ms=NOW_MS + HOUR_MS)

    assert (spared.unchanged, spared.look_at_ms) == (False, NOW_MS + HOUR_MS)
    assert spared.pointer != first.pointer
    assert some(spared.summary).files == 8
    assert (some(closely.summary).partitions, closely.look_at_ms) == (2, NOW_MS + 2 * HOUR_MS)
