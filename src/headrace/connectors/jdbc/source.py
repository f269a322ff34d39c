"""The Jdbc source: a table or a query, read once.

A database does not promise that the same query gives the same rows again (E5), so an epoch that
runs a second time may see others. What was prepared is committed and never read again, so every row
is still written once. Partitions are read in transactions of their own.
"""

from __future__ import annotations

from typing import Any, cast

from pydantic import JsonValue
from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession

from headrace.connectors.connector import Setting
from headrace.connectors.jdbc.database import connected, database_of
from headrace.connectors.jdbc.dialect import parts_of
from headrace.connectors.jdbc.sink import split_name
from headrace.connectors.jdbc.target import check_database, qualified
from headrace.errors import Refused
from headrace.protocol.messages import Slice
from headrace.spark.errors import one_line
from headrace.spark.jvm import JAVA_ERRORS

_DONE = "read"
_ALIAS = "headrace_query"


class JdbcSource:
    bounded = True  # a query ends; a streaming job is refused when its job file is read
    repeatable = False
    takes_conditions = True

    def __init__(self, name: str, setting: Setting) -> None:
        self.name = name
        self._options, self._parallelism = setting.options, setting.parallelism
        self._title = f"source {name}"
        self._database = database_of(self._title, setting.options)
        if bool(self._options.get("query")) == bool(self._options.get("table_path")):
            raise Refused(f"{self._title} needs the option 'query' or 'table_path', one of them")
        bounds = ("partition_lower_bound", "partition_upper_bound")
        given = [option for option in bounds if self._options.get(option) is not None]
        if len(given) == 1:
            raise Refused(f"{self._title}: give both {bounds[0]!r} and {bounds[1]!r}, or neither")
        if given and not self._options.get("partition_column"):
            raise Refused(f"{self._title}: {given[0]!r} needs a 'partition_column'")

    def plan(self, position: JsonValue, *, rows_max: int | None = None) -> Slice | None:  # noqa: ARG002
        """Everything in one slice: a query can't be divided without asking the database first."""
        if position is not None:
            return None
        return Slice(data=None, after=_DONE, last=True)

    def read(self, session: SparkSession, part: Slice) -> DataFrame:  # noqa: ARG002
        table = self._table(session)
        options = self._database.spark_options() | {
            "dbtable": table,
            "fetchsize": str(
                int(self._options.get("fetch_size") or 0) or self._database.dialect.fetch_size
            ),
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
        where: Any = self._options.get("where_condition")
        if query := self._options.get("query"):
            text = str(query).strip().rstrip(";")
            inner = f"SELECT * FROM ({text}) {_ALIAS}_inner {where}" if where else text  # noqa: S608
            return f"({inner}) {_ALIAS}"
        named, table = split_name(
            self._title, parts_of(str(self._options["table_path"])), database=None
        )
        with connected(session, self._database, doing="looking at the table") as connection:
            check_database(connection, self._database, named)
            quoted = self._database.dialect.table(qualified(connection, table))
        return f"(SELECT * FROM {quoted} {where}) {_ALIAS}" if where else quoted  # noqa: S608

    def _partitions(self, session: SparkSession, table: str) -> dict[str, str]:
        column: Any = self._options.get("partition_column")
        number = int(self._options.get("partition_num") or self._parallelism)
        if not column or number == 1:
            return {}
        low: Any = self._options.get("partition_lower_bound")
        high: Any = self._options.get("partition_upper_bound")
        if low is None:
            low, high = self._bounds(session, table, str(column))
        if low is None:
            return {}  # no row has a value in this column, so there is nothing to divide
        return {
            "partitionColumn": self._database.dialect.columns([str(column)]),
            "lowerBound": str(low),
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
