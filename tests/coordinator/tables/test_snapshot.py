"""What is explained is read from the rows that decide; and whatever they say, it is explained."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from sqlalchemy import Engine

from headrace.coordinator.tables.explain import MOVING, explain
from headrace.coordinator.tables.obstacles import (
    FindingVerdict,
    RewriteProgress,
    Slots,
    TableSnapshot,
    Turn,
    UnderWay,
    read_snapshot,
)
from headrace.model.tables.schedule import SchedulingPolicy
from headrace.model.tables.status import OptimizingType, ProcessStatus, TableStatus
from headrace.model.task import TaskKind, TaskStatus
from headrace.protocol.tables import RuleReport
from headrace.store.core.engine import reading, writing
from headrace.store.tables import lake_tables as blocker_rows
from headrace.store.tables.lake_tables import Blocker
from headrace.store.tasks import workers
from headrace.store.tasks.workers import Worker
from tests.coordinator.tables.lake_rows import LakeRows
from tests.coordinator.tables.snapshots import (
    PENDING,
    RULE,
    SUMMARY,
    UNDERSIZED,
    WAITED,
    catalog,
    process,
    table,
)
from tests.examples import examples
from tests.fakes import FakeClock

TEXT = st.text(max_size=10)


TIMES = st.integers(min_value=0, max_value=2**43)


COUNTS = st.integers(min_value=0, max_value=10**6)


MAYBE = st.none() | TIMES


RULES = st.builds(
    RuleReport,
    type=st.sampled_from(["MINOR", "MAJOR", "FULL"]),
    name=TEXT,
    said=st.sampled_from([RULE.said, WAITED.said, UNDERSIZED.said, ""]),
    measured=st.floats(allow_nan=False, allow_infinity=False, min_value=-(2**60), max_value=2**60),
    threshold=st.floats(-10, 10**15),
    fired=st.booleans(),
)


TABLES = st.builds(
    table,
    st.sampled_from(TableStatus),
    wanted_paused=st.booleans(),
    enabled=st.booleans(),
    wanted_type=st.none() | st.sampled_from(OptimizingType),
    process_id=st.sampled_from([None, "p4"]),
    due_at_ms=TIMES,
    interval_ms=TIMES,
    planned_at_ms=MAYBE,
    not_before_ms=TIMES,
    failures=COUNTS,
    error=st.none() | TEXT,
    evaluated_at_ms=MAYBE,
    look_at_ms=MAYBE,
    pending_since_ms=MAYBE,
    status_since_ms=TIMES,
    min_plan_interval_ms=st.integers(-1, 2**43),
    group=st.sampled_from(["default", "etl"]),
)


PROCESSES = st.builds(
    process,
    st.sampled_from(ProcessStatus),
    settling_since_ms=MAYBE,
    error=st.none() | TEXT,
    ended_at_ms=MAYBE,
)


STANDINGS = st.builds(
    TableSnapshot,
    table=TABLES,
    catalog=st.none()
    | st.builds(
        catalog,
        wanted_removed=st.booleans(),
        failures=COUNTS,
        error=st.none() | TEXT,
        discovered_at_ms=MAYBE,
        group=st.sampled_from(["default", "etl"]),
    ),
    groups=st.dictionaries(st.sampled_from(["default", "etl", "big"]), COUNTS),
    slots=st.builds(Slots, COUNTS, COUNTS, COUNTS, st.booleans()),
    turn=st.none()
    | st.builds(Turn, st.sampled_from(SchedulingPolicy), st.none() | st.integers(1, 9), COUNTS),
    process=st.none() | PROCESSES,
    progress=st.builds(
        RewriteProgress, COUNTS, COUNTS, COUNTS, COUNTS, st.lists(TEXT, max_size=3).map(tuple)
    ),
    under_way=st.none() | st.builds(UnderWay, st.sampled_from(TaskKind), st.none() | TEXT),
    last=st.none() | PROCESSES,
    blockers=st.lists(st.builds(Blocker, TEXT, TEXT, TEXT, TIMES, TIMES), max_size=2),
    flaws=st.lists(st.text(min_size=1, max_size=10), max_size=2),
    left_out=st.lists(TEXT, max_size=5),
    pending=st.sampled_from([None, PENDING]),
    summary=st.none()
    | st.lists(RULES, max_size=3).map(
        lambda rules: SUMMARY.model_copy(
            update={"most": (SUMMARY.most[0].model_copy(update={"rules": tuple(rules)}),)}
        )
    ),
)


@examples(300)
@given(seen=STANDINGS, now_ms=TIMES)
def test_every_standing_is_explained(seen: TableSnapshot, now_ms: int) -> None:
    told = explain(seen, now_ms)

    assert told.headline.startswith(seen.table.identifier)
    assert told.findings
    assert all(each.text and each.about for each in told.findings)
    assert all(each.way_out for each in told.findings if each.verdict is FindingVerdict.BLOCKS)
    blocking = [each for each in told.findings if each.verdict is FindingVerdict.BLOCKS]
    if blocking:
        assert told.headline.endswith(blocking[0].text)
        if seen.table.status not in MOVING:
            assert "not being" in told.headline or "waits" in told.headline


def read(store: Engine, lakes: LakeRows, table_id: str, *, now_ms: int) -> TableSnapshot:
    with reading(store) as conn:
        table = lakes.read(table_id)
        return read_snapshot(conn, table, policy=SchedulingPolicy.QUOTA, now_ms=now_ms)


def register_a_worker(store: Engine, *, now_ms: int) -> None:
    with writing(store) as conn:
        workers.register(conn, Worker("w1", "default", 4, 4, "1", "h", 1, "app", now_ms, now_ms))


def test_a_pending_table_is_read_from_the_rows_that_decide(store: Engine, clock: FakeClock) -> None:
    now_ms = clock.wall_ms()
    lakes = LakeRows(store, now_ms=now_ms)
    register_a_worker(store, now_ms=now_ms)
    first = lakes.table("first", TableStatus.PENDING, pending_since_ms=now_ms - 9)
    table_id = lakes.table(
        "t",
        TableStatus.PENDING,
        pending_since_ms=now_ms - 1,
        pending=PENDING.model_dump(mode="json"),
        summary=SUMMARY.model_dump(mode="json"),
        flaws=["a flaw"],
        file_failures={"bad.parquet": 3, "good.parquet": 2},
    )
    lakes.process(table_id, ProcessStatus.FAILED, error="disk full")

    seen = read(store, lakes, table_id, now_ms=now_ms)

    before = read(store, lakes, first, now_ms=now_ms)
    assert before.turn == Turn(SchedulingPolicy.QUOTA, 1, 2)
    assert seen.turn == Turn(SchedulingPolicy.QUOTA, 2, 2)
    assert (seen.pending, seen.summary) == (PENDING, SUMMARY)
    assert (seen.flaws, seen.left_out) == (["a flaw"], ["bad.parquet"])
    assert seen.last is not None
    assert seen.last.error == "disk full"


def test_a_table_at_work_is_read_from_the_rows_that_decide(store: Engine, clock: FakeClock) -> None:
    now_ms = clock.wall_ms()
    lakes = LakeRows(store, now_ms=now_ms)
    register_a_worker(store, now_ms=now_ms)
    busy = lakes.table("busy", TableStatus.MINOR_OPTIMIZING)
    running = lakes.process(busy, rewrites=[TaskStatus.SUCCESS, TaskStatus.ACKED])
    lakes.name_process(busy, running)
    with writing(store) as conn:
        blocker_rows.block(conn, busy, "load", reason="r", until_ms=now_ms + 1, now_ms=now_ms)

    seen = read(store, lakes, busy, now_ms=now_ms)

    assert (seen.slots, seen.groups) == (Slots(4, 0, 1), {"default": 4})
    assert seen.progress == RewriteProgress(total=2, done=1, running=1, workers=("w1",))
    assert seen.process is not None
    assert seen.process.id == running
    assert [each.name for each in seen.blockers] == ["load"]


def test_a_measure_of_another_version_is_as_if_nobody_had_looked(
    store: Engine, clock: FakeClock
) -> None:
    lakes = LakeRows(store, now_ms=clock.wall_ms())
    table_id = lakes.table(summary={"score": "what"}, pending={"type": "HUGE"})

    seen = read(store, lakes, table_id, now_ms=clock.wall_ms())

    assert (seen.pending, seen.summary) == (None, None)
    assert explain(seen, clock.wall_ms()).findings
