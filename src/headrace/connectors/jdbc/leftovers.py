"""What jobs left in a schema: stage tables of known epochs, and strays.

Strays are what jobs without an owner left. A stage table's name is a hash, so its comment (the
label) says whose it is and when it was made, by the database's own clock. A mark says both in its
row. A stage table without a label is left alone.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace

from headrace.connectors.jdbc.database import Connection, Database
from headrace.connectors.jdbc.dialect import STAGE, TableName, stage_prefix
from headrace.connectors.jdbc.stage import STAGE_LABEL
from headrace.connectors.jdbc.target import comments_of, tables_with_prefix
from headrace.exactly_once.target import Stray
from headrace.model.jobs.epoch import CommitAt


def stages_of(
    connection: Connection, target: TableName, at: CommitAt
) -> list[tuple[CommitAt, TableName]]:
    """The stage tables of this sink up to `at.epoch`, with their epochs, in the order of epochs.

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


def find_strays(
    connection: Connection, database: Database, target: TableName, marks: TableName | None
) -> Sequence[Stray]:
    """Every incarnation that has a stage table or a mark in the schema of the target.

    `marks` is None when there is no table of marks.
    """
    touched_ms: defaultdict[str, int] = defaultdict(int)
    for _, incarnation, made_ms in _labelled_stages(connection, target):
        touched_ms[incarnation] = max(touched_ms[incarnation], made_ms)
    if marks is not None:
        for incarnation, spent_ms in connection.rows(database.dialect.marks_touched(marks)):
            known = touched_ms[incarnation or ""]
            touched_ms[incarnation or ""] = max(known, int(spent_ms or 0))
    return [Stray(incarnation, at_ms) for incarnation, at_ms in touched_ms.items()]


def stages_of_stray(
    connection: Connection, target: TableName, stray: Stray, idle_since_ms: int
) -> Sequence[TableName]:
    """The stage tables of a stray that were made before `idle_since_ms`."""
    return [
        table
        for table, incarnation, made_ms in _labelled_stages(connection, target)
        if incarnation == stray.incarnation and made_ms < idle_since_ms
    ]


def _labelled_stages(
    connection: Connection, target: TableName
) -> Sequence[tuple[TableName, str, int]]:
    """The stage tables of the schema that say whose they are, and when they were made."""
    labels = (
        (table, STAGE_LABEL.fullmatch(comment))
        for table, comment in comments_of(connection, target.schema, STAGE)
    )
    return [
        (table, label["incarnation"], int(label["made_ms"])) for table, label in labels if label
    ]
