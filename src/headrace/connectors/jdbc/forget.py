"""Leave nothing of an ended job at a database but its rows: first stage tables, last the mark.

In this order, since only the mark tells that a token is spent. A committer that wakes afterwards
finds its stage table gone, and its transaction is rolled back.
"""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace

from pyspark.sql import SparkSession

from headrace.connectors.jdbc.commit import DROP_TIMEOUT_S, abort
from headrace.connectors.jdbc.database import Connection, Database, connected
from headrace.connectors.jdbc.names import MARKS, STAGE, TableName, stage_prefix
from headrace.connectors.jdbc.spend import look
from headrace.connectors.jdbc.target import is_there, located, tables_with
from headrace.model.epoch import CommitAt
from headrace.seams import seam

log = logging.getLogger(__name__)


def forget(session: SparkSession, database: Database, target: TableName, at: CommitAt) -> None:
    """Drop the stage tables of every epoch up to `at.epoch`, then delete their mark.

    One that is staged and not spent was given up in the store: an abort spends its token first.
    """
    for one in _unspent(session, database, target, at):
        log.info("given up and never aborted here", extra={"token": one.token})
        abort(session, database, target, one)
    with connected(
        session, database, doing="forgetting a job", timeout_s=DROP_TIMEOUT_S
    ) as connection:
        target = located(connection, target)
        seam("before leftovers are deleted")
        for _, table in _stages(connection, target, at):
            connection.run(database.dialect.drop(table))
        seam("before marks are forgotten")
        marks = target.beside(MARKS)
        if is_there(connection, marks):
            whose = at.epoch_at
            values = (whose.incarnation, whose.pipeline, at.sink, at.epoch)
            connection.run(database.dialect.forget_mark(marks), *values)


def _unspent(
    session: SparkSession, database: Database, target: TableName, at: CommitAt
) -> Sequence[CommitAt]:
    """Epochs for which something is staged, the lowest first: a mark says it of all below it."""
    with connected(session, database, doing="looking for what a job left") as connection:
        target = located(connection, target)
        staged = {one.epoch: one for one, _ in _stages(connection, target, at)}
        marks = target.beside(MARKS)
        has_marks = is_there(connection, marks)
        return [
            one
            for _, one in sorted(staged.items())
            if not has_marks or look(connection, database, marks, one) is None
        ]


def _stages(
    connection: Connection, target: TableName, at: CommitAt
) -> list[tuple[CommitAt, TableName]]:
    """What is staged, by epoch. A name is a hash, so all that could be there are made; a job may
    have had millions of epochs, so none is kept that is not found."""
    beginning = len(stage_prefix(at))
    tables: defaultdict[str, list[TableName]] = defaultdict(list)
    for table in tables_with(connection, target.schema, STAGE):
        tables[table.table[:beginning]].append(table)
    if not tables:
        return []
    epochs = (replace(at, epoch_at=replace(at.epoch_at, epoch=n)) for n in range(at.epoch + 1))
    return [(one, table) for one in epochs for table in tables.get(stage_prefix(one), ())]
