"""The warm session: tasks don't disturb each other, and can be stopped one by one."""

from __future__ import annotations

import contextlib
import threading

import pytest
from py4j.protocol import Py4JJavaError  # pyright: ignore[reportMissingTypeStubs]
from pyspark.sql import SparkSession

from headrace.worker.warm_session import WarmSpark, task_session
from tests.crash.cluster import until
from tests.spark.lake import Lake, sql

SLOW = "reflect('java.lang.Thread', 'sleep', 200L)"  # in the JVM: a job that lasts
WAIT_S = 240


def test_a_task_does_not_see_the_views_and_settings_of_another(warm: WarmSpark) -> None:
    with task_session(warm, "one") as one, task_session(warm, "other") as other:
        one.range(1).createOrReplaceTempView("mine")
        one.conf.set("spark.sql.caseSensitive", "true")

        assert one.catalog.tableExists("mine")
        assert not other.catalog.tableExists("mine")
        assert other.conf.get("spark.sql.caseSensitive") == "false"


def test_a_task_sees_what_another_committed_after_it_had_read_the_table(
    lake: Lake, warm: WarmSpark
) -> None:
    with task_session(warm, "reader") as reader:
        assert sql(reader, f"SELECT count(*) AS n FROM {lake.table}")[0]["n"] == 0
        lake.append_foreign(first=1)
        assert sql(reader, f"SELECT count(*) AS n FROM {lake.table}")[0]["n"] == 1


def test_a_thread_takes_neither_tag_nor_pool_into_its_next_task(warm: WarmSpark) -> None:
    context = warm.session.sparkContext
    with task_session(warm, "first"):
        assert set(context.getJobTags()) == {"first"}
        with_pool = context.getLocalProperty("spark.scheduler.pool")
    assert set(context.getJobTags()) == set()
    assert with_pool != context.getLocalProperty("spark.scheduler.pool")


def test_tasks_that_run_at_once_have_pools_of_their_own_which_are_used_again(
    warm: WarmSpark,
) -> None:
    one, other = warm.take_pool(), warm.take_pool()
    assert one != other
    warm.give_pool_back(one)
    assert warm.take_pool() == one
    warm.give_pool_back(one)
    warm.give_pool_back(other)


def _long_job(session: SparkSession, rows: int = 10_000) -> None:
    frame = session.range(0, rows, 1, 1).selectExpr(f"{SLOW} as waited")
    frame.write.format("noop").mode("overwrite").save()


def test_cancelling_stops_the_jobs_of_one_task_only(warm: WarmSpark) -> None:
    ends: dict[str, str] = {}
    started = {name: threading.Event() for name in ("victim", "other")}

    def run(name: str, rows: int) -> None:
        with task_session(warm, name) as session:
            started[name].set()
            with contextlib.suppress(Py4JJavaError):
                ends[name] = "was cancelled"
                _long_job(session, rows)
                ends[name] = "ended"

    victim = threading.Thread(target=run, args=("victim", 10_000), daemon=True)
    other = threading.Thread(target=run, args=("other", 3), daemon=True)
    for thread in (victim, other):
        thread.start()
    for event in started.values():
        assert event.wait(WAIT_S)
    for _ in range(WAIT_S * 10):  # it only hits jobs that already run, so it is repeated
        warm.cancel("victim")
        victim.join(timeout=0.1)
        if not victim.is_alive():
            break
    other.join(timeout=WAIT_S)

    assert ends == {"victim": "was cancelled", "other": "ended"}


def test_rows_are_counted_while_a_job_runs(warm: WarmSpark) -> None:
    assert warm.rows_written("counted") is None
    over = threading.Event()

    def run() -> None:
        with task_session(warm, "counted") as session:
            try:
                frame = session.range(0, 3000, 1, 2)
                frame = frame.selectExpr("id", "reflect('java.lang.Thread', 'sleep', 2L)")
                frame.write.format("noop").mode("overwrite").save()
            finally:
                over.set()

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    seen: set[int] = set()
    while not over.wait(0.1):
        seen.add(warm.rows_written("counted") or 0)
    thread.join(timeout=WAIT_S)

    assert any(0 < rows < 3000 for rows in seen), seen
    until(  # Spark's listener hears of the end a little late
        lambda: warm.rows_written("counted") is None, limit_s=WAIT_S, what="no job is counted"
    )


@pytest.mark.parametrize("key", ["spark.scheduler.mode", "spark.sql.session.timeZone"])
def test_the_session_is_fair_and_in_utc(warm: WarmSpark, key: str) -> None:
    assert warm.session.conf.get(key) in {"FAIR", "UTC"}
