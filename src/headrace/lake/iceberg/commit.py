"""Commit to a table exactly once: spend a token by data, or by an abort.

The table itself is the fence: it refuses a token that is spent. The change and its mark go in one
transaction, whose snapshot is guarded by a validator. Iceberg calls the validator anew for every
attempt on a newer state of the table, so nothing can slip in between the check and the change. A
refusal, a lost answer and a crash are all settled in the same way: look at the table, then decide
(E1, E3, E4).
"""

from __future__ import annotations

import json
import logging
import threading
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from pyspark.sql import SparkSession

from headrace.clock import Clock, SystemClock
from headrace.errors import Fenced, Refused, TokenSpent, Unavailable
from headrace.lake.iceberg.catalogs import TableMissing, TableRef, load_table, metadata_of
from headrace.lake.iceberg.creation import Creation, TableExists, begin_creation, check_fits
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
    read_mark,
)
from headrace.model.jobs.epoch import COMMIT_DEADLINE_S, Deadline, SpentBy, now
from headrace.seams import seam
from headrace.spark.jvm import JAVA_ERRORS, java_classes, java_message, jvm, start_callbacks

log = logging.getLogger(__name__)

SPEND_TRIES_MAX = 6
SPEND_WAIT_S = 0.5  # before the second try; doubled before each further one
ADDED_BYTES = "added-files-size"  # in a snapshot's summary; Iceberg adds it to its total
_INHERITS_ID = "compatibility.snapshot-id-inheritance.enabled"


@dataclass(frozen=True, slots=True)
class TableCommit:
    """What became of a commit."""

    already: bool  # the token was spent by somebody else's commit of the same data
    spent: SpentAtTable


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


def commit(
    session: SparkSession,
    ref: TableRef,
    handle: StagedFilesHandle,
    at: TableCommitAt,
    *,
    clock: Clock | None = None,
    deadline_s: float = COMMIT_DEADLINE_S,
    may_create: bool = True,
    seen: str | None = None,
) -> TableCommit:
    """Make what was staged visible, exactly once. Raises `TokenSpent` when an abort was first.

    `may_create`: a table that did not exist when the rows were staged may be created. `seen`: the
    uuid of the table that this execution found when it began.
    """
    seam("before sink commit")

    def append(table: Any, transaction: Any) -> Any:
        return _append(session, table, transaction, handle)

    def check(table: Any) -> None:
        _check_table(session, ref, table, handle, at, seen)

    creation = handle.creation if may_create else None
    change = TableChange(SpentBy.DATA, handle.execution, append, creation=creation, check=check)
    outcome = spend(session, ref, at, change, clock=clock, deadline_s=deadline_s)
    seam("sink committed")
    if outcome.spent.by is SpentBy.ABORT:
        raise TokenSpent(at.token, str(ref))
    return outcome


def spend_by_abort(
    session: SparkSession,
    ref: TableRef,
    at: TableCommitAt,
    *,
    clock: Clock | None = None,
    deadline_s: float = COMMIT_DEADLINE_S,
    aborts_kept: int | None = None,
) -> SpentAtTable:
    """Spend the token without committing rows. The result says what spent it: this abort, or data
    before it."""

    def begin(_: Any, transaction: Any) -> Any:
        return transaction.newAppend()

    nothing = TableChange(SpentBy.ABORT, at.execution, begin, aborts_kept)
    return spend(session, ref, at, nothing, clock=clock, deadline_s=deadline_s).spent


def spend(
    session: SparkSession,
    ref: TableRef,
    at: TableCommitAt,
    change: TableChange,
    *,
    clock: Clock | None = None,
    deadline_s: float = COMMIT_DEADLINE_S,
) -> TableCommit:
    """Make one change under the token. The result says what spent it: this, or another before.

    Retries with back-off. `Fenced` past the deadline; `Unavailable` if the table took nothing.
    """
    start_callbacks(session)
    clock = clock or SystemClock()
    deadline = Deadline(clock, at.epoch_at.since or now(clock), deadline_s)
    committer = uuid.uuid4().hex
    reason = ""
    for tries in range(SPEND_TRIES_MAX):
        table = _load(session, ref, change)
        spent = _spent_in(session, table, at) if table is not None else None
        if spent is None:
            guard = CommitGuard(session, ref, at, deadline, creates=table is None)
            result = _try(session, table, ref, at, change, guard, committer)
            if isinstance(result, SpentAtTable):
                return TableCommit(already=False, spent=result)
            table = _load(session, ref, change)
            reason, spent = result, _spent_in(session, table, at) if table is not None else None
        if spent is not None:
            return TableCommit(already=spent.summary.get(COMMITTER) != committer, spent=spent)
        if deadline.passed:
            raise Fenced(
                f"the commit of {at.token} to {ref} began more than {deadline} ago; "
                "this execution is too old to commit"
            )
        threading.Event().wait(SPEND_WAIT_S * 2**tries)
    raise Unavailable(
        f"{ref} did not take the commit {at.token} in {SPEND_TRIES_MAX} tries, and does not hold "
        f"it; nothing was deleted; the last reason was {reason}"
    )


def look(session: SparkSession, ref: TableRef, at: TableCommitAt) -> SpentAtTable | None:
    """Load the table afresh and read what spent the token; None while it is unspent (E3)."""
    return _spent_in(session, load_table(session, ref), at)


def look_marked(
    session: SparkSession, ref: TableRef, at: TableCommitAt
) -> tuple[str | None, tuple[int, SpentBy] | None]:
    """The uuid of the table, None when there is no table; and the highest epoch that is spent with
    what spent it, None when none is."""
    try:
        table = load_table(session, ref)
    except TableMissing:
        return None, None
    return str(table.uuid()), read_mark(at, dict(table.properties()))


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
        deadline: Deadline,
        *,
        creates: bool = False,
    ) -> None:
        """`creates`: the commit creates the table. A missing table is then no reason to refuse: it
        holds no token, and the catalog refuses to create one that exists."""
        self._session, self._ref, self._at, self._deadline = session, ref, at, deadline
        self._creates = creates

    def check_deadline(self) -> None:
        if self._deadline.passed:
            raise Fenced(self.errorMessage())

    def validate(self, _snapshots: Any) -> bool:
        if self._deadline.passed:
            return False
        try:
            return look(self._session, self._ref, self._at) is None
        except TableMissing:
            return self._creates

    def errorMessage(self) -> str:  # noqa: N802 - Java's name
        return f"commit token {self._at.token} is spent, or its deadline has passed"

    class Java:
        implements: ClassVar[list[str]] = ["org.apache.iceberg.SnapshotAncestryValidator"]


def _load(session: SparkSession, ref: TableRef, change: TableChange) -> Any:
    """The table as it is now; None when it does not exist and the change creates it."""
    try:
        return load_table(session, ref)
    except TableMissing:
        if change.creation is None:
            raise
        return None


def _try(
    session: SparkSession,
    table: Any,
    ref: TableRef,
    at: TableCommitAt,
    change: TableChange,
    guard: CommitGuard,
    committer: str,
) -> SpentAtTable | str:
    """Try once. Returns the commit, or the reason why it is not confirmed.

    Only a confirmed commit is believed. After any other answer, or none, the caller looks at the
    table.
    """
    try:
        if table is None and change.creation is not None:
            transaction = begin_creation(session, ref, change.creation)
            return _attempt(session, transaction.table(), at, change, guard, committer, transaction)
        return _attempt(session, table, at, change, guard, committer)
    except (Fenced, TableExists) as error:
        return str(error)
    except JAVA_ERRORS as error:
        reason = f"{java_classes(error)[0]}: {java_message(error)}"
        log.info("commit not confirmed", extra={"table": str(ref), "reason": reason})
        return reason
    except Refused:
        reloaded = _load(session, ref, change)
        if reloaded is None or _spent_in(session, reloaded, at) is None:
            raise
        return "spent by somebody else, and swept"


def _attempt(
    session: SparkSession,
    table: Any,
    at: TableCommitAt,
    change: TableChange,
    guard: CommitGuard,
    committer: str,
    creating: Any = None,
) -> SpentAtTable:
    """One fenced transaction. It is safe to repeat: the guard refuses what has landed before.

    `creating`: a transaction that creates the table; the catalog refuses it when the table exists.
    """
    if creating is None and change.check is not None:
        change.check(table)
    transaction = creating or table.newTransaction()
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
    committed = json.loads(
        jvm(session).org.apache.iceberg.SnapshotParser.toJson(transaction.table().currentSnapshot())
    )
    return SpentAtTable(
        change.by, int(committed["snapshot-id"]), change.execution, committed["summary"]
    )


def _spent_in(session: SparkSession, table: Any, at: TableCommitAt) -> SpentAtTable | None:
    metadata = metadata_of(session, table)
    properties: Mapping[str, str] = metadata.get("properties", {})
    snapshots: Sequence[Mapping[str, Any]] = metadata.get("snapshots", [])
    return find_spent(at, properties=properties, snapshots=snapshots)


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
