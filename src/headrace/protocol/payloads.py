"""What an assignment carries, by the kind of its task."""

from __future__ import annotations

from pydantic import Field, JsonValue

from headrace.model.epoch import COMMIT_DEADLINE_S, EpochStatus
from headrace.model.jobspec import EnvSpec, PipelineSpec
from headrace.protocol.messages import EpochCompleted, Json, Message


class Slice(Message):
    """What one source reads in one epoch. The same slice gives the same rows (E5)."""

    data: JsonValue  # for the source alone to understand
    after: JsonValue  # its position once the slice is read
    rows: int | None = None  # when it is known beforehand
    last: bool = False  # nothing comes after it
    lasts_ms: int = 0  # reading it takes at least so long: its source is paced


class Plan(Message):
    """Fixed before the epoch runs, and the same each time it is run."""

    slices: dict[str, Slice]  # by source name; a source that is exhausted has none
    now_ms: int  # what NOW() and its like mean in this epoch


class OpenEpoch(Message):
    """The epoch that an earlier execution left behind."""

    epoch: int
    status: EpochStatus
    plan: Plan
    handles: Json | None = None


class Restore(Message):
    """Where an execution begins."""

    epoch: int = 0  # the last completed one, or a higher one: a restore skips ids
    # The last one that really was completed, where `epoch` is not. None: it is, or an older
    # coordinator does not say.
    completed: int | None = None
    highest: int = -1  # the highest id there ever was: one that was aborted is not used again
    positions: Json = Field(default_factory=dict[str, JsonValue])
    ready: tuple[str, ...] = ()  # sources that have read everything
    written: dict[str, int] = Field(default_factory=dict[str, int])  # rows, by sink name
    open: tuple[OpenEpoch, ...] = ()  # in their order
    # Above the last completed one: given up, so that no rows can be under their tokens. None: an
    # older coordinator does not say, and any up to `highest` may be.
    aborted: tuple[int, ...] | None = None
    savepoint: bool = False  # end with a savepoint, as soon as nothing is open

    @property
    def really_completed(self) -> int:
        return self.epoch if self.completed is None else self.completed


class PipelinePayload(Message):
    """Of PIPELINE and SETTLE tasks alike: SETTLE only deals with `restore.open`."""

    job: str
    incarnation: str
    env: EnvSpec
    pipeline: PipelineSpec
    secrets: Json = Field(default_factory=dict[str, JsonValue])
    restore: Restore = Restore()
    commit_deadline_s: float = COMMIT_DEADLINE_S


class ForgetPayload(Message):
    """Of a FORGET task: a job that has ended, and of which nobody can commit any more."""

    job: str
    incarnation: str
    env: EnvSpec
    pipelines: tuple[PipelineSpec, ...]
    secrets: Json = Field(default_factory=dict[str, JsonValue])
    up_to: int  # no epoch above it is touched: the job may have been restored by now
    # By pipeline, of a job that can be restored: the last epoch that was completed. Rows of one
    # between it and `up_to` are what stops a restore (E7), so their mark stays.
    completed: dict[int, int] = Field(default_factory=dict[int, int])
    # Every incarnation that the store knows. What others left at the same targets, and did not
    # touch for `STRAY_GRACE_S`, has no owner. None: there are too many to say, and none is a stray.
    owners: tuple[str, ...] | None = None


class Settled(Message):
    """What a SETTLE task did with the epochs that were open."""

    completed: tuple[EpochCompleted, ...] = ()
    aborted: tuple[int, ...] = ()
