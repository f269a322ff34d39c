"""A job of Spark that failed, as an error of ours: the chain of Java exceptions, read once."""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, cast

from pyspark.sql import SparkSession

from headrace.errors import HeadraceError, Refused, Unavailable
from headrace.formats.iceberg.jvm import (
    CAUSES_MAX,
    JAVA_ERRORS,
    JavaError,
    java_exception,
    jvm,
)
from headrace.formats.spark_errors import Cause, chain_words, is_permanent_chain


@contextmanager
def in_our_words(session: SparkSession) -> Generator[None]:
    """What no connector has put into words by itself leaves as an error of ours."""
    try:
        yield
    except JAVA_ERRORS as error:
        raise failure_of_rows(session, error) from error


def failure_of_rows(session: SparkSession, error: JavaError) -> HeadraceError:
    """The error to raise for a job of Spark that failed: Refused when it would fail again."""
    chain = chain_of(session, error)
    text = chain_words(chain)
    return Refused(text) if is_permanent_chain(chain) else Unavailable(text)


def chain_of(session: SparkSession, error: JavaError) -> Sequence[Cause]:
    """The exception and its causes, outermost first."""
    forname = jvm(session).java.lang.Class.forName
    of_spark = forname("org.apache.spark.SparkThrowable")
    of_sql = forname("java.sql.SQLException")
    found: list[Cause] = []
    cause: Any = java_exception(error)
    while cause is not None and len(found) < CAUSES_MAX:
        following: Any = None
        kind, message = str(cause.getClass().getName()), str(cause.getMessage() or "")
        if of_sql.isInstance(cause):
            found.append(Cause(kind, message, state=cause.getSQLState()))
            following = cause.getNextException()  # of a batch: what happened to its row
        elif of_spark.isInstance(cause):
            found.append(_of_spark(cause, kind, message))
        else:
            found.append(Cause(kind, message))
        cause = following if following is not None else cause.getCause()
    return found


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
