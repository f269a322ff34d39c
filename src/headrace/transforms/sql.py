"""Sql: one query over the tables it reads, in Spark's SQL.

The tables are temp views of the task's own session, so nothing outlives the task. `NOW()` and its
like are literals of the epoch's plan: an epoch that is run again gives the same rows (E5).
"""

from __future__ import annotations

from collections.abc import Mapping

from pyspark.errors import AnalysisException, ParseException, PySparkException
from pyspark.sql import DataFrame, SparkSession

from headrace.errors import Refused
from headrace.formats.spark_errors import one_line
from headrace.formats.spark_queries import code_function, is_query, runs_code
from headrace.transforms.now import fix_now

_MISSING_TABLE = "TABLE_OR_VIEW_NOT_FOUND"


class SqlTransform:
    has_conditions = True

    def __init__(self, name: str, query: str) -> None:
        if not query.strip():
            raise Refused(f"transform {name} needs the option 'query', a SELECT statement")
        self.name, self._query = name, query

    def __call__(
        self, session: SparkSession, inputs: Mapping[str, DataFrame], *, now_ms: int
    ) -> DataFrame:
        for table, frame in inputs.items():
            frame.createOrReplaceTempView(f"`{table}`" if "." in table else table)
        query = fix_now(self._query, now_ms=now_ms)
        try:
            self._check(session, query)
            frame = self._run(session, query, inputs)
        except (AnalysisException, ParseException) as error:
            raise self._refused(one_line(error)) from error
        if (why := runs_code(frame)) is not None:
            raise self._refused(why)
        if not frame.columns:
            raise self._refused("the query gives no columns; select at least one")
        return frame

    def _check(self, session: SparkSession, query: str) -> None:
        """Refuse a text that does more than ask, before any of it is given to Spark."""
        if not is_query(session, query):
            raise self._refused("query must be a SELECT statement, and is another one")
        if (function := code_function(session, query)) is not None:
            raise self._refused(f"function {function} runs Java code; leave it out")

    def _refused(self, why: str) -> Refused:
        return Refused(f"transform {self.name}: {why}")

    def _run(self, session: SparkSession, query: str, inputs: Mapping[str, DataFrame]) -> DataFrame:
        try:
            return session.sql(query)  # pyright: ignore[reportUnknownMemberType]
        except AnalysisException as error:
            named = _missing_table(error)
            if named is None or len(inputs) != 1:
                raise
            # As in SeaTunnel: with a single input the name in the query need not be right.
            next(iter(inputs.values())).createOrReplaceTempView(named)
            return session.sql(query)  # pyright: ignore[reportUnknownMemberType]


def _missing_table(error: PySparkException) -> str | None:
    if error.getCondition() != _MISSING_TABLE:
        return None
    named = (error.getMessageParameters() or {}).get("relationName", "")
    parts = named.strip("`").split("`.`")
    return parts[0] if len(parts) == 1 and parts[0] else None
