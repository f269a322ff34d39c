"""Which value a database did not take: many of them say that one does not fit, and not which.

Asked only once a job has failed of it: the rows are read a second time, up to the first of them.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql import types as spark

from headrace.connectors.jdbc.database import Connection, Database, connected
from headrace.connectors.jdbc.names import TableName
from headrace.connectors.jdbc.target import pattern_of
from headrace.errors import HeadraceError
from headrace.formats.iceberg.jvm import JAVA_ERRORS
from headrace.model.text import shortened

log = logging.getLogger(__name__)

VALUE_CHARACTERS_SHOWN = 100
LENGTH_UNLIMITED = 2**31 - 1
# java.sql.Types
_TEXTS = frozenset({1, 12, -9, -15})
_WHOLE = {5: 2**15, 4: 2**31}  # one above the largest
_DECIMALS = frozenset({2, 3})


@dataclass(frozen=True, slots=True)
class _Room:
    """What a column of the table takes."""

    name: str
    kind: int
    type_name: str
    size: int
    scale: int

    def __str__(self) -> str:
        if self.kind in _TEXTS:
            return f"{self.type_name}({self.size})"
        scaled = self.kind in _DECIMALS
        return f"{self.type_name}({self.size},{self.scale})" if scaled else self.type_name

    def refuses(self, column: Column, of: spark.DataType) -> Column | None:
        """Where the column's values do not fit; None: nobody knows of such a type."""
        if self.kind in _TEXTS and isinstance(of, spark.StringType):
            return f.length(column) > self.size if 0 < self.size < LENGTH_UNLIMITED else None
        if not isinstance(of, spark.IntegralType | spark.DecimalType):
            return None
        if (above := _WHOLE.get(self.kind)) is not None:
            return (column >= above) | (column < -above)
        if self.kind in _DECIMALS and self.size > 0:
            return f.abs(column) >= f.lit(10 ** (self.size - self.scale)).cast("decimal(38,0)")
        return None


def find_misfit(
    session: SparkSession,
    frame: DataFrame,
    database: Database,
    table: TableName,
    columns: Sequence[str],
) -> str | None:
    """Column and value of the first row that does not fit `table`; None: it is not known."""
    try:
        with connected(session, database, doing="looking at the columns") as connection:
            rooms = {room.name: room for room in _rooms(connection, table)}
        return _first(frame, [rooms.get(name) for name in columns])
    except (*JAVA_ERRORS, HeadraceError) as error:  # what failed first is what is to be told
        log.info("what did not fit can't be found", extra={"reason": str(error)})
        return None


def _rooms(connection: Connection, table: TableName) -> Sequence[_Room]:
    about = connection.java.getMetaData()
    schema, name = (pattern_of(about, part) for part in (table.schema or "", table.table))
    found = about.getColumns(connection.java.getCatalog(), schema, name, "%")
    rooms: list[_Room] = []
    while found.next():
        rooms.append(
            _Room(
                found.getString("COLUMN_NAME"),
                int(found.getInt("DATA_TYPE")),
                found.getString("TYPE_NAME"),
                int(found.getInt("COLUMN_SIZE")),
                int(found.getInt("DECIMAL_DIGITS")),
            )
        )
    found.close()
    return rooms


def _first(frame: DataFrame, rooms: Sequence[_Room | None]) -> str | None:
    checks: list[tuple[_Room, Column]] = []
    for field, room in zip(frame.schema.fields, rooms, strict=True):
        column = frame["`" + field.name.replace("`", "``") + "`"]
        refused = room.refuses(column, field.dataType) if room is not None else None
        if room is not None and refused is not None:
            checks.append((room, f.when(refused, column.cast("string"))))
    if not checks:
        return None
    values = [value.alias(str(number)) for number, (_, value) in enumerate(checks)]
    some = f.coalesce(*(f.col(str(number)) for number in range(len(checks))))
    chosen = frame.select(*values).filter(some.isNotNull())
    for row in chosen.limit(1).collect():
        number = next(n for n in range(len(checks)) if row[n] is not None)
        room = checks[number][0]
        shown = shortened(str(row[number]), VALUE_CHARACTERS_SHOWN)
        return f"column {room.name!r}: {shown!r} does not fit into {room}"
    return None
