"""A query only asks: statements that change something, and ways to run code, are refused.

Spark carries out a statement as soon as it is given one, outside of any epoch and its token, so a
text is parsed first. What can't be told from the text is told from the analyzed plan, before
anything of it runs.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, cast

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from headrace.formats.iceberg.jvm import jvm

_LOGICAL = "org.apache.spark.sql.catalyst.plans.logical"
_STATEMENTS = (f"{_LOGICAL}.Command", f"{_LOGICAL}.ParsedStatement")
_OTHER_STATEMENTS = {"Call", "InsertIntoDir", "UnresolvedExecuteImmediate"}  # that are neither
_RUN_CODE = ("reflect", "java_method", "try_reflect")


def is_query(session: SparkSession, text: str) -> bool:
    """False for a statement; a ParseException for what is neither."""
    kinds = [jvm(session).java.lang.Class.forName(name) for name in _STATEMENTS]
    return not any(
        _name(plan) in _OTHER_STATEMENTS or any(kind.isInstance(plan) for kind in kinds)
        for plan in _nodes(_state(session).sqlParser().parsePlan(text))
    )


def forget_code_functions(session: SparkSession) -> None:
    """Take the functions that call Java out of this session; others keep theirs."""
    functions = _state(session).functionRegistry()
    for name in _RUN_CODE:
        functions.dropFunction(jvm(session).org.apache.spark.sql.catalyst.FunctionIdentifier(name))


def code_function(error: PySparkException) -> str | None:
    """Which of these functions a query asked for."""
    if error.getCondition() != "UNRESOLVED_ROUTINE":
        return None
    named = (error.getMessageParameters() or {}).get("routineName", "")
    name = named.rpartition(".")[2].strip("`").lower()
    return name if name in _RUN_CODE else None


def runs_a_script(frame: DataFrame) -> bool:
    """Whether rows go through a shell command: SELECT TRANSFORM (…) USING '…'."""
    analyzed: Any = frame._jdf.queryExecution().analyzed()  # noqa: SLF001  # pyright: ignore
    return any(_name(plan) == "ScriptTransformation" for plan in _nodes(cast("Any", analyzed)))


def _nodes(plan: Any) -> Iterator[Any]:
    """A plan's nodes, those of the queries in its expressions among them."""
    waiting = [plan]
    while waiting:
        plan = waiting.pop()
        yield plan
        for parts in (plan.children().iterator(), plan.subqueries().iterator()):
            while parts.hasNext():
                waiting.append(parts.next())


def _name(plan: Any) -> str:
    return str(plan.getClass().getSimpleName())


def _state(session: SparkSession) -> Any:
    return session._jsparkSession.sessionState()  # noqa: SLF001  # pyright: ignore
