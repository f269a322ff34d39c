"""Jars that are added to a JVM which runs: their sources and drivers can be used at once."""

from __future__ import annotations

import shutil
import subprocess
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from py4j.protocol import Py4JJavaError  # pyright: ignore[reportMissingTypeStubs]
from pyspark.sql import SparkSession

from headrace.clock import SystemClock
from headrace.model.jobs.spec import EnvSpec
from headrace.model.task import TaskKind
from headrace.plugins.jars import JarCoordinates
from headrace.protocol.messages import Restore, TaskEnded, TaskGivenBack
from headrace.spark.installation import find_spark
from headrace.spark.jar_cache import JarCache
from headrace.worker.jars import JarRequest, WorkerJars
from headrace.worker.runner import Runner
from headrace.worker.warm_session import WarmSpark, task_session
from tests.spark.maven import Maven, jar_bytes
from tests.spark.worker.test_runner import Bench
from tests.worker.test_jars import execution

JAVAC_MAX_S = 120
TOY, PART = "org.toy:counter:1", "org.toy:numbers:1"
DRIVER = """
package toy;
import java.sql.*;
public class CounterDriver implements Driver {
  public Connection connect(String url, java.util.Properties p) throws SQLException {
    throw new SQLException("counted to " + Numbers.LAST + " for " + url);
  }
  public boolean acceptsURL(String url) { return url.startsWith("jdbc:counter:"); }
  public DriverPropertyInfo[] getPropertyInfo(String u, java.util.Properties p) { return null; }
  public int getMajorVersion() { return 1; }
  public int getMinorVersion() { return 0; }
  public boolean jdbcCompliant() { return false; }
  public java.util.logging.Logger getParentLogger() { return null; }
}
"""
NUMBERS = "package toy; public class Numbers { public static final Integer LAST = 6; }"
SOURCE = """
package toy;
import java.util.*;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.expressions.GenericInternalRow;
import org.apache.spark.sql.connector.catalog.*;
import org.apache.spark.sql.connector.expressions.Transform;
import org.apache.spark.sql.connector.read.*;
import org.apache.spark.sql.sources.DataSourceRegister;
import org.apache.spark.sql.types.*;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;
public class Counter implements TableProvider, DataSourceRegister {
  static final StructType COLUMNS = new StructType().add("n", DataTypes.IntegerType);
  public String shortName() { return "counter"; }
  public StructType inferSchema(CaseInsensitiveStringMap o) { return COLUMNS; }
  public Table getTable(StructType s, Transform[] t, Map<String, String> p) { return new T(); }
  static class T implements Table, SupportsRead {
    public String name() { return "counter"; }
    public StructType schema() { return COLUMNS; }
    public Set<TableCapability> capabilities() { return EnumSet.of(TableCapability.BATCH_READ); }
    public ScanBuilder newScanBuilder(CaseInsensitiveStringMap o) { return S::new; }
  }
  static class S implements Scan, Batch {
    public StructType readSchema() { return COLUMNS; }
    public Batch toBatch() { return this; }
    public InputPartition[] planInputPartitions() {
      return new InputPartition[] {new P(0), new P(3)};
    }
    public PartitionReaderFactory createReaderFactory() { return new F(); }
  }
  static class P implements InputPartition {
    final int first;
    P(int first) { this.first = first; }
  }
  static class F implements PartitionReaderFactory {
    public PartitionReader<InternalRow> createReader(InputPartition p) {
      return new R(((P) p).first);
    }
  }
  static class R implements PartitionReader<InternalRow> {
    int n, last;
    R(int first) { n = first - 1; last = Math.min(first + 3, Numbers.LAST); }
    public boolean next() { return ++n < last; }
    public InternalRow get() { return new GenericInternalRow(new Object[] {n}); }
    public void close() {}
  }
}
"""
SERVICE = "META-INF/services/org.apache.spark.sql.sources.DataSourceRegister"


@pytest.fixture(scope="module")
def maven(tmp_path_factory: pytest.TempPathFactory) -> Maven:
    """A source of rows and a driver in one jar, and a class that they need in another."""
    javac = shutil.which("javac")
    if javac is None:
        pytest.skip("there is no javac on PATH to make a jar with; install a JDK")
    folder = tmp_path_factory.mktemp("java")
    sources = {"CounterDriver": DRIVER, "Numbers": NUMBERS, "Counter": SOURCE}
    for name, text in sources.items():
        (folder / f"{name}.java").write_text(text)
    subprocess.run(
        [javac, "-nowarn", "-cp", f"{find_spark()}/jars/*", "-d", str(folder / "out")]
        + [str(folder / f"{name}.java") for name in sources],
        check=True,
        timeout=JAVAC_MAX_S,
        capture_output=True,
    )
    made = {f"toy/{p.name}": p.read_bytes() for p in (folder / "out" / "toy").iterdir()}
    numbers = {"toy/Numbers.class": made.pop("toy/Numbers.class")}
    repository = Maven(folder / "maven")
    repository.publish(PART, content=jar_bytes(numbers))
    counter = jar_bytes({**made, SERVICE: b"toy.Counter\n"})
    repository.publish(TOY, needs=[PART], content=counter)
    return repository


def in_a_session(warm: WarmSpark, name: str, run: Callable[[SparkSession], None]) -> None:
    """As tasks do: in a thread of its own, which the JVM has not seen before."""
    failed: list[BaseException] = []

    def main() -> None:
        try:
            with task_session(warm, name) as session:
                run(session)
        except BaseException as error:  # noqa: BLE001  raised below
            failed.append(error)

    thread = threading.Thread(target=main)
    thread.start()
    thread.join()
    if failed:
        raise failed[0]


def count(session: SparkSession) -> None:
    assert {row.n for row in session.read.format("counter").load().collect()} == set(range(6))


def connect(session: SparkSession) -> None:
    options = {"url": "jdbc:counter:x", "driver": "toy.CounterDriver", "dbtable": "t"}
    with pytest.raises(Py4JJavaError, match="counted to 6 for jdbc:counter:x"):
        session.read.format("jdbc").options(**options).load()


def test_what_was_added_serves_every_thread_and_every_task_at_once(
    warm: WarmSpark, maven: Maven, tmp_path: Path
) -> None:
    jars = WorkerJars(JarCache(tmp_path, ivy_settings=maven.settings), warm.add_jars)
    with pytest.raises(Py4JJavaError, match="DATA_SOURCE_NOT_FOUND"):
        in_a_session(warm, "before", count)

    jars.provide([JarRequest("source Counter-1", (JarCoordinates(TOY),))], execution())

    in_a_session(warm, "source", count)
    in_a_session(warm, "driver", connect)


def test_a_task_whose_jars_are_not_allowed_is_given_back_before_it_begins(
    warm: WarmSpark, maven: Maven, tmp_path: Path
) -> None:
    bench = Bench(warm, tmp_path)
    jars = WorkerJars(JarCache(tmp_path, ivy_settings=maven.settings), warm.add_jars)
    bench.runner = Runner(warm, SystemClock(), warehouse="file:/nowhere", jars=jars)
    bench.run(TaskKind.PIPELINE, Restore(), env=EnvSpec(other={"jars": [TOY]}))

    end = bench.said.pop()
    assert isinstance(end, TaskGivenBack)
    assert f"job 'j1' asks for {TOY} in env.jars, and this worker allows none" in end.reason
    assert bench.said == [], "nothing was planned"

    bench.run(TaskKind.SETTLE, Restore(), env=EnvSpec(other={"jars": [TOY]}))

    settled = bench.said.pop()
    assert isinstance(settled, TaskEnded), "what a job left waits for nobody who allows its jars"
    assert settled.outcome == "SUCCESS"
