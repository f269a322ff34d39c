"""One warm session for all tests of this folder, and a table of its own for each test."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession

from headrace.config import Settings
from headrace.worker.warm_session import WarmSpark, start_spark, task_session
from tests.postgresql import PostgreSQL
from tests.spark.base import Base
from tests.spark.lake import Lake
from tests.spark.standalone import QUICK_JVM


def pytest_itemcollected(item: pytest.Item) -> None:
    item.add_marker(pytest.mark.spark)
    # pyspark's collect() leaves its socket to the garbage collector, every time.
    item.add_marker(pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning"))


@pytest.fixture(scope="session")
def warehouse(tmp_path_factory: pytest.TempPathFactory) -> str:
    return f"file:{tmp_path_factory.mktemp('warehouse')}"


@pytest.fixture(scope="session")
def warm(warehouse: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[WarmSpark]:
    spark = start_spark(
        Settings(),
        warehouse=warehouse,
        master="local[2,3]",  # a failed task is tried again, as it is on a cluster
        conf={
            "spark.sql.shuffle.partitions": "2",
            # Each test's queries run once: to optimize their code costs more than it saves.
            "spark.driver.extraJavaOptions": QUICK_JVM,
        },
        log_file=tmp_path_factory.mktemp("logs") / "jvm.log",
    )
    yield spark
    spark.stop()


@pytest.fixture
def session(warm: WarmSpark, request: pytest.FixtureRequest) -> Iterator[SparkSession]:
    with task_session(warm, f"test-{abs(hash(request.node.nodeid))}") as made:
        yield made


@pytest.fixture
def lake(session: SparkSession, warehouse: str) -> Lake:
    return Lake(session, warehouse)


@pytest.fixture
def base(session: SparkSession, postgresql: PostgreSQL) -> Iterator[Base]:
    """A database of its own, and a way to it that can be cut."""
    made = Base(session, postgresql)
    yield made
    made.close()
