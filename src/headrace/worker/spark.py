"""One warm SparkSession a process; each task borrows a session of its own.

The JVM is started with the jars on its class path (no resolving at start), catalogs set before
the first session (later ones are not inherited), and nothing of it outlives `stop`.

Threads. pyspark pins each Python thread to a JVM thread, and tags and pools live on that one. So
a task enters `task_session` in the very thread that runs its jobs. (pyspark's InheritableThread
would take them along, but it asks the JVM in the thread that starts it.)
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
from headrace.containers.worker_command import JOINED
from headrace.errors import Refused
from headrace.formats.iceberg.catalogs import (
    EMBEDDED,
    embedded_catalog,
    forget_catalogs,
    local_path,
)
from headrace.formats.iceberg.jvm import active, scala_context
from headrace.formats.spark_errors import words_of
from headrace.model.task import FailureCause
from headrace.worker.archive import Archive, archive_for
from headrace.worker.jars import resolve
from headrace.worker.java import find_java
from headrace.worker.progress import rows_of_running_jobs, tasks_finished

log = logging.getLogger(__name__)

STOP_TIMEOUT_S = 20.0  # for the session and its JVM to end
ARCHIVE_TIMEOUT_S = 90.0  # writing a class-data archive takes seconds, on a busy disk more
KILL_TIMEOUT_S = 5.0
DEATH_WAIT_S = 5.0  # for the exit code of a JVM that does not answer any more
# By exit code of the JVM: Spark's own for an OutOfMemoryError, Java's with
# -XX:+ExitOnOutOfMemoryError, and the signal by which a kernel without memory ends it.
_DEATHS: Mapping[int | None, FailureCause] = {
    52: FailureCause.OUT_OF_MEMORY,
    3: FailureCause.OUT_OF_MEMORY,
    -signal.SIGKILL: FailureCause.KILLED,
}
_CATALOG = f"spark.sql.catalog.{EMBEDDED}"
_POOL = "spark.scheduler.pool"


class WarmSpark:
    """The engine of this process: a session, its JVM, and the pools its tasks share."""

    def __init__(
        self, session: SparkSession, process: subprocess.Popen[bytes], archive: Archive | None
    ) -> None:
        self.session = session
        self._context = scala_context(session)  # pyspark forgets it as soon as it is to stop
        self._process, self._archive = process, archive
        self._lock = threading.Lock()
        self._pools_taken: set[int] = set()

    @property
    def application(self) -> str:
        return str(self.session.sparkContext.applicationId)

    @property
    def pid(self) -> int:
        """Of the JVM."""
        return self._process.pid

    def alive(self) -> bool:
        """Whether the JVM and its context live; without them this process can do nothing any more.

        A cluster that ends an application stops its context, and leaves the JVM as it is.
        """
        if self._process.poll() is not None:
            return False
        try:
            return not self._context.isStopped()
        except (Py4JError, OSError):  # the JVM ends just now
            return False

    def died_of(self) -> FailureCause:
        """What ended the JVM, by its exit code; asked once it is not `alive`."""
        with contextlib.suppress(subprocess.TimeoutExpired):  # a stopped context has a JVM left
            self._process.wait(DEATH_WAIT_S)
        return _DEATHS.get(self._process.returncode, FailureCause.LOST)

    def cancel(self, execution: str) -> None:
        """Stop the jobs that this task has running now. Repeat it until the task has ended."""
        self.session.sparkContext.cancelJobsWithTag(execution)

    def rows_written(self, execution: str) -> int | None:
        """Rows that the running jobs of this task have got through so far; None without a job."""
        return rows_of_running_jobs(self.session, execution)

    def tasks_finished(self, execution: str) -> tuple[int, int]:
        """Another one than before: a Spark task of it has finished, or a job has begun."""
        return tasks_finished(self.session, execution)

    def take_pool(self) -> int:
        """The lowest free number: Spark never forgets a pool, so few names are used again."""
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

        `within_s`: what has not ended by then is killed, also while it writes its archive. None:
        it may take the time that an archive takes.
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
        _end(self._process, self._archive, within_s=left_s)
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
        # A pooled thread would carry both into the next task.
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

    `scratch` takes its temporary files; without it they go where those of the machine go.
    `log_file` takes what the JVM prints; without it that goes to this process's own stderr.
    """
    java = find_java()
    jars = resolve(settings.cache_dir, java=java, say=say)
    archive = archive_for(settings.cache_dir, java=java, class_path=jars)
    if (folder := local_path(warehouse)) is not None:
        folder.mkdir(parents=True, exist_ok=True)
    # Written, not read: pyspark takes the Python of its workers from here.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)  # noqa: TID251

    def launch(used: Archive | None) -> WarmSpark:
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


def java_options(scratch: Path | None, archive: Archive | None) -> Sequence[str]:
    options = [f"-Dlog4j2.configurationFile={Path(__file__).with_name('log4j2.properties')}"]
    if scratch is not None:  # the driver's only; Spark's local folders are there, too
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
    made = {
        "spark.master": master,
        "spark.app.name": name,
        "spark.driver.extraClassPath": class_path,
        "spark.driver.extraJavaOptions": " ".join(f'"{option}"' for option in java_options),
        "spark.executor.heartbeatInterval": "1s",  # brings the rows written so far
        "spark.scheduler.mode": "FAIR",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.extensions": (
            "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions"
        ),
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        _CATALOG: "org.apache.iceberg.spark.SparkCatalog",
        # Each newSession has a table cache of its own, blind to what the others commit.
        f"{_CATALOG}.cache-enabled": "false",
    }
    if master.startswith("local"):
        made["spark.executor.extraClassPath"] = class_path
        made["spark.driver.host"] = made["spark.driver.bindAddress"] = "127.0.0.1"
    else:
        made["spark.jars"] = ",".join(map(str, jars))
    if local_path(warehouse) is not None:
        for key, value in embedded_catalog(warehouse).properties.items():
            made[f"{_CATALOG}.{key}"] = value
        made["spark.sql.warehouse.dir"] = embedded_catalog(warehouse).properties["warehouse"]
    return made | _merged(made, extra)


def _merged(made: Mapping[str, str], extra: Mapping[str, str]) -> dict[str, str]:
    """A user's class path and Java options are added to ours; anything else of theirs wins."""
    return {
        key: f"{made[key]}{JOINED[key]}{value}" if key in JOINED else value
        for key, value in extra.items()
    }


def _launch(wanted: Mapping[str, str], archive: Archive | None, log_file: Path | None) -> WarmSpark:
    conf = SparkConf(loadDefaults=False)
    for key, value in wanted.items():
        conf.set(key, value)
    with _output(log_file) as output:
        to: dict[str, Any] = {"stdout": output or sys.stderr.fileno(), "stderr": output}
        gateway: Any = java_gateway.launch_gateway(conf, to)  # pyright: ignore
    process: subprocess.Popen[bytes] = gateway.proc
    try:
        context = SparkContext(conf=conf, gateway=gateway)
        session = SparkSession(context)
    except BaseException as error:
        reason = words_of(error)  # of a Java error, only as long as its JVM lives
        gateway.shutdown()
        _end(process, archive, within_s=0)
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
    """Whether it has stopped. A JVM that hangs answers nobody, so somebody else asks it."""
    gateway: Any = session.sparkContext._gateway  # noqa: SLF001  # pyright: ignore

    def stop() -> None:
        try:
            session.stop()
            gateway.shutdown()  # closes the callback server and every connection, too
        except (Py4JError, OSError):  # it was killed meanwhile, or since
            log.debug("Spark's session did not stop", exc_info=True)

    asking = threading.Thread(target=stop, name="stopping Spark", daemon=True)
    asking.start()
    asking.join(within_s)
    _forget_gateway()
    return not asking.is_alive()


def _forget_gateway() -> None:
    """Let this process start another JVM: pyspark keeps the first one for ever."""
    SparkContext._gateway = None  # noqa: SLF001  # pyright: ignore
    SparkContext._jvm = None  # noqa: SLF001  # pyright: ignore


def _end(process: subprocess.Popen[bytes], archive: Archive | None, *, within_s: float) -> None:
    """See the JVM out: by end of input, else by force."""
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
