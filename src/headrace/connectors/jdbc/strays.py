"""What jobs that nobody knows left in a schema: found by labels, gone when it is old enough.

A stage table's name is a hash, so its comment says whose it is and when it was made, by the
database's own clock. A mark says both in its row. An incarnation that has no owner, and of which
everything here is older than `STRAY_GRACE_S`, is forgotten. A stage table without a label is left.
"""

from __future__ import annotations

import logging
import re
from collections import defaultdict
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from pyspark.sql import SparkSession

from headrace.connectors.jdbc.database import Connection, Database, connected
from headrace.connectors.jdbc.names import MARKS, STAGE, TableName
from headrace.connectors.jdbc.target import comments_of, is_there, located
from headrace.model.epoch import STRAY_GRACE_S, CommitAt

log = logging.getLogger(__name__)

STRAYS_TIMEOUT_S = 30  # of one statement
_LABEL = re.compile(r"headrace: staged by (?P<incarnation>\S+) at (?P<made_ms>\d+) ms")


@dataclass(slots=True)
class _Left:
    """By one incarnation, in one schema."""

    touched_ms: int = 0
    stages: list[TableName] = field(default_factory=list[TableName])


def label_stage(connection: Connection, database: Database, table: TableName, at: CommitAt) -> None:
    """In the transaction that makes the table."""
    said = f"headrace: staged by {at.epoch_at.incarnation} at {_now_ms(connection, database)} ms"
    connection.run(database.dialect.comment(table, said))


def forget_strays(
    session: SparkSession, database: Database, target: TableName, owners: Collection[str]
) -> None:
    """Drop and delete what incarnations other than `owners` left, and nobody touched since."""
    with connected(
        session, database, doing="looking for strays", timeout_s=STRAYS_TIMEOUT_S
    ) as connection:
        target = located(connection, target)
        idle_since_ms = _now_ms(connection, database) - round(STRAY_GRACE_S * 1000)
        marks = target.beside(MARKS)
        has_marks = is_there(connection, marks)
        for incarnation, left in _found(connection, database, target, marked=has_marks).items():
            if incarnation in owners or left.touched_ms >= idle_since_ms:
                continue
            facts = {"incarnation": incarnation, "schema": target.schema}
            log.warning("left by a job that nobody knows, deleted", extra=facts)
            for stage in left.stages:
                connection.run(database.dialect.drop(stage))
            if has_marks:
                statement = database.dialect.forget_marks(marks)
                connection.run(statement, incarnation, idle_since_ms)


def _found(
    connection: Connection, database: Database, target: TableName, *, marked: bool
) -> Mapping[str, _Left]:
    found: defaultdict[str, _Left] = defaultdict(_Left)
    for table, comment in comments_of(connection, target.schema, STAGE):
        if label := _LABEL.fullmatch(comment):
            left = found[label["incarnation"]]
            left.stages.append(table)
            left.touched_ms = max(left.touched_ms, int(label["made_ms"]))
    if marked:
        statement = database.dialect.marks_touched(target.beside(MARKS))
        for incarnation, touched_ms in connection.rows(statement):
            left = found[incarnation or ""]
            left.touched_ms = max(left.touched_ms, int(touched_ms or 0))
    return found


def _now_ms(connection: Connection, database: Database) -> int:
    ((now_ms,),) = connection.rows(database.dialect.now_ms())
    return int(now_ms or 0)
