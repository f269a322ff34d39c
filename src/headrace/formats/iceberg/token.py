"""The token of a commit, and how a table tells that it is spent. Pure; nothing here asks the JVM.

A commit leaves three things in one atomic change of the table's metadata:

- in the new snapshot's summary the token (`headrace.commit`), what spent it (`headrace.spent-by`)
  and the execution that staged the data, or aborted (`headrace.execution`);
- in the table's properties the *mark* `headrace.mark.<incarnation>.<pipeline>.<sink>`: the
  highest epoch that is spent. It outlives the expiry of snapshots (E4);
- when an abort spent it, the property `headrace.aborted.<incarnation>.<pipeline>.<sink>.<epoch>`,
  so that it can be told from data after its snapshot was expired. It is a property for itself,
  and not a part of the mark, because the mark moves on.

The sink's name is part of all of them: two sinks of a pipeline may write to one table.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any
from urllib.parse import quote

from headrace.model import epoch

COMMIT = "headrace.commit"
SPENT_BY = "headrace.spent-by"
EXECUTION = "headrace.execution"
COMMITTER = "headrace.committer"  # one call of commit: tells its own snapshot from another's
NOTHING_SPENT = "-1"  # epoch 0 exists
_MARK, _ABORTED = "headrace.mark.", "headrace.aborted."


class SpentBy(StrEnum):
    DATA = "data"
    ABORT = "abort"


@dataclass(frozen=True, slots=True)
class CommitAt(epoch.CommitAt):
    """An epoch at one sink, and where a table keeps what is known of it."""

    @property
    def mark_key(self) -> str:
        return f"{_MARK}{self._owner}"

    @property
    def aborted_key(self) -> str:
        return f"{self.aborted_prefix}{self.epoch}"

    @property
    def aborted_prefix(self) -> str:
        return f"{_ABORTED}{self._owner}."

    @property
    def _owner(self) -> str:
        return f"{self.epoch_at.incarnation}.{self.epoch_at.pipeline}.{self.sink}"

    def epoch_folder(self, location: str) -> str:
        """Where all executions stage this epoch. With the slash, or 1 would be a prefix of 10."""
        return f"{self.sink_folder(location)}{self.epoch}/"

    def sink_folder(self, location: str) -> str:
        """Where all epochs of this sink are staged."""
        at = self.epoch_at
        parts = (at.incarnation, str(at.pipeline), self.sink)
        path = "/".join(quote(part, safe="") for part in parts)
        return f"{location.rstrip('/')}/data/headrace/{path}/"

    def folder(self, location: str) -> str:
        return f"{self.epoch_folder(location)}{quote(self.execution, safe='')}/"


@dataclass(frozen=True, slots=True)
class Spent:
    by: SpentBy
    snapshot: int | None  # None: it was expired since
    execution: str | None
    summary: Mapping[str, str]


def find_spent(
    at: CommitAt, *, properties: Mapping[str, str], snapshots: Sequence[Mapping[str, Any]]
) -> Spent | None:
    """What spent the token; None while it is unspent."""
    for snapshot in reversed(snapshots):
        summary: Mapping[str, str] = snapshot.get("summary", {})
        if summary.get(COMMIT) == at.token:
            by = SpentBy(summary.get(SPENT_BY, SpentBy.DATA))
            return Spent(by, int(snapshot["snapshot-id"]), summary.get(EXECUTION), summary)
    if at.aborted_key in properties:
        return Spent(SpentBy.ABORT, None, properties[at.aborted_key], {})
    if int(properties.get(at.mark_key, NOTHING_SPENT)) >= at.epoch:
        return Spent(SpentBy.DATA, None, None, {})
    return None


def marked(at: CommitAt, properties: Mapping[str, str]) -> tuple[int, SpentBy] | None:
    """The highest epoch that is spent, of the pipeline and sink of `at`; None: none is."""
    epoch = int(properties.get(at.mark_key, NOTHING_SPENT))
    if epoch < 0:
        return None
    aborted = f"{at.aborted_prefix}{epoch}" in properties
    return epoch, SpentBy.ABORT if aborted else SpentBy.DATA


def holds_rows(at: CommitAt, properties: Mapping[str, str]) -> bool:
    """Whether any sink of this incarnation committed rows to the table. A table that was dropped
    and made by others has no such mark. Neither aborts count nor epoch 0: whoever wakes too late
    may leave those at a table that it has never seen."""
    begin = f"{_MARK}{at.epoch_at.incarnation}."
    marks = {key: value for key, value in properties.items() if key.startswith(begin)}
    return any(
        int(epoch) > 0 and f"{_ABORTED}{key.removeprefix(_MARK)}.{epoch}" not in properties
        for key, epoch in marks.items()
    )


def old_aborts(properties: Mapping[str, str], at: CommitAt, *, kept: int) -> Sequence[str]:
    """Properties of aborts so long ago that nobody asks for them any more: the mark refuses their
    tokens without them."""
    numbers = {
        key: key.removeprefix(at.aborted_prefix)
        for key in properties
        if key.startswith(at.aborted_prefix)
    }
    return sorted(
        key
        for key, number in numbers.items()
        if number.isdecimal() and int(number) < at.epoch - kept
    )
