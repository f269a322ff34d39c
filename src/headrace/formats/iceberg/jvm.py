"""The few ways in which this package talks to the JVM, all in one place.

py4j has no types, so everything behind `jvm()` is `Any`. Calls that py4j resolves wrongly in some
JVM starts are made by reflection here; tests/spark/jvm_calls.py tries each on fresh JVMs.
"""

from __future__ import annotations

import threading
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from typing import Any, cast

from py4j.protocol import Py4JJavaError  # pyright: ignore[reportMissingTypeStubs]
from pyspark import SparkContext, java_gateway
from pyspark.errors.exceptions.captured import CapturedException
from pyspark.sql import SparkSession

from headrace.errors import Refused, Unavailable
from headrace.model.text import shortened

# pyspark turns some Java exceptions (illegal arguments, unsupported operations, …) into its own.
JAVA_ERRORS = (Py4JJavaError, CapturedException)
JavaError = Py4JJavaError | CapturedException

_callback_lock = threading.Lock()
MESSAGE_CHARACTERS_MAX = 300
CAUSES_MAX = 10
# What repeating does not change: settings, classes, rights. One that is away says other things.
_REFUSALS = frozenset(
    {
        "AccessControlException",
        "BadRequestException",
        "ClassCastException",
        "ClassNotFoundException",
        "ForbiddenException",
        "IllegalArgumentException",
        "NoClassDefFoundError",
        "NoSuchMethodException",
        "NotAuthorizedException",
        "UnsupportedFileSystemException",
        "UnsupportedOperationException",
        "ValidationException",
    }
)


def running_session(title: str) -> SparkSession:
    """A session of this process, for its JVM alone: planning is given none."""
    if SparkContext._active_spark_context is None:  # noqa: SLF001  # pyright: ignore
        raise Unavailable(f"{title}: Spark is not running, and tables are asked through it")
    return SparkSession.builder.getOrCreate()


def gateway(session: SparkSession) -> Any:
    return session.sparkContext._gateway  # noqa: SLF001  # pyright: ignore


def jvm(session: SparkSession) -> Any:
    return session.sparkContext._jvm  # noqa: SLF001  # pyright: ignore


def scala_context(session: SparkSession) -> Any:
    return session.sparkContext._jsc.sc()  # noqa: SLF001  # pyright: ignore


def sql_status(session: SparkSession) -> Any:
    return session._jsparkSession.sharedState().statusStore()  # noqa: SLF001  # pyright: ignore


def hadoop_configuration(session: SparkSession, extra: Mapping[str, str]) -> Any:
    """A copy of the session's Hadoop settings with `extra` on top."""
    own: Any = session.sparkContext._jsc.hadoopConfiguration()  # noqa: SLF001  # pyright: ignore
    copy = jvm(session).org.apache.hadoop.conf.Configuration(own)
    for key, value in extra.items():
        copy.set(key, value)
    return copy


def string_array(session: SparkSession, *values: str) -> Any:
    link = gateway(session)
    array = link.new_array(link.jvm.String, len(values))
    for index, value in enumerate(values):
        array[index] = value
    return array


def string_map(session: SparkSession, values: Mapping[str, str]) -> Any:
    result = jvm(session).java.util.HashMap()
    for key, value in values.items():
        result.put(key, value)
    return result


def singleton(session: SparkSession, class_name: str) -> Any:
    """`Class.get()`. By reflection: SparkTableCache has two methods named get, and py4j took the
    wrong one in most JVM starts."""
    link = gateway(session)
    found = link.jvm.java.lang.Class.forName(class_name)
    method = found.getMethod("get", link.new_array(link.jvm.Class, 0))
    return method.invoke(None, link.new_array(link.jvm.Object, 0))


@contextmanager
def active(session: SparkSession) -> Generator[None]:
    """Make `session` the active one of this thread for a while: Iceberg asks for the active
    session where it means the one that writes, and a new thread has whichever came first."""
    sessions = jvm(session).org.apache.spark.sql.classic.SparkSession
    before = sessions.getActiveSession()
    sessions.setActiveSession(session._jsparkSession)  # noqa: SLF001  # pyright: ignore
    try:
        yield
    finally:
        if before.isDefined():
            sessions.setActiveSession(before.get())
        else:
            sessions.clearActiveSession()


def start_callbacks(session: SparkSession) -> None:
    """Let the JVM call Python. Once for each JVM, on loopback and a free port."""
    with _callback_lock:  # pyspark's own check is not safe between threads
        java_gateway.ensure_callback_server_started(gateway(session))  # pyright: ignore


def java_classes(error: JavaError) -> tuple[str, ...]:
    """Simple class names of a Java exception and its causes, outermost first."""
    names: list[str] = []
    cause = java_exception(error)
    while cause is not None and len(names) < CAUSES_MAX:
        names.append(str(cause.getClass().getSimpleName()))
        cause = cause.getCause()
    return tuple(names)


def java_message(error: JavaError) -> str:
    """One readable line of a Java exception, without its trace."""
    exception = java_exception(error)
    said = str(exception.getMessage() or exception.getClass().getSimpleName())
    return shortened(said.strip().splitlines()[0], MESSAGE_CHARACTERS_MAX)


def java_told(error: JavaError) -> str:
    """All that a Java exception and its causes say, a line each or more: to look for names in."""
    told: list[str] = []
    cause = java_exception(error)
    while cause is not None and len(told) < CAUSES_MAX:
        told.append(f"{cause.getClass().getSimpleName()}: {cause.getMessage() or ''}")
        cause = cause.getCause()
    return "\n".join(told)


def not_granted(error: JavaError, said: str) -> Refused | Unavailable:
    """The error to raise: a wrong request stays wrong, anything else may pass."""
    if _REFUSALS.isdisjoint(java_classes(error)):
        return Unavailable(said)
    return Refused(said)


def java_exception(error: JavaError) -> Any:
    if isinstance(error, CapturedException):
        return error._origin  # noqa: SLF001  # pyright: ignore[reportPrivateUsage]
    return cast("Any", error).java_exception
