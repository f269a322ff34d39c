"""Messages between coordinator and worker, and the payloads of job tasks. A wire format.

Values only; the contract is in docs/reference/protocol.md. A worker reports what it holds, what it
has finished and how far it got; the answer says what it should hold, what to stop and what is
acknowledged. Every message is idempotent: sending it twice changes nothing.

Unknown fields are ignored, so that a newer side may add some. A change that an older side would
misunderstand raises `PROTOCOL_VERSION`, and `versions.py` says since when each part exists. A
program speaks its own version and the one before; each message says which of them it is in.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, JsonValue

from headrace.model.groups import THREADS_MAX
from headrace.model.jobs.epoch import COMMIT_DEADLINE_S, EpochStatus
from headrace.model.jobs.spec import EnvSpec, PipelineSpec
from headrace.model.task import Claim, FailureCause, Lane, TaskKind
from headrace.model.text import Text

PROTOCOL_VERSION = 5
UNSAID_VERSION = 4  # of whoever does not say it: the last version that did not negotiate
REPORTS_PER_SYNC_MAX = 200
REPORT_BYTES_PER_SYNC_MAX = 8_000_000  # of all reports; half of what a coordinator accepts
LINES_PER_SYNC_MAX = 200
LINE_CHARS_MAX = 2000
COUNT_MAX = 2**53  # the largest whole number that every JSON reader represents exactly
PLUGINS_MAX = 1000  # of a worker
PAYLOAD_BYTES_MAX = 4_000_000  # a plan or all handles; larger ones belong in a file at the target

Json = dict[str, JsonValue]


class Message(BaseModel):
    """Immutable; unknown fields are ignored."""

    model_config = ConfigDict(frozen=True, extra="ignore")


class Spoken(Message):
    """What a worker says, in the version that it says it in."""

    protocol: int = PROTOCOL_VERSION


class PluginVersion(Message):
    """A plug-in that a worker has."""

    role: Text  # source, transform or sink
    name: Text  # as its descriptor writes it
    version: Text = ""  # of the package that brings it
    digest: Text = ""  # of its descriptor: the same digest means the same options


class Register(Spoken):
    """A worker introduces itself."""

    worker: Text  # its id; a new one for each process
    group: Text
    slots: Annotated[int, Field(ge=1, le=THREADS_MAX)]
    control_slots: Annotated[int, Field(ge=1, le=100)]
    version: Text
    host: Text
    pid: int
    spark_application: Text
    # The resource and launch that it was started for, if a container of ours started it. A worker
    # of an older launch than the current one is refused, and ends itself (R8).
    resource: Text | None = None
    launch: Annotated[int, Field(ge=0, le=COUNT_MAX)] = 0
    memory_mb: Annotated[int, Field(ge=0, le=COUNT_MAX)] = 0
    # None: it speaks version 4, and has the plug-ins that came with that.
    plugins: Annotated[tuple[PluginVersion, ...], Field(max_length=PLUGINS_MAX)] | None = None


class Registered(Message):
    """The answer to `Register`."""

    term: int
    heartbeat_timeout_ms: int
    protocol: int = UNSAID_VERSION  # the newest that the leader speaks


class Progress(Message):
    """How far an execution has got. Only the latest one counts, and none of it is durable."""

    step: str  # for people: "planning", "running", "staging", "committing", …
    epoch: int = 0
    rows: int = 0  # staged so far, in all epochs of this execution
    rows_expected: int | None = None
    committing: int | None = (
        None  # an epoch that is being committed while the next one is in `step`
    )
    spark_application: str | None = None
    # Grows with every sign of life: a step, rows, a finished Spark task, a poll while it waits on
    # purpose. 0: its worker does not count them, so a stall can't be detected by it (D5).
    activity: int = 0


class Held(Message):
    """An execution that runs on the worker, or whose end has not been acknowledged yet."""

    claim: Claim
    progress: Progress | None = None


class EpochPlanned(Message):
    """Report: an epoch is planned. It runs only once the plan is acknowledged."""

    kind: Literal["EPOCH_PLANNED"] = "EPOCH_PLANNED"
    seq: int
    claim: Claim
    epoch: int
    plan: Json


class EpochPrepared(Message):
    """Report: an epoch is staged at every sink. It is committed only once that is acknowledged."""

    kind: Literal["EPOCH_PREPARED"] = "EPOCH_PREPARED"
    seq: int
    claim: Claim
    epoch: int
    handles: Json  # by sink name
    ready: tuple[Text, ...] = ()  # sources whose last slice is in this epoch, or that have none
    # Rows read in this epoch, by source name; a source whose rows can't be counted is not in it.
    # None: its worker does not count, and `rows_in` of the completion is all that is known.
    read: dict[Text, Annotated[int, Field(ge=0, le=COUNT_MAX)]] | None = None


class EpochCompleted(Message):
    """Report: an epoch is committed at every sink."""

    kind: Literal["EPOCH_COMPLETED"] = "EPOCH_COMPLETED"
    seq: int
    claim: Claim
    epoch: int
    positions: Json  # by source name: where the next epoch begins
    rows_in: int
    rows_out: int
    commits: Json  # by sink name, for people: table, snapshot, rows
    written: dict[Text, int] = Field(default_factory=dict[str, int])  # rows by sink, all epochs


class TaskEnded(Message):
    """Report: an execution has ended."""

    kind: Literal["TASK_ENDED"] = "TASK_ENDED"
    seq: int
    claim: Claim
    outcome: Literal["SUCCESS", "SAVEPOINT", "FAILED", "CANCELED"]
    error: Text | None = None
    retry: bool = True  # False: another attempt would fail in the same way
    # Of FAILED. Not ERROR when its JVM died with it, or when the store is older than a target: then
    # no progress that was made before justifies another attempt (E7).
    cause: FailureCause = FailureCause.ERROR
    result: Json | None = None


class TaskGivenBack(Message):
    """Report: this worker can't run a task that was assigned to it, and nothing of it was begun.

    It costs the task no attempt that counts, and another worker gets it.
    """

    kind: Literal["TASK_GIVEN_BACK"] = "TASK_GIVEN_BACK"
    seq: int
    claim: Claim
    reason: Text
    whole_kind: bool = False  # it can run no task of this kind; False: only not this one


End = TaskEnded | TaskGivenBack
Report = Annotated[
    EpochPlanned | EpochPrepared | EpochCompleted | TaskEnded | TaskGivenBack,
    Field(discriminator="kind"),
]


class LogLine(Message):
    """A log line about a job, from one of its executions; numbered by the worker."""

    incarnation: Text
    number: Annotated[int, Field(ge=1, le=COUNT_MAX)]
    at_ms: Annotated[int, Field(ge=0, le=COUNT_MAX)]
    level: Text
    text: Text


class LastAnswerSeen(Message):
    """The last answer that a worker has seen.

    Only what was assigned up to that answer, and is not held, counts as lost.
    """

    term: int = 0
    number: int = 0


class Sync(Spoken):
    """The heartbeat of a worker: all it holds, what it reports, and how much more it can take."""

    worker: Text
    sync: int  # grows with each sync of this worker; a lower number is a request that arrived late
    seen: LastAnswerSeen = LastAnswerSeen()
    holds: tuple[Held, ...] = ()
    reports: Annotated[tuple[Report, ...], Field(max_length=REPORTS_PER_SYNC_MAX)] = ()
    free: dict[Lane, int] = Field(default_factory=dict[Lane, int])
    # The oldest log lines that are not acknowledged yet, in their order.
    lines: Annotated[tuple[LogLine, ...], Field(max_length=LINES_PER_SYNC_MAX)] = ()


class Assignment(Message):
    """A task that the worker is to run.

    A kind or a lane that it does not know is kept as text: it gives the task back, and reads the
    rest of the answer all the same.
    """

    claim: Claim
    kind: Annotated[TaskKind | Text, Field(union_mode="left_to_right")]
    lane: Annotated[Lane | Text, Field(union_mode="left_to_right")]
    payload: Json


class Acknowledged(Message):
    """A report was recorded, and the worker may forget it. `held`: its claim was still current."""

    seq: int
    held: bool
    plan: Json | None = None  # of EPOCH_PLANNED: the plan to run, maybe that of an earlier attempt


class Answer(Message):
    """The answer to `Sync`."""

    term: int
    number: int
    registered: bool = True  # False: stop everything and register again
    assignments: tuple[Assignment, ...] = ()
    stop: tuple[Claim, ...] = ()
    savepoint: tuple[Claim, ...] = ()  # finish open epochs, plan no more, end with SAVEPOINT
    acknowledged: tuple[Acknowledged, ...] = ()
    lines: int = 0  # log lines up to this number are recorded, and may be forgotten
    protocol: int = UNSAID_VERSION  # the newest that the leader speaks


class WaitEnd(Message):
    """How a long poll ended. `rung`: there may be something for the worker; else it timed out."""

    rung: bool


class Goodbye(Spoken):
    """A worker stops cleanly: what it still holds is given to others at once.

    `cause`: how its JVM died, with all that it held; None: the JVM did not die.
    """

    protocol: int = UNSAID_VERSION
    worker: Text
    cause: FailureCause | None = None
    reports: Annotated[tuple[Report, ...], Field(max_length=REPORTS_PER_SYNC_MAX)] = ()
    lines: Annotated[tuple[LogLine, ...], Field(max_length=LINES_PER_SYNC_MAX)] = ()


class Slice(Message):
    """What one source reads in one epoch. The same slice gives the same rows (E5)."""

    data: JsonValue  # understood by the source alone
    after: JsonValue  # the source's position once the slice is read
    rows: int | None = None  # when it is known beforehand
    last: bool = False  # nothing comes after it
    lasts_ms: int = 0  # reading it takes at least so long, when its source is rate-limited


class EpochPlan(Message):
    """What an epoch reads: fixed before it runs, and the same each time it is run."""

    slices: dict[str, Slice]  # by source name; a source that is exhausted has none
    now_ms: int  # the value of NOW() and the like in this epoch


class OpenEpoch(Message):
    """An epoch that an earlier execution left open."""

    epoch: int
    status: EpochStatus
    plan: EpochPlan
    handles: Json | None = None


class Restore(Message):
    """Where an execution begins."""

    epoch: int = 0  # the last completed one, or a higher one, since a restore skips ids
    # The last epoch that really was completed, where `epoch` is a skipped id. None: `epoch` is
    # it, or an older coordinator does not say.
    completed: int | None = None
    highest: int = -1  # the highest id ever used: that of an aborted epoch is not used again
    positions: Json = Field(default_factory=dict[str, JsonValue])
    ready: tuple[str, ...] = ()  # sources that have read everything
    written: dict[str, int] = Field(default_factory=dict[str, int])  # rows, by sink name
    open: tuple[OpenEpoch, ...] = ()  # in their order
    # Epochs above the last completed one that were aborted: no rows can stand under their tokens.
    # None: an older coordinator does not say, and any of them up to `highest` may be aborted.
    aborted: tuple[int, ...] | None = None
    savepoint: bool = False  # end with a savepoint as soon as no epoch is open

    @property
    def really_completed(self) -> int:
        return self.epoch if self.completed is None else self.completed


class PipelinePayload(Message):
    """The payload of PIPELINE and SETTLE tasks; SETTLE only deals with `restore.open`."""

    job: str
    incarnation: str
    env: EnvSpec
    pipeline: PipelineSpec
    secrets: Json = Field(default_factory=dict[str, JsonValue])
    restore: Restore = Restore()
    commit_deadline_s: float = COMMIT_DEADLINE_S


class ForgetPayload(Message):
    """The payload of a FORGET task, for a job that has ended and can't commit any more."""

    job: str
    incarnation: str
    env: EnvSpec
    pipelines: tuple[PipelineSpec, ...]
    secrets: Json = Field(default_factory=dict[str, JsonValue])
    up_to: int  # no epoch above it is touched, since the job may have been restored by now
    # For a job that can be restored: the last completed epoch, by pipeline. Rows of an epoch
    # between that and `up_to` are what stops a restore (E7), so the marks of these epochs stay.
    completed: dict[int, int] = Field(default_factory=dict[int, int])
    # Every incarnation that the store knows. What any other left at the same targets, and did not
    # touch for `STRAY_GRACE_S`, is a stray. None: there are too many to list, so nothing counts as
    # a stray.
    owners: tuple[str, ...] | None = None


class SettleResult(Message):
    """What a SETTLE task did with the open epochs."""

    completed: tuple[EpochCompleted, ...] = ()
    aborted: tuple[int, ...] = ()
