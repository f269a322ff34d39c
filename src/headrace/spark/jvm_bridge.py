"""The bridge to Spark's JVM (py4j): sessions, Java values, Java errors, and bulk calls.

py4j has no types, so everything behind `jvm()` is `Any`. Calls that py4j resolves wrongly in some
JVM starts are made by reflection here; tests/spark/jvm_calls.py tries each on fresh JVMs.

A call through py4j takes a millisecond, which for 100,000 files is minutes. So `get_each` and
`set_each` run the loop over a Java list in the JVM: method handles are composed into a function,
and Java's own collections apply it.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, cast

from py4j.protocol import Py4JJavaError  # pyright: ignore[reportMissingTypeStubs]
from pyspark import java_gateway
from pyspark.errors.exceptions.captured import CapturedException
from pyspark.sql import SparkSession

from headrace.errors import HeadraceError, Refused, Unavailable
from headrace.model.text import shortened
from headrace.spark.errors import Cause, chain_text, is_permanent_chain

# pyspark wraps some Java exceptions (illegal arguments, unsupported operations, …) in its own.
JAVA_ERRORS = (Py4JJavaError, CapturedException)
JavaError = Py4JJavaError | CapturedException
Getter = tuple[str, str]  # a public class or interface, and a method without arguments

MESSAGE_CHARACTERS_MAX = 300
CAUSES_MAX = 10  # of one Java exception that are looked at

_callback_lock = threading.Lock()
# A retry does not mend these: settings, classes, rights. A server that is away raises others.
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
_FUNCTION = "org.apache.iceberg.relocated.com.google.common.base.Function"
_CONSUMER = "java.util.function.IntConsumer"


def gateway(session: SparkSession) -> Any:
    return session.sparkContext._gateway  # noqa: SLF001  # pyright: ignore


def jvm(session: SparkSession) -> Any:
    return session.sparkContext._jvm  # noqa: SLF001  # pyright: ignore


def scala_context(session: SparkSession) -> Any:
    return session.sparkContext._jsc.sc()  # noqa: SLF001  # pyright: ignore


def sql_status(session: SparkSession) -> Any:
    return session._jsparkSession.sharedState().statusStore()  # noqa: SLF001  # pyright: ignore


@contextmanager
def active(session: SparkSession) -> Generator[None]:
    """Make `session` the active one of this thread for a while. Iceberg uses the active session
    where it means the one that writes, and a new thread has whichever came first."""
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
    """Let the JVM call Python: started once for each JVM, on loopback and a free port."""
    with _callback_lock:  # pyspark's own check is not thread-safe
        java_gateway.ensure_callback_server_started(gateway(session))  # pyright: ignore


def hadoop_configuration(session: SparkSession, extra: Mapping[str, str]) -> Any:
    """A copy of the session's Hadoop settings, overridden by `extra`."""
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
    """`Class.get()`, by reflection: SparkTableCache has two methods named get, and py4j took the
    wrong one in most JVM starts."""
    link = gateway(session)
    java_class = link.jvm.java.lang.Class.forName(class_name)
    method = java_class.getMethod("get", link.new_array(link.jvm.Class, 0))
    return method.invoke(None, link.new_array(link.jvm.Object, 0))


def get_each(session: SparkSession, items: Any, *getters: Getter) -> list[Any]:
    """The result of the getters, applied one after the other, for each element. Only for results
    that are numbers, texts or arrays of them."""
    java = jvm(session)
    handle = _getter(session, *getters[0])
    for getter in getters[1:]:
        handle = java.java.lang.invoke.MethodHandles.filterReturnValue(
            handle, _getter(session, *getter)
        )
    lists = java.org.apache.iceberg.relocated.com.google.common.collect.Lists
    values = lists.transform(items, _as_interface(session, _FUNCTION, handle))
    mapper = java.org.apache.iceberg.util.JsonUtil.mapper()
    return cast("list[Any]", json.loads(mapper.writeValueAsString(values)))


def set_each(
    session: SparkSession, items: Any, setter: tuple[str, str, str], values: Sequence[int]
) -> None:
    """Call a one-argument method (class, name, the argument's class) on each element, with the
    value at the same index. The class need not be public."""
    java, link = jvm(session), gateway(session)
    handles = java.java.lang.invoke.MethodHandles
    handle = handles.filterArguments(
        _generic(session, _setter(session, *setter)),
        0,
        _handles(session, _element(session, items), _element(session, _longs(session, values))),
    )
    one_place = java.java.lang.invoke.MethodType.methodType(
        java.java.lang.Void.TYPE, java.java.lang.Integer.TYPE
    )
    same = link.new_array(link.jvm.int, 2)
    same[0], same[1] = 0, 0
    handle = handles.permuteArguments(handle, one_place, same)
    places = java.java.util.stream.IntStream.range(0, len(values))
    consumer = _as_interface(session, _CONSUMER, handle)
    # Through the interface's method: the stream's own class is not exported from its module.
    for_each = _method(session, "java.util.stream.IntStream", "forEach", _class(session, _CONSUMER))
    for_each.invoke(places, _objects(session, consumer))


def java_classes(error: JavaError) -> tuple[str, ...]:
    """Simple class names of a Java exception and its causes, outermost first."""
    names: list[str] = []
    cause = java_exception(error)
    while cause is not None and len(names) < CAUSES_MAX:
        names.append(str(cause.getClass().getSimpleName()))
        cause = cause.getCause()
    return tuple(names)


def java_message(error: JavaError) -> str:
    """The first line of a Java exception's message, without its trace."""
    exception = java_exception(error)
    message = str(exception.getMessage() or exception.getClass().getSimpleName())
    return shortened(message.strip().splitlines()[0], MESSAGE_CHARACTERS_MAX)


def java_messages(error: JavaError) -> str:
    """The messages of a Java exception and all its causes, to search for names in."""
    messages: list[str] = []
    cause = java_exception(error)
    while cause is not None and len(messages) < CAUSES_MAX:
        messages.append(f"{cause.getClass().getSimpleName()}: {cause.getMessage() or ''}")
        cause = cause.getCause()
    return "\n".join(messages)


def java_exception(error: JavaError) -> Any:
    """The Java exception inside a Python one."""
    if isinstance(error, CapturedException):
        return error._origin  # noqa: SLF001  # pyright: ignore[reportPrivateUsage]
    return cast("Any", error).java_exception


def refused_or_unavailable(error: JavaError, message: str) -> Refused | Unavailable:
    """The error to raise: `Refused` when a retry would fail again, else `Unavailable`."""
    if _REFUSALS.isdisjoint(java_classes(error)):
        return Unavailable(message)
    return Refused(message)


@contextmanager
def translated_errors(session: SparkSession) -> Generator[None]:
    """Turn Java errors that no connector has translated itself into errors of ours."""
    try:
        yield
    except JAVA_ERRORS as error:
        raise spark_failure(session, error) from error


def spark_failure(session: SparkSession, error: JavaError) -> HeadraceError:
    """The error to raise for a Spark job that failed: `Refused` when it would fail again."""
    chain = chain_of(session, error)
    text = chain_text(chain)
    return Refused(text) if is_permanent_chain(chain) else Unavailable(text)


def chain_of(session: SparkSession, error: JavaError) -> Sequence[Cause]:
    """The exception and its causes, outermost first, at most `CAUSES_MAX`."""
    forname = jvm(session).java.lang.Class.forName
    of_spark = forname("org.apache.spark.SparkThrowable")
    of_sql = forname("java.sql.SQLException")
    chain: list[Cause] = []
    cause: Any = java_exception(error)
    while cause is not None and len(chain) < CAUSES_MAX:
        following: Any = None
        kind, message = str(cause.getClass().getName()), str(cause.getMessage() or "")
        if of_sql.isInstance(cause):
            chain.append(Cause(kind, message, state=cause.getSQLState()))
            following = cause.getNextException()  # of a batch: the failure of the row itself
        elif of_spark.isInstance(cause):
            chain.append(_of_spark(cause, kind, message))
        else:
            chain.append(Cause(kind, message))
        cause = following if following is not None else cause.getCause()
    return chain


def _class(session: SparkSession, name: str) -> Any:
    return jvm(session).java.lang.Class.forName(name)


def _method(session: SparkSession, owner: str, name: str, *arguments: Any) -> Any:
    return _class(session, owner).getMethod(name, _classes(session, *arguments))


def _getter(session: SparkSession, owner: str, name: str) -> Any:
    lookup = jvm(session).java.lang.invoke.MethodHandles.publicLookup()
    return lookup.unreflect(_method(session, owner, name))


def _setter(session: SparkSession, owner: str, name: str, argument: str) -> Any:
    method = _class(session, owner).getDeclaredMethod(
        name, _classes(session, _class(session, argument))
    )
    method.setAccessible(True)
    return jvm(session).java.lang.invoke.MethodHandles.publicLookup().unreflect(method)


def _generic(session: SparkSession, setter: Any) -> Any:
    """The handle as (Object, Object) -> void, whatever classes it names."""
    java = jvm(session)
    any_class = _class(session, "java.lang.Object")
    wanted = java.java.lang.invoke.MethodType.methodType(
        java.java.lang.Void.TYPE, _classes(session, any_class, any_class)
    )
    return setter.asType(wanted)


def _element(session: SparkSession, items: Any) -> Any:
    """A handle int -> Object: the element of this list at an index."""
    java = jvm(session)
    get = _method(session, "java.util.List", "get", java.java.lang.Integer.TYPE)
    return java.java.lang.invoke.MethodHandles.publicLookup().unreflect(get).bindTo(items)


def _longs(session: SparkSession, values: Sequence[int]) -> Any:
    """A Java list of Long; py4j alone would turn small numbers into Integers."""
    java = jvm(session)
    array = java.org.apache.iceberg.util.JsonUtil.mapper().readValue(
        json.dumps(list(values)), _class(session, "[J")
    )
    return java.org.apache.iceberg.relocated.com.google.common.primitives.Longs.asList(array)


def _as_interface(session: SparkSession, interface: str, handle: Any) -> Any:
    proxies = jvm(session).java.lang.invoke.MethodHandleProxies
    return proxies.asInterfaceInstance(_class(session, interface), handle)


def _classes(session: SparkSession, *values: Any) -> Any:
    return _array(session, gateway(session).jvm.Class, values)


def _handles(session: SparkSession, *values: Any) -> Any:
    return _array(session, gateway(session).jvm.java.lang.invoke.MethodHandle, values)


def _objects(session: SparkSession, *values: Any) -> Any:
    return _array(session, gateway(session).jvm.Object, values)


def _array(session: SparkSession, kind: Any, values: Sequence[Any]) -> Any:
    array = gateway(session).new_array(kind, len(values))
    for index, value in enumerate(values):
        array[index] = value
    return array


def _of_spark(cause: Any, kind: str, message: str) -> Cause:
    contexts = [c for c in cause.getQueryContext() if str(c.contextType()) == "SQL"]
    return Cause(
        kind,
        message,
        state=cause.getSqlState(),
        condition=str(cause.getCondition() or ""),
        parameters=dict(cast("Mapping[str, str]", cause.getMessageParameters())),
        fragment=str(contexts[0].fragment()) if contexts else "",
    )
