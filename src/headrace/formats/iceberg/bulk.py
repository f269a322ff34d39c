"""Ask every element of a Java list the same question, or tell it something, in a few JVM calls.

A call through py4j takes a millisecond, which for 100,000 files is minutes. So the loop is made in
the JVM: method handles are joined to a function, and Java's own collections apply it.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, cast

from pyspark.sql import SparkSession

from headrace.formats.iceberg.jvm import gateway, jvm

_FUNCTION = "org.apache.iceberg.relocated.com.google.common.base.Function"
_CONSUMER = "java.util.function.IntConsumer"

Getter = tuple[str, str]  # a public class or interface, and a method of it without arguments


def ask_each(session: SparkSession, items: Any, *getters: Getter) -> list[Any]:
    """What the getters, one after the other, answer for each element. Numbers and texts only."""
    java = jvm(session)
    question = _getter(session, *getters[0])
    for getter in getters[1:]:
        question = java.java.lang.invoke.MethodHandles.filterReturnValue(
            question, _getter(session, *getter)
        )
    lists = java.org.apache.iceberg.relocated.com.google.common.collect.Lists
    answers = lists.transform(items, _as(session, _FUNCTION, question))
    mapper = java.org.apache.iceberg.util.JsonUtil.mapper()
    return cast("list[Any]", json.loads(mapper.writeValueAsString(answers)))


def tell_each(
    session: SparkSession, items: Any, setter: tuple[str, str, str], values: Sequence[int]
) -> None:
    """Call a method of one argument (class, name, the argument's class) on each element with the
    value at its place. The class need not be public."""
    java, link = jvm(session), gateway(session)
    handles = java.java.lang.invoke.MethodHandles
    told = handles.filterArguments(
        _generic(session, _setter(session, *setter)),
        0,
        _handles(session, _element(session, items), _element(session, _longs(session, values))),
    )
    one_place = java.java.lang.invoke.MethodType.methodType(
        java.java.lang.Void.TYPE, java.java.lang.Integer.TYPE
    )
    same = link.new_array(link.jvm.int, 2)
    same[0], same[1] = 0, 0
    told = handles.permuteArguments(told, one_place, same)
    places = java.java.util.stream.IntStream.range(0, len(values))
    consumer = _as(session, _CONSUMER, told)
    # By the interface's method: the stream's own class is hidden in its module.
    for_each = _method(session, "java.util.stream.IntStream", "forEach", _class(session, _CONSUMER))
    for_each.invoke(places, _objects(session, consumer))


def _class(session: SparkSession, name: str) -> Any:
    return jvm(session).java.lang.Class.forName(name)


def _method(session: SparkSession, owner: str, name: str, *arguments: Any) -> Any:
    return _class(session, owner).getMethod(name, _classes(session, *arguments))


def _getter(session: SparkSession, owner: str, name: str) -> Any:
    lookup = jvm(session).java.lang.invoke.MethodHandles.publicLookup()
    return lookup.unreflect(_method(session, owner, name))


def _setter(session: SparkSession, owner: str, name: str, argument: str) -> Any:
    found = _class(session, owner).getDeclaredMethod(
        name, _classes(session, _class(session, argument))
    )
    found.setAccessible(True)
    return jvm(session).java.lang.invoke.MethodHandles.publicLookup().unreflect(found)


def _generic(session: SparkSession, setter: Any) -> Any:
    """As (Object, Object) -> void, whatever classes it names."""
    java = jvm(session)
    any_class = _class(session, "java.lang.Object")
    wanted = java.java.lang.invoke.MethodType.methodType(
        java.java.lang.Void.TYPE, _classes(session, any_class, any_class)
    )
    return setter.asType(wanted)


def _element(session: SparkSession, items: Any) -> Any:
    """The element at a place of this list: int -> Object."""
    java = jvm(session)
    get = _method(session, "java.util.List", "get", java.java.lang.Integer.TYPE)
    return java.java.lang.invoke.MethodHandles.publicLookup().unreflect(get).bindTo(items)


def _longs(session: SparkSession, values: Sequence[int]) -> Any:
    """A Java list of Long; py4j alone would make those that fit Integers."""
    java = jvm(session)
    array = java.org.apache.iceberg.util.JsonUtil.mapper().readValue(
        json.dumps(list(values)), _class(session, "[J")
    )
    return java.org.apache.iceberg.relocated.com.google.common.primitives.Longs.asList(array)


def _as(session: SparkSession, interface: str, handle: Any) -> Any:
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
