"""Change a table under a token, and ask it what spent one (E1, E3, E4).

The table itself is the fence: it refuses a token that is spent. The change and its mark go in one
transaction, whose snapshot is guarded by a validator. Iceberg calls the validator anew for every
attempt on a newer state of the table, so nothing can slip in between the check and the change.
commit_target.py makes a target of it for exactly_once, which decides what is tried and believed.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from pyspark.sql import SparkSession

from headrace.errors import Refused, Unavailable
from headrace.exactly_once.spend import check_deadline
from headrace.lake.iceberg.catalogs import TableMissing, TableRef, load_table, metadata_of
from headrace.lake.iceberg.creation import Creation, begin_creation, check_fits
from headrace.lake.iceberg.stage import StagedFilesHandle, manifest_of
from headrace.lake.iceberg.token import (
    COMMIT,
    COMMITTER,
    EXECUTION,
    SPENT_BY,
    SpentAtTable,
    TableCommitAt,
    find_spent,
    holds_rows,
    old_aborts,
)
from headrace.model.jobs.epoch import Deadline, SpentBy
from headrace.spark.jvm_bridge import jvm, start_callbacks

ADDED_BYTES = "added-files-size"  # in a snapshot's summary; Iceberg adds it to its total
_INHERITS_ID = "compatibility.snapshot-id-inheritance.enabled"


@dataclass(frozen=True, slots=True)
class TableChange:
    """The change that a token is spent on."""

    by: SpentBy
    execution: str  # that staged the files, not that commits them: a sweep spares its folder
    begin: Callable[[Any, Any], Any]  # (table, transaction) -> the update, uncommitted
    # For how many earlier tokens the table keeps the property that tells an abort from data after
    # its snapshot was expired. None: for all of them.
    aborts_kept: int | None = None
    creation: Creation | None = None  # how to make the table, if there is none
    # Called with an existing table; raises when what is to be committed does not belong into it.
    check: Callable[[Any], None] | None = None

    @property
    def creates_target(self) -> bool:
        return self.creation is not None


def rows_change(
    session: SparkSession,
    ref: TableRef,
    handle: StagedFilesHandle,
    at: TableCommitAt,
    *,
    may_create: bool = True,
    seen: str | None = None,
) -> TableChange:
    """Make what was staged visible.

    `may_create`: a table that did not exist when the rows were staged may be created. `seen`: the
    uuid of the table that this execution found when it began.
    """

    def append(table: Any, transaction: Any) -> Any:
        return _append(session, table, transaction, handle)

    def check(table: Any) -> None:
        _check_table(session, ref, table, handle, at, seen)

    creation = handle.creation if may_create else None
    return TableChange(SpentBy.DATA, handle.execution, append, creation=creation, check=check)


def abort_change(at: TableCommitAt, *, aborts_kept: int | None = None) -> TableChange:
    """Spend the token with a snapshot that adds nothing."""

    def begin(_: Any, transaction: Any) -> Any:
        return transaction.newAppend()

    return TableChange(SpentBy.ABORT, at.execution, begin, aborts_kept)


def look(session: SparkSession, ref: TableRef, at: TableCommitAt) -> SpentAtTable | None:
    """Load the table afresh and read what spent the token; None while it is unspent (E3)."""
    return spent_in(session, load_table(session, ref), at)


def spent_in(session: SparkSession, table: Any, at: TableCommitAt) -> SpentAtTable | None:
    """What spent the token, as a table says that was just loaded."""
    # After a commit it is nearly always the current snapshot: that spares all the other metadata.
    current = table.currentSnapshot()
    if current is not None:
        snapshot = json.loads(jvm(session).org.apache.iceberg.SnapshotParser.toJson(current))
        if snapshot.get("summary", {}).get(COMMIT) == at.token:
            return find_spent(at, properties={}, snapshots=[snapshot])
    metadata = metadata_of(session, table)
    properties: Mapping[str, str] = metadata.get("properties", {})
    snapshots: Sequence[Mapping[str, Any]] = metadata.get("snapshots", [])
    return find_spent(at, properties=properties, snapshots=snapshots)


class CommitGuard:
    """Iceberg's SnapshotAncestryValidator: `validate` returns False to refuse the commit.

    It ignores the snapshots that Iceberg passes: they end where snapshots were expired, and come
    from a table that may be cached. What counts is the table as it is at this moment. An exception
    raised in here refuses the commit, too.
    """

    def __init__(
        self,
        session: SparkSession,
        ref: TableRef,
        at: TableCommitAt,
        deadline: Deadline | None,
        *,
        creates: bool = False,
    ) -> None:
        """`creates`: the commit creates the table. A missing table is then no reason to refuse: it
        holds no token, and the catalog refuses to create one that exists."""
        self._session, self._ref, self._at, self._deadline = session, ref, at, deadline
        self._creates = creates

    def check_deadline(self) -> None:
        check_deadline(str(self._ref), self._at, self._deadline)

    def validate(self, _snapshots: Any) -> bool:
        if self._deadline is not None and self._deadline.passed:
            return False
        try:
            return look(self._session, self._ref, self._at) is None
        except TableMissing:
            return self._creates

    def errorMessage(self) -> str:  # noqa: N802 - Java's name
        return f"commit token {self._at.token} is spent, or its deadline has passed"

    class Java:
        implements: ClassVar[list[str]] = ["org.apache.iceberg.SnapshotAncestryValidator"]


def make_change(
    session: SparkSession,
    ref: TableRef,
    table: Any,
    at: TableCommitAt,
    change: TableChange,
    *,
    committer: str,
    deadline: Deadline | None,
) -> None:
    """One fenced transaction on `table`; None: there is none, and the change creates it.

    It may be repeated: the guard refuses what has landed before. Java's errors pass through: some
    say that it was refused, some that nobody knows.
    """
    start_callbacks(session)
    guard = CommitGuard(session, ref, at, deadline, creates=table is None)
    if table is not None:
        if change.check is not None:
            change.check(table)
        transaction = table.newTransaction()
    elif change.creation is not None:
        transaction = begin_creation(session, ref, change.creation)
        table = transaction.table()
    else:
        raise TableMissing(ref)
    _change(table, transaction, at, change, guard, committer)


def _change(
    table: Any,
    transaction: Any,
    at: TableCommitAt,
    change: TableChange,
    guard: CommitGuard,
    committer: str,
) -> None:
    snapshot = change.begin(table, transaction)
    snapshot.set(COMMIT, at.token).set(SPENT_BY, change.by.value)
    snapshot.set(EXECUTION, change.execution).set(COMMITTER, committer)
    snapshot.validateWith(guard)
    snapshot.commit()
    # The snapshot comes first: otherwise the guard would see the mark of its own transaction.
    properties = transaction.updateProperties().set(at.mark_key, str(at.epoch))
    if change.by is SpentBy.ABORT:
        properties = properties.set(at.aborted_key, at.execution)
    if change.aborts_kept is not None:
        for key in old_aborts(dict(table.properties()), at, kept=change.aborts_kept):
            properties = properties.remove(key)
    properties.commit()
    # A catalog that creates a table does not call the guard again, however long ago the snapshot
    # was validated.
    guard.check_deadline()
    transaction.commitTransaction()


def _check_table(
    session: SparkSession,
    ref: TableRef,
    table: Any,
    handle: StagedFilesHandle,
    at: TableCommitAt,
    seen: str | None,
) -> None:
    """Refuse a table that is not the one the rows were staged for (E1).

    A table that was created since then is accepted when it holds rows of the same job, or existed
    when this execution began. Otherwise it may have been created after the job had ended and its
    own table was dropped, while this process was paused: the marks went with the dropped table, and
    nothing else shows that this commit comes too late.
    """
    if handle.creation is None:
        if str(table.uuid()) != handle.uuid:
            raise Refused(
                f"{handle.table} was dropped and made anew since execution {handle.execution} "
                "staged its rows; run the job again"
            )
        return
    check_fits(session, ref, table, handle.creation)
    if str(table.uuid()) != seen and not holds_rows(at, dict(table.properties())):
        raise Unavailable(
            f"{ref} was made by somebody else since this execution began, so it can't tell whether "
            "it is too late to commit; the next attempt can"
        )


def _append(session: SparkSession, table: Any, transaction: Any, handle: StagedFilesHandle) -> Any:
    append = transaction.newAppend()
    if handle.manifest is not None:
        append.appendManifest(manifest_of(session, table, handle))
        if handle.bytes is not None and not _is_copied(table):
            append.set(ADDED_BYTES, str(handle.bytes))
    return append


def _is_copied(table: Any) -> bool:
    """Whether Iceberg reads an appended manifest and writes its own copy. It then counts the bytes
    itself, and accepts no other number. It does not look into any other manifest."""
    current = table.operations().current()
    inherits = str(current.property(_INHERITS_ID, "false")).lower() == "true"
    return int(current.formatVersion()) == 1 and not inherits
