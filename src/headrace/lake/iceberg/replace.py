"""Replace data files by their rewritten ones, exactly once, fenced by the process's token.

Rows do not change, so the new files keep the sequence number of the planned snapshot: an equality
delete that came meanwhile still applies to them. Groups that conflict with what others did are
reported and left out, and the rest is committed. Staged files are deleted only after the token is
spent.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, ClassVar

from pyspark.sql import SparkSession
from pyspark.sql import functions as f

from headrace.clock import Clock
from headrace.errors import Refused, TokenSpent
from headrace.exactly_once.spend import deadline_of, spend
from headrace.lake.iceberg.catalogs import TableMissing, TableRef, load_table
from headrace.lake.iceberg.commit import CommitGuard, TableChange, abort_change, look
from headrace.lake.iceberg.commit_target import IcebergTarget
from headrace.lake.iceberg.file_records import (
    DeleteKey,
    data_files,
    delete_files,
    delete_key,
    references,
)
from headrace.lake.iceberg.replace_conflicts import (
    BinGroup,
    Conflict,
    find_conflicts,
    loses_deletes,
)
from headrace.lake.iceberg.rewrite import check_same_table, home_of
from headrace.lake.iceberg.snapshots import all_data_files
from headrace.lake.iceberg.sweep import lists_prefixes, marker_of, paths_inside, prune_empty
from headrace.lake.iceberg.token import (
    ABORTS_KEPT,
    ProcessAt,
    SpentAtTable,
    format_ranges,
    parse_ranges,
)
from headrace.lake.table_format import Replaced
from headrace.model.jobs.epoch import COMMIT_DEADLINE_S, SpentBy
from headrace.seams import seam
from headrace.spark.jvm_bridge import JAVA_ERRORS, java_message, jvm

log = logging.getLogger(__name__)

GROUPS = "headrace.groups"  # in the snapshot's summary: the groups that it replaced


def replace(
    session: SparkSession,
    ref: TableRef,
    groups: Sequence[BinGroup],
    at: ProcessAt,
    *,
    before: Sequence[BinGroup] = (),
    clock: Clock | None = None,
    deadline_s: float = COMMIT_DEADLINE_S,
) -> Replaced:
    """Replace all groups in one commit, except those that conflict. `TokenSpent` after an abort.

    `before`: groups of the same plan that an earlier commit has replaced; a delete file that only
    they and these groups needed is removed. When every group conflicts, nothing is committed and
    the token is still unspent: the process has to be aborted.
    """
    left, conflicts = list(groups), dict[int, str]()
    while left:  # every round drops at least one group
        change = _Replacement(session, ref, left, before).change(at)
        deadline = deadline_of(at.commit_at.epoch_at, deadline_s, clock=clock)
        try:
            outcome = spend(IcebergTarget(session, ref), at.commit_at, change, deadline=deadline)
        except Conflict as conflict:
            log.info("groups conflict", extra={"table": str(ref), "groups": conflict.reasons})
            conflicts |= conflict.reasons
            left = [group for group in left if group.number not in conflict.reasons]
            continue
        return _result_of(ref, at, outcome.spent, conflicts, already=outcome.already)
    return Replaced(already=False, snapshot=None, groups=frozenset(), conflicts=conflicts)


def look_replaced(session: SparkSession, ref: TableRef, at: ProcessAt) -> Replaced | None:
    """Read from the table whether this process has replaced its files; None while its token is
    unspent. Raises `TokenSpent` when it was aborted."""
    spent = look(session, ref, at.commit_at)
    return None if spent is None else _result_of(ref, at, spent, {}, already=True)


def abort(
    session: SparkSession, ref: TableRef, at: ProcessAt, *, deadline_s: float = COMMIT_DEADLINE_S
) -> SpentAtTable | None:
    """Spend the token without a change, then delete staged files that no snapshot refers to.

    The result says what spent the token: this abort, or a commit before it, whose files stay. None:
    the table does not exist any more.
    """
    try:
        spent = give_up(session, ref, at, deadline_s=deadline_s)
    except TableMissing:
        log.info("nothing to abort, no such table", extra={"table": str(ref)})
        return None
    discard(session, ref, at)
    return spent


def give_up(
    session: SparkSession,
    ref: TableRef,
    at: ProcessAt,
    *,
    clock: Clock | None = None,
    deadline_s: float = COMMIT_DEADLINE_S,
) -> SpentAtTable:
    """Spend the token without a change, and delete nothing yet."""
    commit_at = at.commit_at
    change = abort_change(commit_at, aborts_kept=ABORTS_KEPT)
    deadline = deadline_of(commit_at.epoch_at, deadline_s, clock=clock)
    return spend(IcebergTarget(session, ref), commit_at, change, deadline=deadline).spent


def discard(session: SparkSession, ref: TableRef, at: ProcessAt) -> int:
    """Delete what the process staged and no snapshot refers to; returns how many files. Its token
    must be spent (E6)."""
    spent = look(session, ref, at.commit_at)
    if spent is None:
        raise Refused(f"{at.token} is not spent at {ref}; nothing was deleted")
    table = load_table(session, ref)
    io, folder = table.io(), at.process_folder(home_of(table))
    if not lists_prefixes(session, io):
        log.warning("staged files left to orphan cleaning", extra={"table": str(ref)})
        return 0
    staged = set(paths_inside(io, folder))
    unreferenced = staged - _referenced_files(session, table, folder) if staged else staged
    for inside in sorted(unreferenced):
        io.deleteFile(f"{folder}{inside}")
    prune_empty(folder)
    return len(unreferenced)


def unclaimed(
    session: SparkSession, ref: TableRef, at: ProcessAt, kept: Iterable[str]
) -> frozenset[str]:
    """Files that the process staged beside `kept`: rewrites by executions that were lost. Cheap: it
    lists one folder, and no snapshot."""
    table = load_table(session, ref)
    io, folder = table.io(), at.process_folder(home_of(table))
    if not lists_prefixes(session, io):
        return frozenset()
    marker = marker_of(folder)
    return frozenset(paths_inside(io, folder)) - {path.partition(marker)[2] for path in kept}


def dangling(groups: Sequence[BinGroup], before: Sequence[BinGroup] = ()) -> list[dict[str, Any]]:
    """Delete files that apply to no data file once the groups are replaced. A delete file with any
    other user stays."""
    seen: Counter[DeleteKey] = Counter()
    users: dict[DeleteKey, int] = {}
    records: dict[DeleteKey, dict[str, Any]] = {}
    for group in (*before, *groups):
        for inputs in group.bins:
            for record, total in zip(inputs.deletes, inputs.users, strict=True):
                users[delete_key(record)] = total
            for task in inputs.tasks:
                applied = [inputs.deletes[index] for index in references(task)]
                seen.update(delete_key(record) for record in applied)
                records.update((delete_key(record), record) for record in applied)
    return [record for key, record in records.items() if seen[key] == users[key]]


def _result_of(
    ref: TableRef,
    at: ProcessAt,
    spent: SpentAtTable,
    conflicts: Mapping[int, str],
    *,
    already: bool,
) -> Replaced:
    """Raises `TokenSpent` when an abort spent the token."""
    if spent.by is SpentBy.ABORT:
        raise TokenSpent(at.token, str(ref))
    groups = parse_ranges(spent.summary[GROUPS]) if GROUPS in spent.summary else None
    return Replaced(already, spent.snapshot, groups, conflicts)


class _ReplacementGuard:
    """A `CommitGuard` that also refuses to lose deletes. Iceberg calls it for every attempt."""

    def __init__(self, guard: CommitGuard, loses_deletes: Callable[[], bool]) -> None:
        self._guard, self._loses_deletes = guard, loses_deletes

    def validate(self, snapshots: Any) -> bool:
        valid = self._guard.validate(snapshots) and not self._loses_deletes()
        seam("table replacement validated")
        return valid

    def errorMessage(self) -> str:  # noqa: N802 - Java's name
        return f"{self._guard.errorMessage()}, or an equality delete would be lost"

    class Java:
        implements: ClassVar[list[str]] = ["org.apache.iceberg.SnapshotAncestryValidator"]


class _GuardedUpdate:
    """Iceberg's update of a table, as far as commit.py uses it, with the stricter guard."""

    def __init__(self, update: Any, loses_deletes: Callable[[], bool]) -> None:
        self._update, self._loses_deletes = update, loses_deletes

    def set(self, key: str, value: str) -> _GuardedUpdate:
        self._update.set(key, value)
        return self

    def validateWith(self, guard: CommitGuard) -> None:  # noqa: N802 - Java's name
        self._update.validateWith(_ReplacementGuard(guard, self._loses_deletes))

    def commit(self) -> None:
        self._update.commit()


class _Replacement:
    """One commit of some groups. Every attempt begins anew, on the table as it is then."""

    def __init__(
        self,
        session: SparkSession,
        ref: TableRef,
        groups: Sequence[BinGroup],
        before: Sequence[BinGroup],
    ) -> None:
        self._session, self._ref = session, ref
        self._groups, self._before = groups, before
        self._refused = False

    def change(self, at: ProcessAt) -> TableChange:
        return TableChange(SpentBy.DATA, at.execution, self._begin, ABORTS_KEPT)

    def _begin(self, table: Any, transaction: Any) -> Any:
        if self._refused:  # an earlier attempt was refused, perhaps because of others' changes
            reasons = find_conflicts(self._session, table, self._groups)
            if reasons:
                raise Conflict(str(self._ref), reasons)
        self._refused = True
        first = self._groups[0].bins[0]
        bins = [inputs for group in self._groups for inputs in group.bins]
        for inputs in bins:
            check_same_table(table, self._ref, inputs)
            if inputs.snapshot != first.snapshot:
                raise Refused(
                    f"bins of {self._ref} were planned from snapshots {first.snapshot} and "
                    f"{inputs.snapshot}; replace them in two commits"
                )
        added = [file for group in self._groups for made in group.rewritten for file in made.added]
        self._check_files_exist(table, added)
        session = self._session
        update = transaction.newRewrite().validateFromSnapshot(first.snapshot)
        update = update.dataSequenceNumber(first.sequence)
        update.rewriteFiles(
            data_files(session, table, [task["data-file"] for one in bins for task in one.tasks]),
            delete_files(session, table, dangling(self._groups, self._before)),
            data_files(session, table, added),
            jvm(session).java.util.HashSet(),
        )
        update.set(GROUPS, format_ranges(group.number for group in self._groups))
        return _GuardedUpdate(update, self._loses_deletes)

    def _loses_deletes(self) -> bool:
        table = load_table(self._session, self._ref)
        return loses_deletes(self._session, table, self._groups)

    def _check_files_exist(self, table: Any, added: Sequence[Mapping[str, Any]]) -> None:
        """Refuse rewritten files that are gone or cut short: Iceberg's commit does not look at
        files, and would leave a table that nobody can read."""
        io = table.io()
        for file in added:
            path, size = file["file-path"], int(file["file-size-in-bytes"])
            try:
                whole = int(io.newInputFile(path).getLength()) == size
            except JAVA_ERRORS as error:
                log.info("staged file not read", extra={"path": path, "why": java_message(error)})
                whole = False
            if not whole:
                raise Refused(
                    f"what was rewritten for {self._ref} is gone or damaged ({path}); plan again"
                )


def _referenced_files(session: SparkSession, table: Any, folder: str) -> set[str]:
    """Files in the folder that some snapshot refers to, by their paths within it."""
    marker = marker_of(folder)
    path = f.col("file_path")
    paths = all_data_files(session, table).where(path.contains(marker)).select(path).distinct()
    return {str(row[0]).partition(marker)[2] for row in paths.collect()}
