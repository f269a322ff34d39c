"""Check that a user's SQL only queries: statements that change something, or run code, are refused.

Spark carries out a statement as soon as it is given one, outside of any epoch and its token, so a
text is parsed first. What the text does not show is found in the analyzed plan, before anything of
it runs.

The functions that call Java stay registered in the session, because sinks use them themselves. What
is forbidden is that a user's text names them, or a view that it reads does. They are not foldable,
so Spark evaluates none of them while it only analyzes.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, cast

from pyspark.sql import DataFrame, SparkSession

from headrace.spark.jvm_bridge import jvm

_LOGICAL = "org.apache.spark.sql.catalyst.plans.logical"
_STATEMENTS = (f"{_LOGICAL}.Command", f"{_LOGICAL}.ParsedStatement")
_OTHER_STATEMENTS = {
    "Call",
    "InsertIntoDir",
    "UnresolvedExecuteImmediate",
}  # that are statements but of neither class
_RUN_CODE = frozenset({"reflect", "java_method", "try_reflect"})
_NAMED_FUNCTION = "UnresolvedFunction"
_COMMON_TABLES = "UnresolvedWith"  # WITH …: its tables are not among its children
_CALLS_JAVA = "CallMethodViaReflection"  # what each of _RUN_CODE becomes in an analyzed plan
_RUNS_A_PROGRAM = "ScriptTransformation"


def is_query(session: SparkSession, text: str) -> bool:
    """Whether the text is a query, not a statement. Raises ParseException when it is neither."""
    kinds = [jvm(session).java.lang.Class.forName(name) for name in _STATEMENTS]
    return not any(
        class_name(plan) in _OTHER_STATEMENTS or any(kind.isInstance(plan) for kind in kinds)
        for plan in _nodes(_parser(session).parsePlan(text))
    )


def code_function(session: SparkSession, text: str) -> str | None:
    """The function that calls Java in a query's text; None when there is none. Raises
    ParseException when the text is no query."""
    return _named_in(expressions_of(_parser(session).parsePlan(text)))


def code_function_of_condition(session: SparkSession, text: str) -> str | None:
    """As `code_function`, for a condition (what follows WHERE)."""
    return _named_in(_with_children(_parser(session).parseExpression(text)))


def runs_code(frame: DataFrame) -> str | None:
    """Why a frame's plan runs a user's code, as a text for people; None when it does not.

    A view in a catalog may hold what the text of its reader does not show. The temp views of the
    session are our own, and are not looked into again: each was checked when it was made.
    """
    analyzed: Any = frame._jdf.queryExecution().analyzed()  # noqa: SLF001  # pyright: ignore
    plan = cast("Any", analyzed)
    if any(class_name(node) == _RUNS_A_PROGRAM for node in _nodes(plan)):
        return "TRANSFORM … USING runs a program; leave it out"
    if any(class_name(part) == _CALLS_JAVA for part in expressions_of(plan)):
        return "it runs Java code, or a view does that it reads; leave that out"
    return None


def _named_in(expressions: Iterator[Any]) -> str | None:
    for part in expressions:
        if class_name(part) == _NAMED_FUNCTION:
            name = str(part.nameParts().last()).lower()
            if name in _RUN_CODE:
                return name
    return None


def expressions_of(plan: Any) -> Iterator[Any]:
    """All expressions of a plan, including those of the subqueries within them."""
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
    """All nodes of a plan, including those of the subqueries in its expressions."""
    waiting = [plan]
    while waiting:
        plan = waiting.pop()
        yield plan
        if class_name(plan) == _COMMON_TABLES:
            waiting += _each(plan.innerChildren())
        if not _is_own_view(plan):
            waiting += [*_each(plan.children()), *_each(plan.subqueries())]


def _is_own_view(plan: Any) -> bool:
    """Whether the node is a temp view of this session. Global temp views have a database."""
    if class_name(plan) != "View" or not plan.isTempView():
        return False
    return bool(plan.desc().identifier().database().isEmpty())


def _each(sequence: Any) -> Iterator[Any]:
    items = sequence.iterator()
    while items.hasNext():
        yield items.next()


def class_name(plan: Any) -> str:
    """The name of the class of a node, or of an expression."""
    return str(plan.getClass().getSimpleName())


def _parser(session: SparkSession) -> Any:
    return session._jsparkSession.sessionState().sqlParser()  # noqa: SLF001  # pyright: ignore
