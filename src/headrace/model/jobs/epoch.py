"""Epochs, the checkpoints of a job: their tokens, their commit deadline, and the clean-up.

An epoch is planned, prepared, then complete; or it is aborted. Its token is what a target is asked
to refuse the second time. The token names the incarnation, the pipeline and the epoch, but not the
execution: whichever execution commits an epoch, it is the same commit.

A commit has a deadline. Marks at a target are deleted some time after the end of a job, and a
committer that was paused and wakes up after that would find its token unspent. So a commit is
refused when it comes too long after the moment at which its execution last asked the leader and
was told to go on: that moment lies before the job's end.

After a job has ended, clean-up deletes in two steps:

STATE     its rows: job, pipelines, tasks, checkpoints, ready sets, secrets. What could not be
          settled at its end is settled before: nobody else has its stage handles
TARGETS   at its sinks what is left staged, then the marks: once nobody can commit any more

History, log lines and a savepoint stay, each until it expires. A restore ends the clean-up: the job
goes on above `up_to`, the highest epoch that is to be forgotten.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from headrace.clock import Clock

MINUTE_MS = 60_000
DAY_MS = 24 * 60 * MINUTE_MS
OPEN_MAX = 2  # epochs of a pipeline: one is committed while the next is planned or staged
COMMIT_DEADLINE_S = 3600.0  # of a commit; marks at targets live twice as long
STRAY_GRACE_S = 7 * 86_400.0  # what nobody owns and nobody touched for so long may be deleted
CHECKPOINT_TIMEOUT_MS = 60_000  # from prepared to completed, unless a job sets its own
JOB_LOG_LINES_MAX = 2_000_000  # of all jobs together; beyond that, the oldest are deleted
RETRY_PAUSE_MS = 5_000  # back-off after the first failed clean-up; doubled after each
RETRY_PAUSE_MAX_MS = 10 * MINUTE_MS


class EpochStatus(StrEnum):
    PLANNED = "PLANNED"  # its slices are fixed; it may run, and run again
    PREPARED = "PREPARED"  # staged at every sink; from here on only committed, never run again
    COMPLETED = "COMPLETED"  # committed at every sink, positions recorded
    ABORTED = "ABORTED"  # its token was spent by an abort; nothing of it is visible


class SpentBy(StrEnum):
    """How the token of an epoch was spent at a target."""

    DATA = "data"
    ABORT = "abort"


class EpochKind(StrEnum):
    OPENING = "OPENING"  # epoch 0: sinks do what their save modes ask, before any row
    CHECKPOINT = "CHECKPOINT"  # rows, or an interval without any
    SAVEPOINT = "SAVEPOINT"  # no slices: the job was stopped here, to be restored
    COMPLETED = "COMPLETED"  # the completed point: no slices, sinks close


OPEN = frozenset({EpochStatus.PLANNED, EpochStatus.PREPARED})

EPOCH_TRANSITIONS: Mapping[EpochStatus, frozenset[EpochStatus]] = {
    EpochStatus.PLANNED: frozenset({EpochStatus.PREPARED, EpochStatus.ABORTED}),
    # Never ABORTED: a commit may have landed already.
    EpochStatus.PREPARED: frozenset({EpochStatus.COMPLETED}),
    EpochStatus.COMPLETED: frozenset(),
    EpochStatus.ABORTED: frozenset(),
}
# An epoch without slices has nothing to stage or commit: it is complete as soon as it is written.
EPOCH_BEGINS: Mapping[EpochKind, EpochStatus] = {
    EpochKind.OPENING: EpochStatus.PLANNED,
    EpochKind.CHECKPOINT: EpochStatus.PLANNED,
    EpochKind.SAVEPOINT: EpochStatus.COMPLETED,
    EpochKind.COMPLETED: EpochStatus.COMPLETED,
}


@dataclass(frozen=True, slots=True)
class EpochAt:
    """Which epoch of which pipeline, and which execution works on it."""

    incarnation: str
    pipeline: int
    epoch: int
    execution: str
    # When the execution was last known to be the current one: a commit has its deadline from then.
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


@dataclass(frozen=True, slots=True)
class Moment:
    """A point in time on both clocks.

    The monotonic clock stands still while a machine is suspended, and the wall clock may be set
    back: a deadline that either of them has passed is over.
    """

    monotonic_s: float
    wall_ms: int


def now(clock: Clock) -> Moment:
    return Moment(clock.monotonic_s(), clock.wall_ms())


@dataclass(frozen=True, slots=True)
class Deadline:
    """A limit of time, counted from a moment in the past."""

    clock: Clock
    since: Moment
    limit_s: float

    @property
    def passed(self) -> bool:
        """Whether the limit is over, by either clock."""
        at = now(self.clock)
        return (
            at.monotonic_s - self.since.monotonic_s > self.limit_s
            or at.wall_ms - self.since.wall_ms > self.limit_s * 1000
        )

    def __str__(self) -> str:
        return f"{self.limit_s:.0f} s"


class CleanupStep(StrEnum):
    """What is deleted of a job that has ended; see above."""

    STATE = "STATE"
    TARGETS = "TARGETS"


CLEANUP_TRANSITIONS: Mapping[CleanupStep, frozenset[CleanupStep]] = {
    CleanupStep.STATE: frozenset({CleanupStep.TARGETS}),
    CleanupStep.TARGETS: frozenset(),
}


@dataclass(frozen=True, slots=True)
class Retention:
    """How long things are kept, as the leader is configured."""

    state_cleanup_delay_ms: int = MINUTE_MS  # 0: at once
    history_expire_ms: int = 7 * DAY_MS
    job_log_expire_ms: int = 7 * DAY_MS  # of each line, from when it was recorded
    savepoint_expire_ms: int = 7 * DAY_MS
    process_expire_ms: int = 30 * DAY_MS  # Amoro's self-optimizing.runtime-data-keep-time
    commit_deadline_ms: int = 60 * MINUTE_MS  # see `Deadline`

    @property
    def commit_deadline_s(self) -> float:
        return self.commit_deadline_ms / 1000

    @property
    def marks_kept_ms(self) -> int:
        """How long marks stay at targets after the end of a job.

        Twice the deadline, since a commit may begin as the job ends, by a clock that need not
        agree with ours.
        """
        return 2 * self.commit_deadline_ms


def former_key(incarnation: str, run: int) -> str:
    """The key of the clean-up record for sinks that a job had until this run, and has no longer."""
    return f"{incarnation}#{run}"


def incarnation_of(key: str) -> str:
    """The incarnation that a clean-up record belongs to."""
    return key.partition("#")[0]


def retry_pause_ms(failures: int) -> int:
    """The back-off before a clean-up that failed so often is tried again."""
    return min(RETRY_PAUSE_MS << min(max(failures - 1, 0), 16), RETRY_PAUSE_MAX_MS)
