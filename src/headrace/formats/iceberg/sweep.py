"""Delete what was staged, and only when its token is spent and nothing refers to it (E6).

A file deleted before that could still be committed by a process that was paused, and would leave
a table that nobody can read.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

from pyspark.sql import SparkSession

from headrace.errors import Refused
from headrace.formats.files.filesystem import NOTHING_TO_PRUNE
from headrace.formats.iceberg.catalogs import TableMissing, TableRef, load_table, local_path
from headrace.formats.iceberg.commit import look, spend_by_abort
from headrace.formats.iceberg.create import has_namespace, location_to_be
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

    When data was first nothing is deleted: who asks knows less than the table does (E7). None:
    there is no such table, so there is nothing to spend. What was staged for it goes all the same:
    only what is planned is aborted, and only what is prepared is ever committed.
    """
    seam("before abort")
    try:
        spent = spend_by_abort(session, ref, at, deadline_s=deadline_s)
    except TableMissing:
        log.info("nothing to abort, no such table", extra={"table": str(ref)})
        _delete_staged_for_missing(session, ref, at)
        return None
    seam("abort spent")
    if spent.by is SpentBy.ABORT:
        _delete_unreferenced(session, ref, at, spent, kept=None)
    return spent


def _delete_staged_for_missing(session: SparkSession, ref: TableRef, at: CommitAt) -> None:
    place = place_of_missing(session, ref)
    if place is None:
        return
    location, io = place
    folder = at.epoch_folder(location)
    if lists_prefixes(session, io):
        io.deletePrefix(folder)
        prune_empty(folder)


def place_of_missing(session: SparkSession, ref: TableRef) -> tuple[str, Any] | None:
    """Where a table that is not there would lie, and its file system.

    None: its catalog would not make it, so that it tells no place either. Nothing was staged then,
    or it was while the catalog still would; a job must not be kept from its end by that.
    """
    if not has_namespace(session, ref):
        return None
    try:
        return location_to_be(session, ref)
    except Refused as error:
        facts = {"table": str(ref), "reason": str(error)}
        log.warning("no place of a missing table, what was staged for it stays", extra=facts)
        return None


def sweep(session: SparkSession, ref: TableRef, handle: Handle | None, at: CommitAt) -> None:
    """Delete what other executions staged for an epoch whose token is spent."""
    try:
        spent = look(session, ref, at)
    except TableMissing:
        return  # no epoch had rows yet, so nothing is committed; or somebody dropped it with them
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
    prune_empty(folder)


def prune_empty(folder: str) -> None:
    """Remove the folders in which nothing is left, the deepest first.

    Files are found and deleted by their names, so that folders stay, also those of a writer that
    died before its first file. Only where they are more than a part of names: on the local file
    system, whose `rmdir` refuses one that holds anything, in the step in which it removes (E6).
    """
    top = local_path(folder)
    for parent, _, _ in os.walk(top, topdown=False) if top is not None else ():
        prune_folder(Path(parent))


def prune_folder(path: Path) -> None:
    """Remove one folder if nothing is in it; nothing happens when it is not there."""
    try:
        path.rmdir()
    except OSError as error:
        if error.errno not in NOTHING_TO_PRUNE:
            raise


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
