"""Delete what was staged, and only when its token is spent and nothing refers to it (E6).

A file deleted before that could still be committed by a process that was paused, and would leave
a table that nobody can read.
"""

from __future__ import annotations

import logging
from typing import Any
from urllib.parse import quote

from pyspark.sql import SparkSession

from headrace.errors import Refused
from headrace.formats.iceberg.catalogs import TableMissing, TableRef, load_table
from headrace.formats.iceberg.commit import look, spend_by_abort
from headrace.formats.iceberg.jvm import JAVA_ERRORS, java_classes, jvm
from headrace.formats.iceberg.staging import Handle
from headrace.formats.iceberg.token import CommitAt, Spent, SpentBy
from headrace.seams import seam

log = logging.getLogger(__name__)

_PREFIX_OPERATIONS = "org.apache.iceberg.io.SupportsPrefixOperations"


def abort(session: SparkSession, ref: TableRef, at: CommitAt) -> Spent | None:
    """Spend the token with no rows, then delete whatever was staged under it.

    When data was first, its files stay and all others go. None: there is no such table, so there
    is nothing to spend, and what was staged went with the table.
    """
    seam("before abort")
    try:
        spent = spend_by_abort(session, ref, at)
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
        if not _is_staged(session, ref, at):
            return  # an epoch without rows: nothing was staged, and nothing committed
        raise Refused(f"{at.token} is not spent at {ref}; nothing was deleted")
    seam("before sweep")
    _delete_unreferenced(session, ref, at, spent, kept=handle.execution if handle else None)


def _is_staged(session: SparkSession, ref: TableRef, at: CommitAt) -> bool:
    table = load_table(session, ref)
    if not _lists_prefixes(session, table.io()):
        return False
    return bool(_executions(table.io(), at.epoch_folder(str(table.location()))))


def _lists_prefixes(session: SparkSession, io: Any) -> bool:
    return bool(jvm(session).java.lang.Class.forName(_PREFIX_OPERATIONS).isInstance(io))


def _delete_unreferenced(
    session: SparkSession, ref: TableRef, at: CommitAt, spent: Spent, *, kept: str | None
) -> None:
    table = load_table(session, ref)
    io = table.io()
    if not _lists_prefixes(session, io):
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
    marker = folder[folder.index("/data/headrace/") :]  # `file:/x` may come back as `file:///x`
    try:
        files = io.listPrefix(folder).iterator()
    except JAVA_ERRORS as error:
        if "FileNotFoundException" in java_classes(error):
            return set()
        raise
    found: set[str] = set()
    while files.hasNext():
        inside = str(files.next().location()).partition(marker)[2]
        found.add(inside.partition("/")[0])
    return found - {""}
