"""Spend a token at a table: by data, or by an abort. The table itself refuses a second time.

The change and its mark go in one transaction whose snapshot is guarded by a validator. Iceberg
calls it anew for every attempt on a newer state of the table, so nothing can slip in between the
check and the change. A refusal, a lost answer and a crash are all settled in the same way: look at
the table, then decide (E1, E3, E4).
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
from headrace.formats.iceberg.catalogs import TableMissing, TableRef, load_table, metadata_of
from headrace.formats.iceberg.create import Creation, TableExists, begin_creation, check_fits
from headrace.formats.iceberg.jvm import (
    JAVA_ERRORS,
    java_classes,
    java_message,
    jvm,
    start_callbacks,
)
from headrace.formats.iceberg.staging import Handle, manifest_of
from headrace.formats.iceberg.token import (
    COMMIT,
    COMMITTER,
    EXECUTION,
    SPENT_BY,
    CommitAt,
    Spent,
    SpentBy,
    find_spent,
    holds_rows,
    marked,
    old_aborts,
)
from headrace.model.deadline import Deadline, now
from headrace.model.epoch import COMMIT_DEADLINE_S
from headrace.seams import seam

log = logging.getLogger(__name__)

ADDED_BYTES = "added-files-size"  # of a snapshot's summary, from which Iceberg counts the total
_INHERITS_ID = "compatibility.snapshot-id-inheritance.enabled"
SPEND_TRIES_MAX = 6
SPEND_WAIT_S = 0.5  # before the second try; doubled before each further one


@dataclass(frozen=True, slots=True)
class Outcome:
    already: bool  # the token was spent by somebody else's commit of the same data
    spent: Spent


@dataclass(frozen=True, slots=True)
class Change:
    """What a token is spent on."""

    by: SpentBy
    execution: str  # whose files they are, not who commits them: sweeping spares its folder
    begin: Callable[[Any, Any], Any]  # (table, transaction): the snapshot to be, uncommitted
    # How many tokens back an abort is told from data once its snapshot is expired. None: for ever.
    aborts_kept: int | None = None
    creation: Creation | None = None  # makes the table, when it is not there
    # Of one that is there: raises when what is to be committed does not belong into it.
    check: Callable[[Any], None] | None = None


def look(session: SparkSession, ref: TableRef, at: CommitAt) -> Spent | None:
    """Ask the table, loaded afresh, what spent the token (E3)."""
    return _spent_in(session, load_table(session, ref), at)


def look_marked(
    session: SparkSession, ref: TableRef, at: CommitAt
) -> tuple[str | None, tuple[int, SpentBy] | None]:
    """Ask the table for its uuid, and for the highest epoch that is spent. None: there is no table,
    or none is."""
    try:
        table = load_table(session, ref)
    except TableMissing:
        return None, None
    return str(table.uuid()), marked(at, dict(table.properties()))


def _spent_in(session: SparkSession, table: Any, at: CommitAt) -> Spent | None:
    told = metadata_of(session, table)
    properties: Mapping[str, str] = told.get("properties", {})
    snapshots: Sequence[Mapping[str, Any]] = told.get("snapshots", [])
    return find_spent(at, properties=properties, snapshots=snapshots)


class Guard:
    """Iceberg's SnapshotAncestryValidator: false refuses the commit.

    The snapshots it is given are not asked: they end where snapshots were expired, and come from
    a table that may be cached. What counts is the table as it is at this moment. An exception in
    here refuses, too.
    """

    def __init__(
        self,
        session: SparkSession,
        ref: TableRef,
        at: CommitAt,
        deadline: Deadline,
        *,
        creates: bool = False,
    ) -> None:
        """`creates`: a table that is not there holds no token; the catalog refuses to create one
        that is."""
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


def commit(
    session: SparkSession,
    ref: TableRef,
    handle: Handle,
    at: CommitAt,
    *,
    clock: Clock | None = None,
    deadline_s: float = COMMIT_DEADLINE_S,
    may_create: bool = True,
    seen: str | None = None,
) -> Outcome:
    """Make what was staged visible, once. `TokenSpent` when an abort was first.

    `may_create`: a table that was not there when the rows were staged may be made. `seen`: the uuid
    of the table that this execution found when it began.
    """
    seam("before sink commit")

    def append(table: Any, transaction: Any) -> Any:
        return _append(session, table, transaction, handle)

    def check(table: Any) -> None:
        _check_table(session, ref, table, handle, at, seen)

    creation = handle.creation if may_create else None
    change = Change(SpentBy.DATA, handle.execution, append, creation=creation, check=check)
    outcome = spend(session, ref, at, change, clock=clock, deadline_s=deadline_s)
    seam("sink committed")
    if outcome.spent.by is SpentBy.ABORT:
        raise TokenSpent(at.token, str(ref))
    return outcome


def spend_by_abort(
    session: SparkSession,
    ref: TableRef,
    at: CommitAt,
    *,
    clock: Clock | None = None,
    deadline_s: float = COMMIT_DEADLINE_S,
    aborts_kept: int | None = None,
) -> Spent:
    """Commit nothing under the token. The answer says what spent it: this, or data before it."""

    def begin(_: Any, transaction: Any) -> Any:
        return transaction.newAppend()

    nothing = Change(SpentBy.ABORT, at.execution, begin, aborts_kept)
    return spend(session, ref, at, nothing, clock=clock, deadline_s=deadline_s).spent


def spend(
    session: SparkSession,
    ref: TableRef,
    at: CommitAt,
    change: Change,
    *,
    clock: Clock | None = None,
    deadline_s: float = COMMIT_DEADLINE_S,
) -> Outcome:
    """Make one change under the token. The answer says what spent it: this, or another before."""
    start_callbacks(session)
    clock = clock or SystemClock()
    deadline = Deadline(clock, at.epoch_at.since or now(clock), deadline_s)
    committer = uuid.uuid4().hex
    reason = ""
    for tries in range(SPEND_TRIES_MAX):
        table = _load(session, ref, change)
        spent = _spent_in(session, table, at) if table is not None else None
        if spent is None:
            guard = Guard(session, ref, at, deadline, creates=table is None)
            mine = _try(session, table, ref, at, change, guard, committer)
            if isinstance(mine, Spent):
                return Outcome(already=False, spent=mine)
            table = _load(session, ref, change)
            reason, spent = mine, _spent_in(session, table, at) if table is not None else None
        if spent is not None:
            return Outcome(already=spent.summary.get(COMMITTER) != committer, spent=spent)
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


def _load(session: SparkSession, ref: TableRef, change: Change) -> Any:
    """The table as it is now; None: it is not there, and the change makes it."""
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
    at: CommitAt,
    change: Change,
    guard: Guard,
    committer: str,
) -> Spent | str:
    """Try once. An answer is believed. Without one the table is asked, whatever was said."""
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
        found = _load(session, ref, change)
        if found is None or _spent_in(session, found, at) is None:
            raise
        return "spent by somebody else, and swept"


def _attempt(
    session: SparkSession,
    table: Any,
    at: CommitAt,
    change: Change,
    guard: Guard,
    committer: str,
    creating: Any = None,
) -> Spent:
    """One fenced transaction. It may be made again: the guard refuses what has landed before.

    `creating`: a transaction that makes the table, which the catalog refuses when one is there.
    """
    if creating is None and change.check is not None:
        change.check(table)
    transaction = creating or table.newTransaction()
    snapshot = change.begin(table, transaction)
    snapshot.set(COMMIT, at.token).set(SPENT_BY, change.by.value)
    snapshot.set(EXECUTION, change.execution).set(COMMITTER, committer)
    snapshot.validateWith(guard)
    snapshot.commit()
    # After the snapshot: the other way round the guard would see the mark of its own transaction.
    properties = transaction.updateProperties().set(at.mark_key, str(at.epoch))
    if change.by is SpentBy.ABORT:
        properties = properties.set(at.aborted_key, at.execution)
    if change.aborts_kept is not None:
        for key in old_aborts(dict(table.properties()), at, kept=change.aborts_kept):
            properties = properties.remove(key)
    properties.commit()
    # A catalog asks the guard no more when it makes a table, however long ago the snapshot was.
    guard.check_deadline()
    transaction.commitTransaction()
    made = json.loads(
        jvm(session).org.apache.iceberg.SnapshotParser.toJson(transaction.table().currentSnapshot())
    )
    return Spent(change.by, int(made["snapshot-id"]), change.execution, made["summary"])


def _check_table(
    session: SparkSession,
    ref: TableRef,
    table: Any,
    handle: Handle,
    at: CommitAt,
    seen: str | None,
) -> None:
    """Whether it is the table that the rows were staged for. One that was made since then is, when
    it holds rows of the same job, or was there when this execution began. Otherwise it may be one
    that was made after the job had ended and its own table was dropped, while we were paused: then
    its marks went with it, and nothing else tells that we are too late (E1)."""
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


def _append(session: SparkSession, table: Any, transaction: Any, handle: Handle) -> Any:
    append = transaction.newAppend()
    if handle.manifest is not None:
        append.appendManifest(manifest_of(session, table, handle))
        if handle.bytes is not None and not _is_copied(table):
            append.set(ADDED_BYTES, str(handle.bytes))
    return append


def _is_copied(table: Any) -> bool:
    """Whether Iceberg reads an appended manifest, and writes its own: then it counts the bytes
    itself, and takes no other number. Any other manifest it does not look into."""
    current = table.operations().current()
    inherits = str(current.property(_INHERITS_ID, "false")).lower() == "true"
    return int(current.formatVersion()) == 1 and not inherits
