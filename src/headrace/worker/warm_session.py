"""The warm SparkSession of a worker process, and its JVM.

Session. Each process has one warm session; each task borrows a session of its own from it. The JVM
is started with the jars on its class path (nothing is resolved at start) and with the catalogs set
before the first session (catalogs that are set later are not inherited). Nothing of the JVM
outlives `stop`.

Threads. pyspark pins each Python thread to a JVM thread, and job tags and scheduler pools live on
that JVM thread. So a task enters `task_session` in the very thread that runs its jobs. (pyspark's
InheritableThread would take them along, but it asks the JVM in the thread that starts it.)
"""

from __future__ import annotations

import contextlib
import logging
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

from py4j.protocol import Py4JError  # pyright: ignore[reportMissingTypeStubs]
from pyspark import SparkConf, SparkContext, java_gateway
from pyspark.errors import PySparkRuntimeError
from pyspark.sql import SparkSession

from headrace.clock import SystemClock
from headrace.config import Settings
from headrace.containers.container import JOINED
from headrace.errors import Refused
from headrace.lake.iceberg.catalogs import EMBEDDED, embedded_catalog, forget_catalogs, local_path
from headrace.model.task import FailureCause
from headrace.spark.errors import error_text
from headrace.spark.installation import ClassDataArchive, archive_for, find_java, resolve_jars
from headrace.spark.jvm_bridge import active, jvm, scala_context
from headrace.spark.row_counts import rows_of_running_jobs, tasks_finished

log = logging.getLogger(__name__)

STOP_TIMEOUT_S = 20.0  # for the session and its JVM to end
ARCHIVE_TIMEOUT_S = 90.0  # a class-data archive is written in seconds, on a busy disk in more
KILL_TIMEOUT_S = 5.0
DEATH_WAIT_S = 5.0  # for the exit code of a JVM that does not answer any more
# Spark's own exit code for an OutOfMemoryError, Java's with -XX:+ExitOnOutOfMemoryError, and the
# signal by which a kernel that is out of memory ends the JVM.
_CAUSE_BY_EXIT_CODE: Mapping[int | None, FailureCause] = {
    52: FailureCause.OUT_OF_MEMORY,
    3: FailureCause.OUT_OF_MEMORY,
    -signal.SIGKILL: FailureCause.KILLED,
}
_CATALOG = f"spark.sql.catalog.{EMBEDDED}"
_POOL = "spark.scheduler.pool"


class WarmSpark:
    """Spark in this process: the warm session, its JVM, and the scheduler pools of its tasks."""

    def __init__(
        self,
        session: SparkSession,
        process: subprocess.Popen[bytes],
        archive: ClassDataArchive | None,
    ) -> None:
        self.session = session
        self._context = scala_context(session)  # pyspark forgets it as soon as it stops
        self._process, self._archive = process, archive
        # The loader that every thread of py4j's begins with, and executors of this process below.
        thread: Any = jvm(session).java.lang.Thread
        self._class_loader = thread.currentThread().getContextClassLoader()
        self._lock = threading.Lock()
        self._pools_taken: set[int] = set()

    @property
    def application(self) -> str:
        return str(self.session.sparkContext.applicationId)

    @property
    def pid(self) -> int:
        """The process id of the JVM."""
        return self._process.pid

    def alive(self) -> bool:
        """Whether the JVM and its Spark context live; without them this process is of no use.

        A cluster that ends an application stops the context, and leaves the JVM running.
        """
        if self._process.poll() is not None:
            return False
        try:
            return not self._context.isStopped()
        except (Py4JError, OSError):  # the JVM is just ending
            return False

    def died_of(self) -> FailureCause:
        """What ended the JVM, by its exit code. Call it only when the JVM is not `alive`."""
        with contextlib.suppress(subprocess.TimeoutExpired):  # the context stopped, the JVM runs on
            self._process.wait(DEATH_WAIT_S)
        return _CAUSE_BY_EXIT_CODE.get(self._process.returncode, FailureCause.LOST)

    def add_jars(self, paths: Sequence[Path]) -> None:
        """Put jars onto the class path of the JVM that runs, and of its executors. Classes of the
        same names that are there already stay what they are. They can't be taken away again.

        Found by `DriverManager` are only drivers that Spark has used: it asks no loader twice.
        """
        java: Any = jvm(self.session)
        for path in paths:
            self._class_loader.addURL(java.java.io.File(str(path)).toURI().toURL())
            if not self._context.isLocal():
                self._context.addJar(str(path))

    def cancel(self, execution: str) -> None:
        """Cancel the Spark jobs of this task that run now; later ones need another call."""
        self.session.sparkContext.cancelJobsWithTag(execution)

    def rows_written(self, execution: str) -> int | None:
        """Rows that the running jobs of this task have written so far; None without a job."""
        return rows_of_running_jobs(self.session, execution)

    def tasks_finished(self, execution: str) -> tuple[int, int]:
        """A value that changes when a Spark task of this execution finishes, or a job begins."""
        return tasks_finished(self.session, execution)

    def take_pool(self) -> int:
        """The lowest free pool number: Spark never forgets a pool, so few names are reused."""
        with self._lock:
            number = next(
                n for n in range(len(self._pools_taken) + 1) if n not in self._pools_taken
            )
            self._pools_taken.add(number)
            return number

    def give_pool_back(self, number: int) -> None:
        with self._lock:
            self._pools_taken.discard(number)

    def stop(self, *, at_once: bool = False, within_s: float | None = None) -> None:
        """End the session and its JVM. Afterwards no process of ours is left.

        `within_s`: a JVM that has not ended by then is killed, even while it writes its class-data
        archive. None leaves it the time that an archive takes. `at_once` kills it right away.
        """
        clock = SystemClock()
        if within_s is None:
            writing = self._archive is not None and self._archive.writing is not None
            within_s = ARCHIVE_TIMEOUT_S if writing else STOP_TIMEOUT_S
        deadline_s = clock.monotonic_s() + within_s
        if self._process.poll() is not None:
            at_once = True  # a JVM that has died can't be asked to stop
        if not at_once:
            at_once = not _stop_session(self.session, within_s=min(within_s, STOP_TIMEOUT_S))
        left_s = 0.0 if at_once else max(0.0, deadline_s - clock.monotonic_s())
        _end_jvm(self._process, self._archive, within_s=left_s)
        forget_catalogs()


@contextmanager
def task_session(warm: WarmSpark, execution: str) -> Generator[SparkSession]:
    """A session for one task: its own temp views and settings, its tag, its fair share.

    Enter it in the thread that runs the task's jobs.
    """
    session = warm.session.newSession()
    context = session.sparkContext
    pool = warm.take_pool()
    context.setLocalProperty(_POOL, f"task-{pool}")
    context.addJobTag(execution)
    try:
        with active(session):
            yield session
    finally:
        # Otherwise a pooled thread would carry both into the next task.
        context.clearJobTags()
        context.setLocalProperty(_POOL, "default")
        warm.give_pool_back(pool)


def start_spark(
    settings: Settings,
    *,
    warehouse: str,
    master: str = "local[*]",
    conf: Mapping[str, str] | None = None,
    name: str = "headrace",
    scratch: Path | None = None,
    log_file: Path | None = None,
    say: Callable[[str], None] = lambda _line: None,
) -> WarmSpark:
    """Start the JVM and its warm session. `conf` wins over every setting made here.

    `scratch` is the folder for its temporary files, by default that of the machine. `log_file`
    takes the output of the JVM, which by default goes to the stderr of this process.
    """
    java = find_java()
    jars = resolve_jars(settings.cache_dir, java=java, say=say, ivy_settings=settings.ivy_settings)
    archive = archive_for(settings.cache_dir, java=java, class_path=jars)
    if (folder := local_path(warehouse)) is not None:
        folder.mkdir(parents=True, exist_ok=True)
    # Written, not read: pyspark reads from here which Python its workers run.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)  # noqa: TID251

    def launch(used: ClassDataArchive | None) -> WarmSpark:
        options, extra = java_options(scratch, used), conf or {}
        wanted = spark_conf(
            jars, options, warehouse=warehouse, master=master, name=name, extra=extra
        )
        return _launch(wanted, used, log_file)

    try:
        return launch(archive)
    except PySparkRuntimeError:
        if archive is None:
            raise
        log.warning("starting without the class-data archive", extra={"path": str(archive.path)})
        archive.drop()
    return launch(None)


def java_options(scratch: Path | None, archive: ClassDataArchive | None) -> Sequence[str]:
    options = [f"-Dlog4j2.configurationFile={Path(__file__).with_name('log4j2.properties')}"]
    if scratch is not None:  # of the driver only; Spark's local folders are in it, too
        options.append(f"-Djava.io.tmpdir={scratch}")
    return [*options, *(archive.java_options() if archive else [])]


def spark_conf(
    jars: Sequence[Path],
    java_options: Sequence[str],
    *,
    warehouse: str,
    master: str,
    name: str,
    extra: Mapping[str, str],
) -> dict[str, str]:
    """Every setting of the JVM and the warm session."""
    class_path = ":".join(map(str, jars))
    conf = {
        "spark.master": master,
        "spark.app.name": name,
        "spark.driver.extraClassPath": class_path,
        "spark.driver.extraJavaOptions": " ".join(f'"{option}"' for option in java_options),
        "spark.executor.heartbeatInterval": "1s",  # each heartbeat brings the rows written so far
        "spark.scheduler.mode": "FAIR",
        "spark.sql.session.timeZone": "UTC",
        # JSON with a key twice has its last value there, as in SeaTunnel, and is no broken JSON.
        "spark.sql.variant.allowDuplicateKeys": "true",
        "spark.sql.extensions": (
            "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions"
        ),
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        _CATALOG: "org.apache.iceberg.spark.SparkCatalog",
        # Each newSession has a table cache of its own, which misses what the others commit.
        f"{_CATALOG}.cache-enabled": "false",
    }
    if master.startswith("local"):
        conf["spark.executor.extraClassPath"] = class_path
        conf["spark.driver.host"] = conf["spark.driver.bindAddress"] = "127.0.0.1"
    else:
        conf["spark.jars"] = ",".join(map(str, jars))
    if local_path(warehouse) is not None:
        for key, value in embedded_catalog(warehouse).properties.items():
            conf[f"{_CATALOG}.{key}"] = value
        conf["spark.sql.warehouse.dir"] = embedded_catalog(warehouse).properties["warehouse"]
    return conf | _merged(conf, extra)


def _merged(made: Mapping[str, str], extra: Mapping[str, str]) -> dict[str, str]:
    """The user's settings: class path and Java options are appended to ours, the rest wins."""
    return {
        key: f"{made[key]}{JOINED[key]}{value}" if key in JOINED else value
        for key, value in extra.items()
    }


def _launch(
    wanted: Mapping[str, str], archive: ClassDataArchive | None, log_file: Path | None
) -> WarmSpark:
    conf = SparkConf(loadDefaults=False)
    for key, value in wanted.items():
        conf.set(key, value)
    with _output(log_file) as output:
        streams: dict[str, Any] = {"stdout": output or sys.stderr.fileno(), "stderr": output}
        gateway: Any = java_gateway.launch_gateway(conf, streams)  # pyright: ignore
    process: subprocess.Popen[bytes] = gateway.proc
    try:
        context = SparkContext(conf=conf, gateway=gateway)
        session = SparkSession(context)
    except BaseException as error:
        reason = error_text(error)  # a Java error has a message only while its JVM lives
        gateway.shutdown()
        _end_jvm(process, archive, within_s=0)
        _forget_gateway()
        if isinstance(error, Exception):
            raise Refused(f"Spark did not start on {wanted['spark.master']}: {reason}") from error
        raise
    return WarmSpark(session, process, archive)


@contextmanager
def _output(log_file: Path | None) -> Generator[IO[bytes] | None]:
    if log_file is None:
        yield None
        return
    log_file.parent.mkdir(parents=True, exist_ok=True)
    with log_file.open("ab") as stream:
        yield stream


def _stop_session(session: SparkSession, *, within_s: float) -> bool:
    """Whether the session stopped in time. A JVM that hangs never answers, so a thread asks it."""
    gateway: Any = session.sparkContext._gateway  # noqa: SLF001  # pyright: ignore

    def stop() -> None:
        try:
            session.stop()
            gateway.shutdown()  # closes the callback server and every connection, too
        except (Py4JError, OSError):  # the JVM was killed meanwhile
            log.debug("Spark's session did not stop", exc_info=True)

    stopper = threading.Thread(target=stop, name="stopping Spark", daemon=True)
    stopper.start()
    stopper.join(within_s)
    _forget_gateway()
    return not stopper.is_alive()


def _forget_gateway() -> None:
    """Let this process start another JVM: by itself pyspark keeps the first one for ever."""
    SparkContext._gateway = None  # noqa: SLF001  # pyright: ignore
    SparkContext._jvm = None  # noqa: SLF001  # pyright: ignore


def _end_jvm(
    process: subprocess.Popen[bytes], archive: ClassDataArchive | None, *, within_s: float
) -> None:
    """End the JVM by closing its input, and by force after `within_s`; keep or drop the archive."""
    if process.stdin is not None:
        process.stdin.close()
    if within_s > 0:
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(within_s)
    if process.poll() is None:
        process.kill()
        process.wait(KILL_TIMEOUT_S)
    if archive is not None and archive.writing is not None:
        if process.returncode == 0:
            archive.keep()
        else:
            archive.drop()
