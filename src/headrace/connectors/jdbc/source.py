"""The Jdbc source: a table or a query, read once.

A database does not promise that the same query gives the same rows again (E5), so an epoch that
runs a second time may see others. What was prepared is committed and never read again, so every row
is still written once. Partitions are read in transactions of their own.
"""

from __future__ import annotations

from typing import cast

from pydantic import JsonValue
from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession

from headrace.connectors.connector import Setting, Source
from headrace.connectors.jdbc.database import connected, database_of
from headrace.connectors.jdbc.descriptor import JdbcSourceOptions
from headrace.connectors.jdbc.dialect import parts_of
from headrace.connectors.jdbc.sink import split_name
from headrace.connectors.jdbc.target import check_database, qualified
from headrace.errors import Refused
from headrace.protocol.messages import Slice
from headrace.spark.errors import one_line
from headrace.spark.jvm_bridge import JAVA_ERRORS

_DONE = "read"
_ALIAS = "headrace_query"


class JdbcSource(Source):
    bounded = True  # a query ends; a streaming job is refused when its job file is read
    repeatable = False
    takes_conditions = True

    def __init__(self, name: str, options: JdbcSourceOptions, setting: Setting) -> None:
        self.name = name
        self._options, self._parallelism = options, setting.parallelism
        self._title = f"source {name}"
        self._database = database_of(self._title, options.database)
        if bool(options.query) == bool(options.table_path):
            raise Refused(f"{self._title} needs the option 'query' or 'table_path', one of them")
        if (options.lower_bound is None) != (options.upper_bound is None):
            raise Refused(
                f"{self._title}: give both 'partition_lower_bound' and 'partition_upper_bound', or "
                "neither"
            )
        if options.lower_bound is not None and not options.partition_column:
            raise Refused(f"{self._title}: 'partition_lower_bound' needs a 'partition_column'")

    def plan(
        self,
        session: SparkSession,  # noqa: ARG002
        position: JsonValue,
        *,
        rows_max: int | None = None,  # noqa: ARG002
    ) -> Slice | None:
        """Everything in one slice: a query can't be divided without asking the database first."""
        if position is not None:
            return None
        return Slice(data=None, after=_DONE, last=True)

    def read(self, session: SparkSession, part: Slice) -> DataFrame:  # noqa: ARG002
        table = self._table(session)
        options = self._database.spark_options() | {
            "dbtable": table,
            "fetchsize": str(self._options.fetch_size or self._database.dialect.fetch_size),
        }
        options |= self._partitions(session, table)
        try:
            return session.read.format("jdbc").options(**options).load()
        except AnalysisException as error:
            raise Refused(f"{self._title}: {self._database}: {one_line(error)}") from error
        except JAVA_ERRORS as error:
            raise self._database.failed(session, error, doing="reading") from None

    def empty(self, session: SparkSession) -> DataFrame:
        return self.read(session, Slice(data=None, after=_DONE)).limit(0)  # columns: no query runs

    def _table(self, session: SparkSession) -> str:
        """What comes after FROM: a table, or a query in brackets."""
        where = self._options.where
        if self._options.query:
            text = self._options.query.strip().rstrip(";")
            inner = f"SELECT * FROM ({text}) {_ALIAS}_inner {where}" if where else text  # noqa: S608
            return f"({inner}) {_ALIAS}"
        named, table = split_name(
            self._title, parts_of(self._options.table_path or ""), database=None
        )
        with connected(session, self._database, doing="looking at the table") as connection:
            check_database(connection, self._database, named)
            quoted = self._database.dialect.table(qualified(connection, table))
        return f"(SELECT * FROM {quoted} {where}) {_ALIAS}" if where else quoted  # noqa: S608

    def _partitions(self, session: SparkSession, table: str) -> dict[str, str]:
        column = self._options.partition_column
        number = self._options.partitions or self._parallelism
        if not column or number == 1:
            return {}
        low, high = self._options.lower_bound, self._options.upper_bound
        if low is None:
            low, high = self._bounds(session, table, column)
        if low is None:
            return {}  # no row has a value in this column, so there is nothing to divide
        return {
            "partitionColumn": self._database.dialect.columns([column]),
            "lowerBound": low,
            "upperBound": str(high),
            "numPartitions": str(number),
        }

    def _bounds(
        self, session: SparkSession, table: str, column: str
    ) -> tuple[str | None, str | None]:
        name = self._database.dialect.columns([column])
        with connected(session, self._database, doing="asking for bounds") as connection:
            query = f"SELECT min({name}), max({name}) FROM {table}"  # noqa: S608 - quoted
            ((low, high),) = cast("list[tuple[str | None, str | None]]", connection.rows(query))
        return low, high
