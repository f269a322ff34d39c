"""Tables as they may stand, for tests of what is said about them."""

from __future__ import annotations

from dataclasses import replace

from headrace.coordinator.tables.obstacles import Slots, TableSnapshot
from headrace.model.tables.evaluation import RuleUnit
from headrace.model.tables.status import OptimizingType, ProcessStatus, TableStatus
from headrace.protocol.tables import PartitionReport, Pending, RuleReport, Summary
from headrace.store.tables.catalogs import Catalog
from headrace.store.tables.lake_tables import LakeTable
from headrace.store.tables.processes import Process

NOW = 1_700_000_000_000


MINUTE = 60_000


RULE = RuleReport(
    type="MINOR",
    name="self-optimizing.minor.trigger.file-count",
    said="fragments and equality delete files",
    measured=3,
    threshold=12,
    fired=False,
)


WAITED = RuleReport(
    type="FULL",
    name="self-optimizing.full.trigger.interval",
    unit=RuleUnit.MILLISECONDS,
    said="time since the last full, with 3 delete files or files to merge",
    measured=0,
    threshold=-1,
    fired=False,
)


UNDERSIZED = RuleReport(
    type="MAJOR",
    name="self-optimizing.target-size",
    unit=RuleUnit.BYTES,
    said="data in undersized files, whose two smallest (9 bytes) must fit into one",
    measured=130_000_000,
    threshold=134_217_728,
    fired=False,
)


SUMMARY = Summary(
    partitions=2,
    due=0,
    files=1240,
    bytes=3_400_000_000,
    rows=12_000_000,
    position_deletes=2,
    equality_deletes=0,
    score=97,
    amoro_score=80,
    most=(
        PartitionReport(
            partition="day=2026-01-31",
            type=None,
            files=3,
            bytes=9,
            rules=(RULE, WAITED, UNDERSIZED),
        ),
    ),
)


PENDING = Pending(
    type="MAJOR",
    snapshot=1,
    partitions=3,
    told=(),
    files=412,
    bytes=1_200_000_000,
    position_deletes=2,
    equality_deletes=0,
    files_after=11,
    bytes_after=1_100_000_000,
    benefit=1.0,
)


def table(status: TableStatus = TableStatus.IDLE, **changed: object) -> LakeTable:
    made = LakeTable(
        id="t1",
        catalog="lake",
        namespace=("sales",),
        name="orders",
        identifier="lake.sales.orders",
        created_at_ms=NOW - 100 * MINUTE,
        wanted_paused=False,
        wanted_type=None,
        status=status,
        status_since_ms=NOW - 3 * MINUTE,
        process_id=None,
        processes=7,
        task_id=None,
        due_at_ms=NOW + MINUTE // 2,
        interval_ms=MINUTE,
        planned_at_ms=None,
        not_before_ms=0,
        failures=0,
        error=None,
        error_kind=None,
        uuid="u",
        pointer="p",
        snapshot=1,
        evaluated_at_ms=NOW - MINUTE // 2,
        look_at_ms=None,
        optimized_snapshot=None,
        optimized_at_ms=None,
        group="default",
        enabled=True,
        quota=0.5,
        min_plan_interval_ms=MINUTE,
        pending_since_ms=NOW - 3 * MINUTE if status is TableStatus.PENDING else None,
        benefit=0.0,
    )
    return replace(made, **changed)  # pyright: ignore[reportArgumentType]


def catalog(**changed: object) -> Catalog:
    made = Catalog(
        name="lake",
        type="rest",
        properties={},
        defaults={},
        table_filter=None,
        group="default",
        created_at_ms=0,
        wanted_removed=False,
        due_at_ms=NOW + MINUTE,
        task_id=None,
        discovered_at_ms=NOW - MINUTE,
        failures=0,
        error=None,
    )
    return replace(made, **changed)  # pyright: ignore[reportArgumentType]


def process(status: ProcessStatus = ProcessStatus.RUNNING, **changed: object) -> Process:
    made = Process(
        id="p4",
        table_id="t1",
        identifier="lake.sales.orders",
        number=4,
        type=OptimizingType.MAJOR,
        status=status,
        group="default",
        wanted_cancel=False,
        uuid="u",
        snapshot=1,
        commit_task=None,
        settling_since_ms=None,
        error=None,
        leftovers=False,
        discard_task=None,
        discard_at_ms=None,
        discard_failures=0,
        created_at_ms=NOW - MINUTE,
        ended_at_ms=None if status is ProcessStatus.RUNNING else NOW,
    )
    return replace(made, **changed)  # pyright: ignore[reportArgumentType]


def standing(of: LakeTable | None = None, **changed: object) -> TableSnapshot:
    made = TableSnapshot(
        table=of or table(),
        catalog=catalog(),
        groups={"default": 4},
        slots=Slots(total=4),
        summary=SUMMARY,
    )
    return replace(made, **changed)  # pyright: ignore[reportArgumentType]
