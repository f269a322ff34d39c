"""A process at its table: under which token it replaces files, and where its rewrites are staged.

All processes of a table share one mark, and their numbers grow: what a later process has spent
also refuses every earlier one. So a table keeps one property, however often it is optimized.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from headrace.formats.iceberg.token import NOTHING_SPENT, CommitAt
from headrace.model.deadline import Moment
from headrace.model.epoch import EpochAt

_OPTIMIZE = "optimize"  # stands where a pipeline has the name of its sink
_NO_PIPELINE = 0
# Of earlier processes: a table that conflicts with its writers aborts one every few minutes, and
# each leaves a property. Who would ask for an older one has ended long ago.
ABORTS_KEPT = 10


@dataclass(frozen=True, slots=True)
class ProcessAt:
    owner: str  # who optimizes this table: the same for all its processes
    number: int  # of the commit; grows with every process of the table
    execution: str  # of the task: a rewrite's folder is called so
    # At which the execution was still the current one; a commit too long after it is refused.
    since: Moment | None = field(default=None, compare=False)

    @property
    def commit_at(self) -> CommitAt:
        at = EpochAt(self.owner, _NO_PIPELINE, self.number, self.execution, self.since)
        return CommitAt(at, _OPTIMIZE)

    @property
    def token(self) -> str:
        return self.commit_at.token

    def folder(self, location: str) -> str:
        return self.commit_at.folder(location)

    def process_folder(self, location: str) -> str:
        """Where all executions of all tasks of this process stage."""
        return self.commit_at.epoch_folder(location)


def spent_number(properties: Mapping[str, str], owner: str) -> int:
    """The highest number that a table with these properties knows of; 0: none. A store that was
    restored from a backup counts on from there: an old number would be taken for done."""
    key = ProcessAt(owner, 0, "").commit_at.mark_key
    return max(0, int(properties.get(key, NOTHING_SPENT)))
