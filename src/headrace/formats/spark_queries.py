"""A query only asks: statements that change something, and ways to run code, are refused.

Spark carries out a statement as soon as it is given one, outside of any epoch and its token, so a
text is parsed first. What can't be told from the text is told from the analyzed plan, before
anything of it runs.

The functions that call Java stay in the session, because sinks use them themselves: what is
forbidden is that a user's text names them, or a view that it reads. They are not foldable, so
Spark evaluates none of them while it only analyzes.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, cast

from pyspark.sql import DataFrame, SparkSession

from headrace.formats.iceberg.jvm import jvm

_LOGICAL = "org.apache.spark.sql.catalyst.plans.logical"
_STATEMENTS = (f"{_LOGICAL}.Command", f"{_LOGICAL}.ParsedStatement")
_OTHER_STATEMENTS = {"Call", "InsertIntoDir", "UnresolvedExecuteImmediate"}  # that are neither
_RUN_CODE = frozenset({"reflect", "java_method", "try_reflect"})
_NAMED_FUNCTION = "UnresolvedFunction"
_COMMON_TABLES = "UnresolvedWith"  # WITH …: they are not among its children
_CALLS_JAVA = "CallMethodViaReflection"  # what each of these functions becomes
_RUNS_A_PROGRAM = "ScriptTransformation"


def is_query(session: SparkSession, text: str) -> bool:
    """False for a statement; a ParseException for what is neither."""
    kinds = [jvm(session).java.lang.Class.forName(name) for name in _STATEMENTS]
    return not any(
        _name(plan) in _OTHER_STATEMENTS or any(kind.isInstance(plan) for kind in kinds)
        for plan in _nodes(_parser(session).parsePlan(text))
    )


def code_function(session: SparkSession, text: str) -> str | None:
    """Which function that calls Java a query names; a ParseException if it is none."""
    return _named_in(_expressions(_parser(session).parsePlan(text)))


def code_function_of_condition(session: SparkSession, text: str) -> str | None:
    """As `code_function`, of what may stand behind WHERE."""
    return _named_in(_with_children(_parser(session).parseExpression(text)))


def runs_code(frame: DataFrame) -> str | None:
    """What in a frame's plan runs a user's code, in words; None: nothing does.

    A view in a catalog may hold what its reader's text does not. The temp views of the session are
    our own, and are not looked into again: each was checked when it was made.
    """
    analyzed: Any = frame._jdf.queryExecution().analyzed()  # noqa: SLF001  # pyright: ignore
    plan = cast("Any", analyzed)
    if any(_name(node) == _RUNS_A_PROGRAM for node in _nodes(plan)):
        return "TRANSFORM … USING runs a program; leave it out"
    if any(_name(part) == _CALLS_JAVA for part in _expressions(plan)):
        return "it runs Java code, or a view does that it reads; leave that out"
    return None


def _named_in(expressions: Iterator[Any]) -> str | None:
    for part in expressions:
        if _name(part) == _NAMED_FUNCTION:
            name = str(part.nameParts().last()).lower()
            if name in _RUN_CODE:
                return name
    return None


def _expressions(plan: Any) -> Iterator[Any]:
    """All expressions of a plan, those of the queries within them among them."""
    for node in _nodes(plan):
        for expression in _each(node.expressions()):
            yield from _with_children(expression)


def _with_children(expression: Any) -> Iterator[Any]:
    waiting = [expression]
    while waiting:
        expression = waiting.pop()
        yield expression
        waiting += _each(expression.children())


def _nodes(plan: Any) -> Iterator[Any]:
    """A plan's nodes, those of the queries in its expressions among them."""
    waiting = [plan]
    while waiting:
        plan = waiting.pop()
        yield plan
        if _name(plan) == _COMMON_TABLES:
            waiting += _each(plan.innerChildren())
        if not _is_own_view(plan):
            waiting += [*_each(plan.children()), *_each(plan.subqueries())]


def _is_own_view(plan: Any) -> bool:
    """A temp view of this session. Those that all sessions share have a database."""
    if _name(plan) != "View" or not plan.isTempView():
        return False
    return bool(plan.desc().identifier().database().isEmpty())


def _each(sequence: Any) -> Iterator[Any]:
    parts = sequence.iterator()
    while parts.hasNext():
        yield parts.next()


def _name(plan: Any) -> str:
    return str(plan.getClass().getSimpleName())


def _parser(session: SparkSession) -> Any:
    return session._jsparkSession.sessionState().sqlParser()  # noqa: SLF001  # pyright: ignore
