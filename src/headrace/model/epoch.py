"""An epoch is a checkpoint: planned, prepared, then complete; or aborted.

The token is what a target is asked to refuse the second time. It names the incarnation, the
pipeline and the epoch, and not the execution: whoever commits an epoch, it is the same commit.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum

from headrace.model.deadline import Moment


class EpochStatus(StrEnum):
    PLANNED = "PLANNED"  # its slices are fixed; it may run, and run again
    PREPARED = "PREPARED"  # staged at every sink; from here on only committed, never run again
    COMPLETED = "COMPLETED"  # committed at every sink, positions recorded
    ABORTED = "ABORTED"  # its token was spent by an abort; nothing of it is visible


class EpochKind(StrEnum):
    OPENING = "OPENING"  # epoch 0: sinks do what their save modes ask, before any row
    CHECKPOINT = "CHECKPOINT"  # rows, or an interval without any
    SAVEPOINT = "SAVEPOINT"  # no slices: the job was stopped here, to be restored
    COMPLETED = "COMPLETED"  # the completed point: no slices, sinks close


OPEN = frozenset({EpochStatus.PLANNED, EpochStatus.PREPARED})
OPEN_MAX = 2  # epochs of a pipeline: one is committed while the next is staged or granted
COMMIT_DEADLINE_S = 3600.0  # a commit that began earlier is refused; marks live twice that
STRAY_GRACE_S = 7 * 86_400.0  # what nobody owns and nobody touched for so long may go
CHECKPOINT_TIMEOUT_MS = 60_000  # from prepared to completed, when a job says nothing else


@dataclass(frozen=True, slots=True)
class EpochAt:
    """Which epoch of which pipeline, and which execution works on it."""

    incarnation: str
    pipeline: int
    epoch: int
    execution: str
    # At which the execution was still the current one; a commit too long after it is refused.
    since: Moment | None = field(default=None, compare=False)

    @property
    def token(self) -> str:
        return f"{self.incarnation}/{self.pipeline}/{self.epoch}"


@dataclass(frozen=True, slots=True)
class CommitAt:
    """An epoch at one sink: what a token stands for."""

    epoch_at: EpochAt
    sink: str

    @property
    def epoch(self) -> int:
        return self.epoch_at.epoch

    @property
    def execution(self) -> str:
        return self.epoch_at.execution

    @property
    def token(self) -> str:
        return f"{self.epoch_at.token}/{self.sink}"
