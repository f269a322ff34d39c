"""Delete what was staged, and only when its token is spent and nothing refers to it (E6).

A file deleted before that could still be committed by a process that was paused, and would leave
a table that nobody can read.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import Any
from urllib.parse import quote

from pyspark.sql import SparkSession

from headrace.errors import Refused
from headrace.formats.iceberg.catalogs import TableMissing, TableRef, load_table
from headrace.formats.iceberg.commit import look, spend_by_abort
from headrace.formats.iceberg.jvm import JAVA_ERRORS, java_classes, jvm
from headrace.formats.iceberg.staging import Handle
from headrace.formats.iceberg.token import CommitAt, Spent, SpentBy
from headrace.model.epoch import COMMIT_DEADLINE_S
from headrace.seams import seam

log = logging.getLogger(__name__)

_PREFIX_OPERATIONS = "org.apache.iceberg.io.SupportsPrefixOperations"


def abort(
    session: SparkSession, ref: TableRef, at: CommitAt, *, deadline_s: float = COMMIT_DEADLINE_S
) -> Spent | None:
    """Spend the token with no rows, then delete whatever was staged under it.

    When data was first, its files stay and all others go. None: there is no such table, so there
    is nothing to spend, and what was staged went with the table.
    """
    seam("before abort")
    try:
        spent = spend_by_abort(session, ref, at, deadline_s=deadline_s)
    except TableMissing:
        log.info("nothing to abort, no such table", extra={"table": str(ref)})
        return None
    seam("abort spent")
    _delete_unreferenced(session, ref, at, spent, kept=None)
    return spent


def sweep(session: SparkSession, ref: TableRef, handle: Handle | None, at: CommitAt) -> None:
    """Delete what other executions staged for an epoch whose token is spent."""
    spent = look(session, ref, at)
    if spent is None:
        if handle is None or not _is_staged(session, ref, at):
            # An epoch without rows: nothing was staged, and nothing committed. Or one whose mark
            # was forgotten before its job was restored: all that is left are the table's files.
            return
        raise Refused(f"{at.token} is not spent at {ref}; nothing was deleted")
    seam("before sweep")
    _delete_unreferenced(session, ref, at, spent, kept=handle.execution if handle else None)


def _is_staged(session: SparkSession, ref: TableRef, at: CommitAt) -> bool:
    table = load_table(session, ref)
    if not lists_prefixes(session, table.io()):
        return False
    return bool(_executions(table.io(), at.epoch_folder(str(table.location()))))


def lists_prefixes(session: SparkSession, io: Any) -> bool:
    return bool(jvm(session).java.lang.Class.forName(_PREFIX_OPERATIONS).isInstance(io))


def _delete_unreferenced(
    session: SparkSession, ref: TableRef, at: CommitAt, spent: Spent, *, kept: str | None
) -> None:
    table = load_table(session, ref)
    io = table.io()
    if not lists_prefixes(session, io):
        log.warning("staged files left to orphan cleaning", extra={"table": str(ref)})
        return
    folder = at.epoch_folder(str(table.location()))
    if spent.by is SpentBy.ABORT:
        io.deletePrefix(folder)
        return
    if spent.execution is None:  # its snapshot was expired: whose files were taken can't be told
        log.warning("staged files left to orphan cleaning", extra={"table": str(ref)})
        return
    keep = {quote(name, safe="") for name in (kept, spent.execution) if name}
    for execution in _executions(io, folder) - keep:
        io.deletePrefix(f"{folder}{execution}/")


def _executions(io: Any, folder: str) -> set[str]:
    """Names of the folders in which something is staged."""
    return {inside.partition("/")[0] for inside in paths_inside(io, folder)} - {""}


def paths_inside(io: Any, folder: str) -> Iterator[str]:
    """The files below a folder, by their paths from there on; none when it is not there."""
    marker = marker_of(folder)
    try:
        files = io.listPrefix(folder).iterator()
    except JAVA_ERRORS as error:
        if "FileNotFoundException" in java_classes(error):
            return
        raise
    while files.hasNext():
        yield str(files.next().location()).partition(marker)[2]


def marker_of(folder: str) -> str:
    """The part of a folder's name that is always the same: `file:/x` may be `file:///x`, too."""
    return folder[folder.index("/data/headrace/") :]
