"""Spend a token at a table: by data, or by an abort. The table itself refuses a second time.

Data and mark go in one transaction whose append is guarded by a validator. Iceberg calls it anew
for every attempt on a newer state of the table, so nothing can slip in between the check and the
change. A refusal, a lost answer and a crash are all settled in the same way: look at the table,
then decide (E1, E3, E4).
"""

from __future__ import annotations

import json
import logging
import threading
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from pyspark.sql import SparkSession

from headrace.clock import Clock, SystemClock
from headrace.errors import Fenced, Refused, TokenSpent, Unavailable
from headrace.formats.iceberg.catalogs import TableRef, load_table
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
)
from headrace.seams import seam

log = logging.getLogger(__name__)

COMMIT_DEADLINE_S = 3600.0  # marks live twice that: no committer may wake after its mark is gone
SPEND_TRIES_MAX = 6
SPEND_WAIT_S = 0.5  # before the second try; doubled before each further one


@dataclass(frozen=True, slots=True)
class Outcome:
    already: bool  # the token was spent by somebody else's commit of the same data
    spent: Spent


def look(session: SparkSession, ref: TableRef, at: CommitAt) -> Spent | None:
    """Ask the table, loaded afresh, what spent the token (E3)."""
    metadata = load_table(session, ref).operations().current()
    told = json.loads(jvm(session).org.apache.iceberg.TableMetadataParser.toJson(metadata))
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
        self, session: SparkSession, ref: TableRef, at: CommitAt, *, clock: Clock, until_s: float
    ) -> None:
        self._session, self._ref, self._at = session, ref, at
        self._clock, self._until_s = clock, until_s

    def validate(self, _snapshots: Any) -> bool:
        if self._clock.monotonic_s() > self._until_s:
            return False
        return look(self._session, self._ref, self._at) is None

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
) -> Outcome:
    """Make what was staged visible, once. `TokenSpent` when an abort was first."""
    seam("before sink commit")
    outcome = _spend(session, ref, at, handle, clock or SystemClock(), deadline_s)
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
) -> Spent:
    """Commit nothing under the token. The answer says what spent it: this, or data before it."""
    return _spend(session, ref, at, None, clock or SystemClock(), deadline_s).spent


def _spend(
    session: SparkSession,
    ref: TableRef,
    at: CommitAt,
    handle: Handle | None,
    clock: Clock,
    deadline_s: float,
) -> Outcome:
    start_callbacks(session)
    until_s = clock.monotonic_s() + deadline_s
    committer = uuid.uuid4().hex
    reason = ""
    for tries in range(SPEND_TRIES_MAX):
        spent = look(session, ref, at)
        if spent is None:
            guard = Guard(session, ref, at, clock=clock, until_s=until_s)
            reason = _try(session, ref, at, handle, guard, committer)
            spent = look(session, ref, at)
        if spent is not None:
            return Outcome(already=spent.summary.get(COMMITTER) != committer, spent=spent)
        if clock.monotonic_s() > until_s:
            raise Fenced(
                f"the commit of {at.token} to {ref} began more than {deadline_s:.0f} s ago; "
                "this execution is too old to commit"
            )
        threading.Event().wait(SPEND_WAIT_S * 2**tries)
    raise Unavailable(
        f"{ref} did not take the commit {at.token} in {SPEND_TRIES_MAX} tries, and does not hold "
        f"it; nothing was deleted; the last reason was {reason}"
    )


def _try(
    session: SparkSession,
    ref: TableRef,
    at: CommitAt,
    handle: Handle | None,
    guard: Guard,
    committer: str,
) -> str:
    """Try once. Whether it landed is not believed from here, but asked of the table afterwards."""
    try:
        _attempt(session, ref, at, handle, guard, committer)
    except JAVA_ERRORS as error:
        reason = f"{java_classes(error)[0]}: {java_message(error)}"
        log.info("commit not confirmed", extra={"table": str(ref), "reason": reason})
        return reason
    except Refused:
        if look(session, ref, at) is None:
            raise
        return "spent by somebody else, and swept"
    return "it was accepted, but is not there"


def _attempt(
    session: SparkSession,
    ref: TableRef,
    at: CommitAt,
    handle: Handle | None,
    guard: Guard,
    committer: str,
) -> None:
    """One fenced transaction. It may be made again: the guard refuses what has landed before."""
    table = load_table(session, ref)
    transaction = table.newTransaction()
    append = transaction.newAppend()
    by = SpentBy.ABORT if handle is None else SpentBy.DATA
    append.set(COMMIT, at.token).set(SPENT_BY, by.value)
    # Whose files they are, not who commits them: sweeping spares the folder of this execution.
    append.set(EXECUTION, handle.execution if handle else at.execution)
    append.set(COMMITTER, committer)
    append.validateWith(guard)
    if handle is not None:
        _add_staged(session, table, append, handle)
    append.commit()
    # After the append: the other way round the guard would see the mark of its own transaction.
    properties = transaction.updateProperties().set(at.mark_key, str(at.epoch))
    if by is SpentBy.ABORT:
        properties = properties.set(at.aborted_key, at.execution)
    properties.commit()
    transaction.commitTransaction()


def _add_staged(session: SparkSession, table: Any, append: Any, handle: Handle) -> None:
    if str(table.uuid()) != handle.uuid:
        raise Refused(
            f"{handle.table} was dropped and made anew since execution {handle.execution} staged "
            "its rows; run the job again"
        )
    if handle.manifest is not None:
        append.appendManifest(manifest_of(session, table, handle))
