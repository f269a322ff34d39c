"""Delete what was staged for a table, and remove the marks of an ended job.

A staged file is deleted only when its token is spent and no snapshot refers to it (E6). Deleted
earlier, it could still be committed by a process that was paused, and would leave a table that
nobody can read. Committed files lie in the same folders as leftovers, so a folder is deleted only
when its token is spent and no snapshot refers to a file in it.

An abort says nothing about files. Where the mark was forgotten and the snapshot that names it is
expired, the token of a committed epoch looks unspent and can be spent by an abort. So what
snapshots refer to is asked after an abort, too, and not before it: a paused process may commit
until then.

Marks are removed by a compare-and-swap of the table's metadata: when a restored run of the job
raises the mark at this moment, the mark stays.
"""

from __future__ import annotations

import logging
import os
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from urllib.parse import quote

from pyspark.sql import SparkSession
from pyspark.sql import functions as f

from headrace.errors import Refused, Unavailable
from headrace.lake.iceberg.catalogs import TableRef, local_path, metadata_of
from headrace.lake.iceberg.creation import has_namespace, location_to_be
from headrace.lake.iceberg.snapshots import all_data_files
from headrace.lake.iceberg.token import COMMIT, SpentAtTable, TableCommitAt, find_spent
from headrace.model.jobs.epoch import SpentBy
from headrace.seams import seam
from headrace.spark.filesystem import NOTHING_TO_PRUNE
from headrace.spark.jvm_bridge import JAVA_ERRORS, java_classes, java_message, jvm

log = logging.getLogger(__name__)

FORGET_TRIES_MAX = 6
OWN_FOLDERS = 2  # above a sink's folder: its pipeline, its incarnation; the next one is shared
SHARED_FOLDERS = 3  # above those: headrace, data, the table's; pruned if it was never created

_PREFIX_OPERATIONS = "org.apache.iceberg.io.SupportsPrefixOperations"
_MAY_HAVE_LANDED = frozenset({"CommitFailedException", "CommitStateUnknownException"})
# A REST catalog's server gets the removal alone, and would remove a mark that was raised since.
_REST_OPERATIONS = "org.apache.iceberg.rest.RESTTableOperations"


@dataclass(frozen=True, slots=True)
class StagedEpoch:
    """What lies in the staging folder of one epoch."""

    at: TableCommitAt
    executions: frozenset[str]  # by the names of their folders
    spent: SpentAtTable | None
    referenced: frozenset[str]  # those of them in which some snapshot has a file, where that counts

    @property
    def committed_folder(self) -> str | None:
        """The folder of the execution whose files the table took; None when the snapshot that says
        so is gone, or the token is unspent, or an abort spent it."""
        if self.spent is None or self.spent.by is SpentBy.ABORT or self.spent.execution is None:
            return None
        return quote(self.spent.execution, safe="")

    @property
    def unreferenced(self) -> frozenset[str]:
        """The folders of executions whose files the table did not take, as far as it tells."""
        return self.executions - self.referenced - {self.committed_folder}


def has_staged(session: SparkSession, table: Any, at: TableCommitAt) -> bool:
    """Whether any execution has staged files for the epoch."""
    if not lists_prefixes(session, table.io()):
        return False
    return bool(_executions(table.io(), at.epoch_folder(str(table.location()))))


def delete_unreferenced(
    session: SparkSession,
    ref: TableRef,
    table: Any,
    at: TableCommitAt,
    spent: SpentAtTable,
    *,
    kept: str | None,
) -> None:
    """Delete what was staged under a spent token: after an abort the folders of all executions that
    no snapshot refers to, else of all but `kept` and the committed one. Nothing is deleted when the
    snapshot that names the committed execution is expired."""
    io, location = table.io(), str(table.location())
    if not lists_prefixes(session, io):
        log.warning("staged files left to orphan cleaning", extra={"table": str(ref)})
        return
    folder = at.epoch_folder(location)
    staged = _executions(io, folder)
    if spent.by is SpentBy.ABORT:
        keep = frozenset[str]()
        if staged:
            referenced = _referenced_folders(session, table, at.sink_folder(location))
            keep = _executions_of_epoch(referenced, at.epoch)
        if not keep:
            io.deletePrefix(folder)
            return
    elif spent.execution is None:  # its snapshot is expired: nobody knows whose files it has
        log.warning("staged files left to orphan cleaning", extra={"table": str(ref)})
        return
    else:
        keep = frozenset(quote(name, safe="") for name in (kept, spent.execution) if name)
    for execution in staged - keep:
        io.deletePrefix(f"{folder}{execution}/")
    prune_empty(folder)


def delete_for_missing(session: SparkSession, ref: TableRef, at: TableCommitAt) -> None:
    """Delete what was staged for a table that does not exist."""
    place = place_of_missing(session, ref)
    if place is None:
        return
    location, io = place
    folder = at.epoch_folder(location)
    if lists_prefixes(session, io):
        io.deletePrefix(folder)
        prune_empty(folder)


def staged_epochs(session: SparkSession, table: Any, at: TableCommitAt) -> Sequence[StagedEpoch]:
    """The staged epochs up to `at.epoch`, in order, each with what spent its token; none when the
    file system can't be listed."""
    if not lists_prefixes(session, table.io()):
        return ()
    # Read the table before its folders: a concurrent `forget` deletes in the other order.
    metadata = metadata_of(session, table)
    properties: Mapping[str, str] = metadata.get("properties", {})
    tokens: defaultdict[str, list[Mapping[str, Any]]] = defaultdict(list)
    snapshots: Sequence[Mapping[str, Any]] = metadata.get("snapshots", [])
    for snapshot in snapshots:
        tokens[str(snapshot.get("summary", {}).get(COMMIT, ""))].append(snapshot)
    sink_folder = at.sink_folder(str(table.location()))
    executions_by_epoch: defaultdict[int, set[str]] = defaultdict(set)
    for inside in paths_inside(table.io(), sink_folder):
        epoch, _, rest = inside.partition("/")
        if epoch.isdecimal() and int(epoch) <= at.epoch:
            executions_by_epoch[int(epoch)].add(rest.partition("/")[0])
    staged: list[StagedEpoch] = []
    for epoch, executions in sorted(executions_by_epoch.items()):
        one = replace(at, epoch_at=replace(at.epoch_at, epoch=epoch))
        spent = find_spent(one, properties=properties, snapshots=tokens.get(one.token, ()))
        staged.append(StagedEpoch(one, frozenset(executions), spent, frozenset()))
    if all(one.committed_folder for one in staged):
        return staged
    referenced = _referenced_folders(session, table, sink_folder)
    return [
        replace(one, referenced=_executions_of_epoch(referenced, one.at.epoch)) for one in staged
    ]


def delete_folders(
    session: SparkSession,
    ref: TableRef,
    table: Any,
    at: TableCommitAt,
    staged: Sequence[StagedEpoch],
) -> None:
    """Delete the folders of executions that no snapshot refers to, of epochs that are spent; then
    the empty folders of the sink."""
    if not lists_prefixes(session, table.io()):
        log.warning("staged files left to orphan cleaning", extra={"table": str(ref)})
        return
    location = str(table.location())
    for one in staged:
        folder = one.at.epoch_folder(location)
        for execution in sorted(one.unreferenced) if one.spent is not None else ():
            table.io().deletePrefix(f"{folder}{execution}/")
    _prune(at, location)


def prune_missing(session: SparkSession, ref: TableRef, at: TableCommitAt) -> None:
    """Remove the empty folders of a job at a table that does not exist. No files: they may belong
    to a table that was dropped without its files, in order to be registered again."""
    log.info("nothing to forget, no such table", extra={"table": str(ref)})
    if (place := place_of_missing(session, ref)) is not None:
        _prune(at, place[0], above=OWN_FOLDERS + SHARED_FOLDERS)


def forget_marks(session: SparkSession, ref: TableRef, table: Any, at: TableCommitAt) -> None:
    """Remove the marks by compare-and-swap, with a limited number of tries."""
    operations = table.operations()
    reason = ""
    for _ in range(FORGET_TRIES_MAX):
        base = operations.refresh()
        keys = _forgettable_keys(dict(base.properties()), at)
        if not keys:
            return
        if _lacks_compare_and_swap(session, operations):
            facts = {"table": str(ref), "marks": len(keys)}
            log.warning("marks left, this catalog can't compare and swap them", extra=facts)
            return
        seam("marks read")
        removed = jvm(session).org.apache.iceberg.TableMetadata.buildFrom(base)
        removed = removed.removeProperties(_java_set(session, keys)).build()
        try:
            operations.commit(base, removed)
        except JAVA_ERRORS as error:
            if _MAY_HAVE_LANDED.isdisjoint(java_classes(error)):
                raise
            # The table changed meanwhile, or no answer came: read it again.
            reason = java_message(error)
        else:
            return
    raise Unavailable(
        f"the marks of {at.token} could not be removed from {ref} in {FORGET_TRIES_MAX} tries; "
        f"the last reason was: {reason}"
    )


def place_of_missing(session: SparkSession, ref: TableRef) -> tuple[str, Any] | None:
    """Where a table that does not exist would lie, and its file system.

    None: its catalog would not create it, and so names no location. Then nothing was staged, or it
    was staged while the catalog still would have; either way a job must be able to end.
    """
    if not has_namespace(session, ref):
        return None
    try:
        return location_to_be(session, ref)
    except Refused as error:
        facts = {"table": str(ref), "reason": str(error)}
        log.warning("no place of a missing table, what was staged for it stays", extra=facts)
        return None


def lists_prefixes(session: SparkSession, io: Any) -> bool:
    """Whether the file system can list and delete by prefix."""
    return bool(jvm(session).java.lang.Class.forName(_PREFIX_OPERATIONS).isInstance(io))


def paths_inside(io: Any, folder: str) -> Iterator[str]:
    """The files below a folder, by their paths within it; none when the folder does not exist."""
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
    """The part of a folder's URI that is always the same: `file:/x` may also be written
    `file:///x`."""
    return folder[folder.index("/data/headrace/") :]


def prune_empty(folder: str) -> None:
    """Remove the empty folders below and including this one, deepest first.

    Files are listed and deleted by name, which leaves folders behind, also those of a writer that
    died before its first file. This is needed on the local file system only; elsewhere folders are
    just parts of names. `rmdir` checks and removes in one step, so a folder that holds anything
    stays (E6).
    """
    top = local_path(folder)
    for parent, _, _ in os.walk(top, topdown=False) if top is not None else ():
        prune_folder(Path(parent))


def prune_folder(path: Path) -> None:
    """Remove one folder if it is empty; nothing happens when it does not exist."""
    try:
        path.rmdir()
    except OSError as error:
        if error.errno not in NOTHING_TO_PRUNE:
            raise


def _executions(io: Any, folder: str) -> set[str]:
    """Names of the execution folders in which something is staged."""
    return {inside.partition("/")[0] for inside in paths_inside(io, folder)} - {""}


def _prune(at: TableCommitAt, location: str, *, above: int = OWN_FOLDERS) -> None:
    """Remove what is empty up to `at.epoch`, then the sink's folder and `above` folders over it."""
    top = local_path(at.sink_folder(location))
    if top is None or not top.is_dir():
        return
    for entry in top.iterdir():
        if entry.name.isdecimal() and int(entry.name) <= at.epoch:
            prune_empty(str(entry))
    for folder in (top, *list(top.parents)[:above]):
        prune_folder(folder)


def _referenced_folders(session: SparkSession, table: Any, folder: str) -> frozenset[str]:
    """`epoch/execution` of every folder in which some snapshot has a file."""
    inside = f.substring_index(f.col("file_path"), marker_of(folder), -1)
    rows = (
        all_data_files(session, table)
        .where(f.col("file_path").contains(marker_of(folder)))
        .select(f.substring_index(inside, "/", 2).alias("of"))
        .distinct()
        .collect()
    )
    return frozenset(str(row["of"]) for row in rows)


def _executions_of_epoch(referenced: frozenset[str], epoch: int) -> frozenset[str]:
    """The executions among these `epoch/execution` folders that are of this epoch."""
    beginning = f"{epoch}/"
    return frozenset(
        folder.removeprefix(beginning) for folder in referenced if folder.startswith(beginning)
    )


def _forgettable_keys(properties: Mapping[str, str], at: TableCommitAt) -> list[str]:
    """Properties of the table to remove: the mark, unless a later run of the job has raised it, and
    the aborts up to the epoch."""
    beginning = at.aborted_prefix
    keys = [
        key
        for key in properties
        if key.startswith(beginning)
        and key.removeprefix(beginning).isdecimal()
        and int(key.removeprefix(beginning)) <= at.epoch
    ]
    mark = properties.get(at.mark_key)
    if mark is not None and int(mark) <= at.epoch:
        keys.append(at.mark_key)
    return keys


def _lacks_compare_and_swap(session: SparkSession, operations: Any) -> bool:
    """Whether the catalog can't swap metadata only if nothing changed meanwhile."""
    return bool(jvm(session).java.lang.Class.forName(_REST_OPERATIONS).isInstance(operations))


def _java_set(session: SparkSession, keys: Sequence[str]) -> Any:
    made = jvm(session).java.util.HashSet()
    for key in keys:
        made.add(key)
    return made
