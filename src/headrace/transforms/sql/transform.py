"""Sql: a transform that runs one query over the tables it reads, in Spark's SQL.

The tables are temp views of the task's own session, so nothing outlives the task. A query in
SeaTunnel's dialect is translated first (dialect.py), once for each schema of the inputs.

`NOW()` and its like are replaced by literals, the time of the epoch's plan: an epoch that is run
again must give the same rows (E5), but Spark has no setting for the current time and would answer
anew on each run. They are replaced wherever they are not part of a text, a comment, a quoted name
or a longer name. Times are in UTC, as the session is.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime

from pyspark.errors import AnalysisException, ParseException, PySparkException
from pyspark.sql import DataFrame, SparkSession

from headrace.errors import Refused
from headrace.spark.errors import one_line
from headrace.spark.sql_guard import code_function, is_query, runs_code
from headrace.spark.sql_types import types_by_number
from headrace.transforms.sql.descriptor import Engine, SqlOptions
from headrace.transforms.sql.dialect import AmbiguousSql, translate

_MISSING_TABLE = "TABLE_OR_VIEW_NOT_FOUND"
_TOKEN = re.compile(
    r"""
      (?P<kept>
          '(?:[^'\\]|\\.|'')*' | "(?:[^"\\]|\\.|"")*" | `(?:[^`]|``)*`   # texts, quoted names
        | --[^\n]* | /\*.*?\*/                                           # comments
        | \.\s*[A-Za-z_]\w*                                              # the field of something
        | \bas\s+[A-Za-z_]\w*                                            # an alias
      )
    | \b(?P<word>current_timestamp|current_date|current_time|localtimestamp)\b
      (?P<call>\s*\(\s*\))?(?!\s*[.(])
    | \b(?P<function>now|curdate|unix_timestamp)\s*\(\s*\)
    """,
    re.IGNORECASE | re.VERBOSE | re.DOTALL,
)

_LITERALS: dict[str, Callable[[datetime], str]] = {
    "current_timestamp": lambda now: f"TIMESTAMP '{_text(now)}Z'",
    "now": lambda now: f"TIMESTAMP '{_text(now)}Z'",
    "localtimestamp": lambda now: f"TIMESTAMP_NTZ '{_text(now)}'",
    "current_date": lambda now: f"DATE '{now.date().isoformat()}'",
    "current_time": lambda now: f"'{now.time().isoformat('seconds')}'",  # a text, as such columns
    "curdate": lambda now: f"DATE '{now.date().isoformat()}'",
    "unix_timestamp": lambda now: f"{int(now.timestamp())}L",
}


class SqlTransform:
    """Runs a SELECT over its inputs. Raises `Refused` for any other statement."""

    has_conditions = True

    def __init__(self, name: str, options: SqlOptions, setting: object) -> None:  # noqa: ARG002
        if not options.query.strip():
            raise Refused(f"transform {name} needs the option 'query', a SELECT statement")
        self.name, self._query, self._engine = name, options.query, options.engine
        # By the schemas of the inputs: the query, and the names of its columns if Spark knows them.
        self._translated: dict[str, tuple[str, Sequence[str]]] = {}

    def __call__(
        self, session: SparkSession, inputs: Mapping[str, DataFrame], *, now_ms: int
    ) -> DataFrame:
        for table, frame in inputs.items():
            frame.createOrReplaceTempView(f"`{table}`" if "." in table else table)
        try:
            translated, names = self._in_spark_sql(session, inputs, now_ms=now_ms)
            query = fix_now(translated, now_ms=now_ms)
            frame = self._analyzed(session, query, inputs)
        except (AnalysisException, ParseException) as error:
            raise self._refused(one_line(error)) from error
        except AmbiguousSql as error:
            raise self._refused(str(error)) from None
        if (why := runs_code(frame)) is not None:
            raise self._refused(why)
        if not frame.columns:
            raise self._refused("the query gives no columns; select at least one")
        renamed = len(names) == len(frame.columns) and [*names] != frame.columns
        return frame.toDF(*names) if renamed else frame

    def _in_spark_sql(
        self, session: SparkSession, inputs: Mapping[str, DataFrame], *, now_ms: int
    ) -> tuple[str, Sequence[str]]:
        if self._engine is Engine.SPARK:
            return self._query, ()
        schemas = "".join(f"{table} {frame.schema.json()}" for table, frame in inputs.items())
        if schemas not in self._translated:
            translated = translate(
                self._query,
                engine=self._engine,
                # Some of what gives the time is a word that Spark itself does not know.
                types_of=lambda text: types_by_number(
                    self._analyzed(session, fix_now(text, now_ms=now_ms), inputs),
                    "headrace",
                ),
            )
            names: Sequence[str] = ()
            if self._engine is None and translated != self._query:
                names = self._names(session, inputs, now_ms=now_ms)
            self._translated = {schemas: (translated, names)}
        return self._translated[schemas]

    def _names(
        self, session: SparkSession, inputs: Mapping[str, DataFrame], *, now_ms: int
    ) -> Sequence[str]:
        """The columns as Spark calls them in the query as it is written, or none where only
        SeaTunnel could run that."""
        query = fix_now(self._query, now_ms=now_ms)
        try:
            return self._analyzed(session, query, inputs).columns
        except AnalysisException:  # the translated query is what counts, and says what is wrong
            return ()

    def _analyzed(
        self, session: SparkSession, query: str, inputs: Mapping[str, DataFrame]
    ) -> DataFrame:
        self._check(session, query)
        return self._run(session, query, inputs)

    def _check(self, session: SparkSession, query: str) -> None:
        """Refuse a text that is more than a query, before Spark runs any of it."""
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
            # As in SeaTunnel: with a single input, the query may call its table by any name.
            next(iter(inputs.values())).createOrReplaceTempView(named)
            try:
                return session.sql(query)  # pyright: ignore[reportUnknownMemberType]
            finally:
                # The plan has the rows by now. The next epoch, or another transform, must not find
                # them under this name.
                session.catalog.dropTempView(named)


def fix_now(query: str, *, now_ms: int) -> str:
    """The query with the time of the epoch in place of NOW() and its like."""
    now = datetime.fromtimestamp(now_ms / 1000, tz=UTC)

    def literal(match: re.Match[str]) -> str:
        if match["kept"] is not None:
            return match[0]
        return f"({_LITERALS[(match['word'] or match['function']).lower()](now)})"

    return _TOKEN.sub(literal, query)


def _text(now: datetime) -> str:
    return now.replace(tzinfo=None).isoformat(" ", "milliseconds")


def _missing_table(error: PySparkException) -> str | None:
    if error.getCondition() != _MISSING_TABLE:
        return None
    named = (error.getMessageParameters() or {}).get("relationName", "")
    parts = named.strip("`").split("`.`")
    return parts[0] if len(parts) == 1 and parts[0] else None
