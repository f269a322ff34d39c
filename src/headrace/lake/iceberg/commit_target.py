"""A table as a target of exactly_once: its primitives, made of commit.py, sweep.py and token.py."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import Any

from pyspark.sql import SparkSession

from headrace.exactly_once.target import Mark, SpendLimits, Stray
from headrace.lake.iceberg.catalogs import TableMissing, TableRef, load_table
from headrace.lake.iceberg.commit import TableChange, abort_change, make_change, spent_in
from headrace.lake.iceberg.creation import TableExists
from headrace.lake.iceberg.sweep import (
    StagedEpoch,
    delete_folders,
    delete_for_missing,
    delete_unreferenced,
    forget_marks,
    has_staged,
    prune_missing,
    staged_epochs,
)
from headrace.lake.iceberg.token import SpentAtTable, TableCommitAt, read_mark
from headrace.model.jobs.epoch import Deadline
from headrace.spark.jvm_bridge import (
    JAVA_ERRORS,
    java_classes,
    java_message,
    refused_or_unavailable,
)

SPEND_TRIES_MAX = 6
SPEND_WAIT_S = 0.5  # before the second try; doubled before each further one


class IcebergTarget:
    """The table of one sink, or of one optimizing process."""

    limits = SpendLimits(SPEND_TRIES_MAX, SPEND_WAIT_S)

    def __init__(self, session: SparkSession, ref: TableRef, *, title: str | None = None) -> None:
        self._session, self._ref = session, ref
        self.name, self.title = str(ref), title or f"table {ref}"
        self._table: Any = None  # as it was loaded last; None: it did not exist
        self._staged: Sequence[StagedEpoch] | None = None  # as long as no token was looked at since

    @property
    def uuid(self) -> str | None:
        """The uuid of the table that was read last; None when it did not exist."""
        return None if self._table is None else str(self._table.uuid())

    def look(self, at: TableCommitAt) -> SpentAtTable | None:
        self._staged = None
        try:
            return spent_in(self._session, self._load(), at)
        except JAVA_ERRORS as error:
            message = f"{self._ref} can't be read: {java_message(error)}"
            raise refused_or_unavailable(error, message) from error

    def attempt(
        self,
        at: TableCommitAt,
        change: TableChange,
        *,
        committer: str,
        deadline: Deadline | None,
    ) -> str | None:
        # On the table that was looked at: a transaction on an older state is begun anew by Iceberg,
        # which calls the guard each time.
        try:
            make_change(
                self._session,
                self._ref,
                self._table,
                at,
                change,
                committer=committer,
                deadline=deadline,
            )
        except TableExists as error:
            return str(error)
        except JAVA_ERRORS as error:
            return f"{java_classes(error)[0]}: {java_message(error)}"
        return None

    def abort_change(self, at: TableCommitAt) -> TableChange:
        return abort_change(at)

    def finish(self, at: TableCommitAt, spent: SpentAtTable) -> None:
        """The transaction was everything."""

    def read_mark(self, at: TableCommitAt) -> Mark | None:
        try:
            return read_mark(at, dict(self._load().properties()))
        except TableMissing:
            return None

    def is_staged(self, at: TableCommitAt, *, by: str | None) -> bool:
        if by is None:
            # Either an epoch without rows, of which nothing was staged or committed. Or one whose
            # mark was forgotten before its job was restored: only the table's own files are left.
            return False
        return has_staged(self._session, self._load(), at)

    def delete_staged(
        self, at: TableCommitAt, spent: SpentAtTable | None, *, kept: str | None
    ) -> None:
        if spent is None:
            delete_for_missing(self._session, self._ref, at)
            return
        # By folders of executions: the committed one holds files of the table.
        delete_unreferenced(self._session, self._ref, self._load(), at, spent, kept=kept)

    def unspent_epochs(self, at: TableCommitAt) -> Sequence[TableCommitAt]:
        try:
            self._staged = staged_epochs(self._session, self._load(), at)
        except TableMissing:
            return ()
        return [one.at for one in self._staged if one.spent is None and one.unreferenced]

    def delete_leftovers(self, at: TableCommitAt) -> None:
        try:
            table = self._load()
        except TableMissing:
            prune_missing(self._session, self._ref, at)
            return
        if self._staged is None:  # a token was spent since, by an abort or by data
            self._staged = staged_epochs(self._session, table, at)
        delete_folders(self._session, self._ref, table, at, self._staged)

    def forget_marks(self, at: TableCommitAt) -> None:
        try:
            forget_marks(self._session, self._ref, self._load(), at)
        except TableMissing:
            return  # they went with it

    def now_ms(self) -> int:
        return 0

    def strays(self, owners: Collection[str]) -> Iterable[Stray]:  # noqa: ARG002
        """None: files that unknown jobs left are left to the removal of orphan files."""
        return ()

    def delete_stray(self, stray: Stray, *, idle_since_ms: int) -> None:
        """There are none."""

    def _load(self) -> Any:
        self._table = None
        self._table = load_table(self._session, self._ref)
        return self._table
