"""The token of a commit, and how a table shows that it is spent. Pure: nothing here calls the JVM.

A commit leaves three things in one atomic change of the table's metadata:

- in the new snapshot's summary, the token (`headrace.commit`), what spent it (`headrace.spent-by`)
  and the execution that staged the data, or aborted (`headrace.execution`);
- in the table's properties, the *mark* `headrace.mark.<incarnation>.<pipeline>.<sink>`: the highest
  epoch that is spent. It outlives the expiry of snapshots (E4);
- when an abort spent it, the property `headrace.aborted.<incarnation>.<pipeline>.<sink>.<epoch>`,
  so that the abort can be told from data after its snapshot was expired. It is a property of its
  own, and not a part of the mark, because the mark moves on.

The sink's name is part of all of them: two sinks of a pipeline may write to one table.

A process that optimizes a table (`ProcessAt`) commits under a token of the same kind. All processes
of a table share one mark, and their numbers grow: what a later process has spent also refuses every
earlier one. So a table keeps one mark, however often it is optimized.

The groups that a snapshot replaced stand in its summary as ranges (`0-3,5`): they are many, and a
summary should stay short.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote

from headrace.exactly_once.target import Mark
from headrace.model.jobs.epoch import CommitAt as EpochCommitAt
from headrace.model.jobs.epoch import EpochAt, Moment, SpentBy

COMMIT = "headrace.commit"
SPENT_BY = "headrace.spent-by"
EXECUTION = "headrace.execution"
COMMITTER = "headrace.committer"  # id of one call of commit: tells its snapshot from others'
NOTHING_SPENT = "-1"  # below epoch 0, which exists
# Aborts of earlier processes that are kept as properties. A table that conflicts with its writers
# aborts a process every few minutes. Whoever would ask for an older one has ended long ago.
ABORTS_KEPT = 10

_MARK, _ABORTED = "headrace.mark.", "headrace.aborted."
_OPTIMIZE = "optimize"  # in the place of a sink's name
_NO_PIPELINE = 0


@dataclass(frozen=True, slots=True)
class TableCommitAt(EpochCommitAt):
    """An epoch at one sink, and where a table keeps what is known of it."""

    @property
    def mark_key(self) -> str:
        """The property that holds the highest spent epoch."""
        return f"{_MARK}{self._owner}"

    @property
    def aborted_key(self) -> str:
        """The property that exists when an abort spent this epoch's token."""
        return f"{self.aborted_prefix}{self.epoch}"

    @property
    def aborted_prefix(self) -> str:
        return f"{_ABORTED}{self._owner}."

    @property
    def _owner(self) -> str:
        return f"{self.epoch_at.incarnation}.{self.epoch_at.pipeline}.{self.sink}"

    def epoch_folder(self, location: str) -> str:
        """Where all executions stage this epoch. Ends with a slash: without it, epoch 1 would be a
        prefix of epoch 10."""
        return f"{self.sink_folder(location)}{self.epoch}/"

    def sink_folder(self, location: str) -> str:
        """Where all epochs of this sink are staged."""
        at = self.epoch_at
        parts = (at.incarnation, str(at.pipeline), self.sink)
        path = "/".join(quote(part, safe="") for part in parts)
        return f"{location.rstrip('/')}/data/headrace/{path}/"

    def folder(self, location: str) -> str:
        """Where this execution stages this epoch."""
        return f"{self.epoch_folder(location)}{quote(self.execution, safe='')}/"


@dataclass(frozen=True, slots=True)
class ProcessAt:
    """A process at its table: the token under which it replaces files, and where it stages
    rewrites."""

    owner: str  # the optimizer of this table, the same for all its processes
    number: int  # grows with every process of the table
    execution: str  # of the task; names the folder of its rewrite
    # A moment at which the execution was still the current one; a commit too long after is refused.
    since: Moment | None = field(default=None, compare=False)

    @property
    def commit_at(self) -> TableCommitAt:
        at = EpochAt(self.owner, _NO_PIPELINE, self.number, self.execution, self.since)
        return TableCommitAt(at, _OPTIMIZE)

    @property
    def token(self) -> str:
        return self.commit_at.token

    def folder(self, location: str) -> str:
        return self.commit_at.folder(location)

    def process_folder(self, location: str) -> str:
        """Where all executions of all tasks of this process stage."""
        return self.commit_at.epoch_folder(location)


@dataclass(frozen=True, slots=True)
class SpentAtTable:
    """What spent a token."""

    by: SpentBy
    snapshot: int | None  # None: it is expired
    execution: str | None
    summary: Mapping[str, str]

    @property
    def committer(self) -> str:
        return self.summary.get(COMMITTER, "")


def find_spent(
    at: TableCommitAt, *, properties: Mapping[str, str], snapshots: Sequence[Mapping[str, Any]]
) -> SpentAtTable | None:
    """What spent the token, from the metadata of the table; None while it is unspent."""
    for snapshot in reversed(snapshots):
        summary: Mapping[str, str] = snapshot.get("summary", {})
        if summary.get(COMMIT) == at.token:
            by = SpentBy(summary.get(SPENT_BY, SpentBy.DATA))
            return SpentAtTable(by, int(snapshot["snapshot-id"]), summary.get(EXECUTION), summary)
    if at.aborted_key in properties:
        return SpentAtTable(SpentBy.ABORT, None, properties[at.aborted_key], {})
    if int(properties.get(at.mark_key, NOTHING_SPENT)) >= at.epoch:
        return SpentAtTable(SpentBy.DATA, None, None, {})
    return None


def read_mark(at: TableCommitAt, properties: Mapping[str, str]) -> Mark | None:
    """The highest epoch spent by the pipeline and sink of `at`; None when none is."""
    epoch = int(properties.get(at.mark_key, NOTHING_SPENT))
    if epoch < 0:
        return None
    return Mark(epoch, aborted=f"{at.aborted_prefix}{epoch}" in properties)


def holds_rows(at: TableCommitAt, properties: Mapping[str, str]) -> bool:
    """Whether any sink of this incarnation has committed rows to the table.

    A table that was dropped and created by others has no such mark. Aborts and epoch 0 do not
    count: a process that wakes too late may leave those at a table that it has never seen.
    """
    begin = f"{_MARK}{at.epoch_at.incarnation}."
    marks = {key: value for key, value in properties.items() if key.startswith(begin)}
    return any(
        int(epoch) > 0 and f"{_ABORTED}{key.removeprefix(_MARK)}.{epoch}" not in properties
        for key, epoch in marks.items()
    )


def old_aborts(properties: Mapping[str, str], at: TableCommitAt, *, kept: int) -> Sequence[str]:
    """Properties of aborts so old that nobody asks for them any more; the mark still refuses their
    tokens."""
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


def spent_number(properties: Mapping[str, str], owner: str) -> int:
    """The highest process number in a table's properties; 0 when there is none. A store that was
    restored from a backup counts on from there: a number used before would be taken for done."""
    key = ProcessAt(owner, 0, "").commit_at.mark_key
    return max(0, int(properties.get(key, NOTHING_SPENT)))


def format_ranges(values: Iterable[int]) -> str:
    """Numbers as a short text, such as `0-3,5`."""
    spans: list[list[int]] = []
    for number in sorted(set(values)):
        if spans and spans[-1][1] == number - 1:
            spans[-1][1] = number
        else:
            spans.append([number, number])
    return ",".join(str(a) if a == b else f"{a}-{b}" for a, b in spans)


def parse_ranges(text: str) -> frozenset[int]:
    """The numbers of a text such as `0-3,5`."""
    values: set[int] = set()
    for part in text.split(","):
        first, _, last = part.partition("-")
        values.update(range(int(first), int(last or first) + 1))
    return frozenset(values)
