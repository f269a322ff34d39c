"""Leave nothing of an ended job at a table but its rows: first what was staged, last the marks.

In this order, since only marks tell that a token is spent. Committed files lie in the same folders
as leftovers, so a folder goes only when its token is spent and no snapshot refers to a file in it
(E6). Marks go by a compare-and-swap of the table's metadata: a restored run of the job that raises
the mark at this moment keeps it.
"""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any
from urllib.parse import quote

from pyspark.sql import SparkSession
from pyspark.sql import functions as f

from headrace.errors import Unavailable
from headrace.formats.iceberg.catalogs import (
    TableMissing,
    TableRef,
    load_table,
    local_path,
    metadata_of,
)
from headrace.formats.iceberg.commit import spend_by_abort
from headrace.formats.iceberg.jvm import JAVA_ERRORS, java_classes, java_message, jvm
from headrace.formats.iceberg.reading import all_data_files
from headrace.formats.iceberg.sweep import (
    lists_prefixes,
    marker_of,
    paths_inside,
    place_of_missing,
    prune_empty,
    prune_folder,
)
from headrace.formats.iceberg.token import COMMIT, CommitAt, Spent, SpentBy, find_spent
from headrace.seams import seam

log = logging.getLogger(__name__)

FORGET_TRIES_MAX = 6
OWN_FOLDERS = 2  # above that of a sink: its pipeline, and its incarnation; others share the next
SHARED_FOLDERS = 3  # of a table: headrace, data, its own; they go if it was never made
_MAY_HAVE_LANDED = frozenset({"CommitFailedException", "CommitStateUnknownException"})
# Its server is sent the removal alone, and would apply it to a mark that was raised since.
_BLIND_OPERATIONS = "org.apache.iceberg.rest.RESTTableOperations"


@dataclass(frozen=True, slots=True)
class _Staged:
    """What lies in the folder of one epoch."""

    at: CommitAt
    executions: frozenset[str]  # as their folders are called
    spent: Spent | None

    @property
    def taken(self) -> str | None:
        """Whose folder the table refers to, where the snapshot still tells."""
        if self.spent is None or self.spent.execution is None:
            return None
        return quote(self.spent.execution, safe="")


def forget(session: SparkSession, ref: TableRef, at: CommitAt) -> None:
    """Sweep every epoch up to `at.epoch`, then remove their marks.

    One that is staged and not spent was given up in the store: an abort spends its token first.
    """
    try:
        table = load_table(session, ref)
    except TableMissing:
        log.info("nothing to forget, no such table", extra={"table": str(ref)})
        # Empty folders only: the files may be those of a table that was dropped without them, to
        # be registered again.
        if (place := place_of_missing(session, ref)) is not None:
            _prune(at, place[0], above=OWN_FOLDERS + SHARED_FOLDERS)
        return
    if lists_prefixes(session, table.io()):
        folders = _leftovers(session, ref, table, at)
        seam("before leftovers are deleted")
        for folder in folders:
            table.io().deletePrefix(folder)
        _prune(at, str(table.location()))
    else:
        log.warning("staged files left to orphan cleaning", extra={"table": str(ref)})
    seam("before marks are forgotten")
    _forget_marks(session, ref, table, at)


def _prune(at: CommitAt, location: str, *, above: int = OWN_FOLDERS) -> None:
    """What is empty up to `at.epoch`, then the folder of the sink and so many `above` it."""
    top = local_path(at.sink_folder(location))
    if top is None or not top.is_dir():
        return
    for entry in top.iterdir():
        if entry.name.isdecimal() and int(entry.name) <= at.epoch:
            prune_empty(str(entry))
    for folder in (top, *list(top.parents)[:above]):
        prune_folder(folder)


def _leftovers(session: SparkSession, ref: TableRef, table: Any, at: CommitAt) -> list[str]:
    """Folders of executions that no snapshot refers to."""
    location = str(table.location())
    staged = _staged(session, table, at)
    untold = [one for one in staged if one.taken is None and not _is_aborted(one)]
    referred = _referred(session, table, at.sink_folder(location)) if untold else frozenset[str]()
    folders: list[str] = []
    for one in staged:
        taken = {one.taken} if one.taken else _of_epoch(referred, one.at.epoch)
        left = one.executions if _is_aborted(one) else one.executions - taken
        if left and one.spent is None:
            log.info("given up and never aborted here", extra={"token": one.at.token})
            spend_by_abort(session, ref, one.at)
        folder = one.at.epoch_folder(location)
        folders += [f"{folder}{execution}/" for execution in sorted(left)]
    return folders


def _staged(session: SparkSession, table: Any, at: CommitAt) -> list[_Staged]:
    # The table before its folders: whoever forgets beside us deletes in the other order.
    told = metadata_of(session, table)
    properties: Mapping[str, str] = told.get("properties", {})
    tokens: defaultdict[str, list[Mapping[str, Any]]] = defaultdict(list)
    snapshots: Sequence[Mapping[str, Any]] = told.get("snapshots", [])
    for snapshot in snapshots:
        tokens[str(snapshot.get("summary", {}).get(COMMIT, ""))].append(snapshot)
    found: defaultdict[int, set[str]] = defaultdict(set)
    for inside in paths_inside(table.io(), at.sink_folder(str(table.location()))):
        epoch, _, rest = inside.partition("/")
        if epoch.isdecimal() and int(epoch) <= at.epoch:
            found[int(epoch)].add(rest.partition("/")[0])
    staged: list[_Staged] = []
    for epoch, executions in sorted(found.items()):
        one = replace(at, epoch_at=replace(at.epoch_at, epoch=epoch))
        spent = find_spent(one, properties=properties, snapshots=tokens.get(one.token, ()))
        staged.append(_Staged(one, frozenset(executions), spent))
    return staged


def _is_aborted(one: _Staged) -> bool:
    return one.spent is not None and one.spent.by is SpentBy.ABORT


def _referred(session: SparkSession, table: Any, folder: str) -> frozenset[str]:
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


def _of_epoch(referred: frozenset[str], epoch: int) -> frozenset[str]:
    beginning = f"{epoch}/"
    return frozenset(of.removeprefix(beginning) for of in referred if of.startswith(beginning))


def _forget_marks(session: SparkSession, ref: TableRef, table: Any, at: CommitAt) -> None:
    operations = table.operations()
    reason = ""
    for _ in range(FORGET_TRIES_MAX):
        base = operations.refresh()
        keys = _spent_keys(dict(base.properties()), at)
        if not keys:
            return
        if _is_blind(session, operations):
            facts = {"table": str(ref), "marks": len(keys)}
            log.warning("marks left, this catalog can't compare and swap them", extra=facts)
            return
        seam("marks read")
        removed = jvm(session).org.apache.iceberg.TableMetadata.buildFrom(base)
        removed = removed.removeProperties(_set(session, keys)).build()
        try:
            operations.commit(base, removed)
        except JAVA_ERRORS as error:
            if _MAY_HAVE_LANDED.isdisjoint(java_classes(error)):
                raise
            reason = java_message(error)  # changed since, or no answer: look again
        else:
            return
    raise Unavailable(
        f"the marks of {at.token} could not be removed from {ref} in {FORGET_TRIES_MAX} tries; "
        f"the last reason was: {reason}"
    )


def _spent_keys(properties: Mapping[str, str], at: CommitAt) -> list[str]:
    """Of the table: a mark that no later run of the job has raised, and aborts up to the epoch."""
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


def _is_blind(session: SparkSession, operations: Any) -> bool:
    return bool(jvm(session).java.lang.Class.forName(_BLIND_OPERATIONS).isInstance(operations))


def _set(session: SparkSession, keys: Sequence[str]) -> Any:
    made = jvm(session).java.util.HashSet()
    for key in keys:
        made.add(key)
    return made
