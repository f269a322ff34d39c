"""Forget an ended job at a database: delete all it left there but its committed rows.

Stage tables are dropped first and the mark is deleted last, since only the mark says that a token
is spent. A committer that wakes afterwards finds its stage table gone, and its transaction is
rolled back.

Strays are what jobs without an owner left in a schema. A stage table's name is a hash, so its
comment (the label) says whose it is and when it was made, by the database's own clock. A mark says
both in its row. An incarnation that has no owner, and of which everything in the schema is older
than `STRAY_GRACE_S`, is forgotten. A stage table without a label is left alone.
"""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace

from pyspark.sql import SparkSession

from headrace.connectors.jdbc.commit import DROP_TIMEOUT_S, abort, look
from headrace.connectors.jdbc.database import Connection, Database, connected
from headrace.connectors.jdbc.dialect import MARKS, STAGE, TableName, stage_prefix
from headrace.connectors.jdbc.stage import STAGE_LABEL, now_ms_of
from headrace.connectors.jdbc.target import comments_of, qualified, table_exists, tables_with_prefix
from headrace.model.jobs.epoch import STRAY_GRACE_S, CommitAt
from headrace.seams import seam

log = logging.getLogger(__name__)

STRAYS_TIMEOUT_S = 30  # for one statement


@dataclass(slots=True)
class _Stray:
    """What one incarnation left in a schema, and when it was last changed."""

    touched_ms: int = 0
    stages: list[TableName] = field(default_factory=list[TableName])


def forget(session: SparkSession, database: Database, target: TableName, at: CommitAt) -> None:
    """Drop the stage tables of every epoch up to `at.epoch`, then delete their mark.

    An epoch that is staged but not spent was given up in the store; an abort spends its token.
    """
    for commit_at in _unspent(session, database, target, at):
        log.info("given up and never aborted here", extra={"token": commit_at.token})
        abort(session, database, target, commit_at)
    with connected(
        session, database, doing="forgetting a job", timeout_s=DROP_TIMEOUT_S
    ) as connection:
        target = qualified(connection, target)
        seam("before leftovers are deleted")
        for _, table in _stages(connection, target, at):
            connection.run(database.dialect.drop(table))
        seam("before marks are forgotten")
        marks = target.beside(MARKS)
        if table_exists(connection, marks):
            owner = at.epoch_at
            values = (owner.incarnation, owner.pipeline, at.sink, at.epoch)
            connection.run(database.dialect.forget_mark(marks), *values)


def forget_strays(
    session: SparkSession, database: Database, target: TableName, owners: Collection[str]
) -> None:
    """Drop and delete what incarnations other than `owners` left here, once it is old enough."""
    with connected(
        session, database, doing="looking for strays", timeout_s=STRAYS_TIMEOUT_S
    ) as connection:
        target = qualified(connection, target)
        idle_since_ms = now_ms_of(connection, database) - round(STRAY_GRACE_S * 1000)
        marks = target.beside(MARKS)
        has_marks = table_exists(connection, marks)
        for incarnation, stray in _strays_by_incarnation(
            connection, database, target, marked=has_marks
        ).items():
            if incarnation in owners or stray.touched_ms >= idle_since_ms:
                continue
            facts = {"incarnation": incarnation, "schema": target.schema}
            log.warning("left by a job that nobody knows, deleted", extra=facts)
            for stage in stray.stages:
                connection.run(database.dialect.drop(stage))
            if has_marks:
                statement = database.dialect.forget_marks(marks)
                connection.run(statement, incarnation, idle_since_ms)


def _unspent(
    session: SparkSession, database: Database, target: TableName, at: CommitAt
) -> Sequence[CommitAt]:
    """Staged epochs that are not spent, the lowest first: a mark spends all epochs below it."""
    with connected(session, database, doing="looking for what a job left") as connection:
        target = qualified(connection, target)
        staged = {commit_at.epoch: commit_at for commit_at, _ in _stages(connection, target, at)}
        marks = target.beside(MARKS)
        has_marks = table_exists(connection, marks)
        return [
            commit_at
            for _, commit_at in sorted(staged.items())
            if not has_marks or look(connection, database, marks, commit_at) is None
        ]


def _stages(
    connection: Connection, target: TableName, at: CommitAt
) -> list[tuple[CommitAt, TableName]]:
    """The stage tables of this sink, with their epochs, in the order of epochs.

    A name is a hash, so the names of all possible epochs are computed and looked up. A job may have
    had millions of epochs, so only those with a table are kept.
    """
    prefix_length = len(stage_prefix(at))
    tables: defaultdict[str, list[TableName]] = defaultdict(list)
    for table in tables_with_prefix(connection, target.schema, STAGE):
        tables[table.table[:prefix_length]].append(table)
    if not tables:
        return []
    epochs = (replace(at, epoch_at=replace(at.epoch_at, epoch=n)) for n in range(at.epoch + 1))
    return [
        (commit_at, table)
        for commit_at in epochs
        for table in tables.get(stage_prefix(commit_at), ())
    ]


def _strays_by_incarnation(
    connection: Connection, database: Database, target: TableName, *, marked: bool
) -> Mapping[str, _Stray]:
    strays: defaultdict[str, _Stray] = defaultdict(_Stray)
    for table, comment in comments_of(connection, target.schema, STAGE):
        if label := STAGE_LABEL.fullmatch(comment):
            stray = strays[label["incarnation"]]
            stray.stages.append(table)
            stray.touched_ms = max(stray.touched_ms, int(label["made_ms"]))
    if marked:
        statement = database.dialect.marks_touched(target.beside(MARKS))
        for incarnation, touched_ms in connection.rows(statement):
            stray = strays[incarnation or ""]
            stray.touched_ms = max(stray.touched_ms, int(touched_ms or 0))
    return strays
