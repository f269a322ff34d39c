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
from headrace.transforms.now import fix_now

_MISSING_TABLE = "TABLE_OR_VIEW_NOT_FOUND"


class SqlTransform:
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
            return self._run(session, query, inputs)
        except (AnalysisException, ParseException) as error:
            raise Refused(f"transform {self.name}: {one_line(error)}") from error

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
