"""What coordinator and worker say to each other. Values only; the contract is in docs/reference.

A worker says what it holds, what it finished and how far it got; the answer says what it should
hold, what to stop and what is acknowledged. Saying it twice changes nothing.

Unknown fields are ignored, so that a newer side may add some; a change that an older side would
misunderstand raises `PROTOCOL_VERSION`.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, JsonValue

from headrace.model.groups.capacity import THREADS_MAX
from headrace.model.task import Claim, FailureCause, Lane, TaskKind
from headrace.model.text import Text

PROTOCOL_VERSION = 4
REPORTS_PER_SYNC_MAX = 200
REPORT_BYTES_PER_SYNC_MAX = 8_000_000  # of all; half of what a coordinator takes
LINES_PER_SYNC_MAX = 200
LINE_CHARS_MAX = 2000
COUNT_MAX = 2**53  # what every JSON reader can hold
PAYLOAD_BYTES_MAX = 4_000_000  # a plan or all handles; larger ones belong in a file at the target

Json = dict[str, JsonValue]


class Message(BaseModel):
    model_config = ConfigDict(frozen=True, extra="ignore")


class Register(Message):
    protocol: int = PROTOCOL_VERSION
    worker: Text  # a new name for each process
    group: Text
    slots: Annotated[int, Field(ge=1, le=THREADS_MAX)]
    control_slots: Annotated[int, Field(ge=1, le=100)]
    version: Text
    host: Text
    pid: int
    spark_application: Text
    # What it was started for, if a container of ours started it. Of an older launch than the
    # current one it is refused, and ends itself (R8).
    resource: Text | None = None
    launch: Annotated[int, Field(ge=0, le=COUNT_MAX)] = 0
    memory_mb: Annotated[int, Field(ge=0, le=COUNT_MAX)] = 0


class Registered(Message):
    term: int
    heartbeat_timeout_ms: int


class Progress(Message):
    """How far an execution got. The latest one counts; none of it is durable."""

    step: str  # for people: "planning", "running", "staging", "committing", …
    epoch: int = 0
    rows: int = 0  # staged so far, all epochs of this execution
    rows_expected: int | None = None
    committing: int | None = None  # an epoch past "prepared", beside the step the next one is in
    spark_application: str | None = None
    # Grows with every sign of life: a step, rows, a finished Spark task, a look while it waits on
    # purpose. 0: its worker does not count them, and can't be judged by them (D5).
    activity: int = 0


class Held(Message):
    """An execution that runs on the worker, or whose end has not been acknowledged yet."""

    claim: Claim
    progress: Progress | None = None


class EpochPlanned(Message):
    kind: Literal["EPOCH_PLANNED"] = "EPOCH_PLANNED"
    seq: int
    claim: Claim
    epoch: int
    plan: Json


class EpochPrepared(Message):
    kind: Literal["EPOCH_PREPARED"] = "EPOCH_PREPARED"
    seq: int
    claim: Claim
    epoch: int
    handles: Json  # by sink name
    ready: tuple[Text, ...] = ()  # sources whose last slice is in this epoch, or that have none
    # Rows read in this epoch, by source name. A source of which nobody can tell is not in it; None:
    # its worker does not count, and `rows_in` of its completion is all that is known.
    read: dict[Text, Annotated[int, Field(ge=0, le=COUNT_MAX)]] | None = None


class EpochCompleted(Message):
    kind: Literal["EPOCH_COMPLETED"] = "EPOCH_COMPLETED"
    seq: int
    claim: Claim
    epoch: int
    positions: Json  # by source name: where the next epoch begins
    rows_in: int
    rows_out: int
    commits: Json  # by sink name, for people: table, snapshot, rows
    written: dict[Text, int] = Field(default_factory=dict[str, int])  # rows by sink, of all epochs


class TaskEnded(Message):
    kind: Literal["TASK_ENDED"] = "TASK_ENDED"
    seq: int
    claim: Claim
    outcome: Literal["SUCCESS", "SAVEPOINT", "FAILED", "CANCELED"]
    error: Text | None = None
    retry: bool = True  # False: the same would happen again, so don't
    # Of FAILED. Another one when its JVM went with it, or when its store is older than its targets:
    # then no progress that was made before speaks for another attempt (E7).
    cause: FailureCause = FailureCause.ERROR
    result: Json | None = None


Report = Annotated[
    EpochPlanned | EpochPrepared | EpochCompleted | TaskEnded, Field(discriminator="kind")
]


class LogLine(Message):
    """What was said about a job while an execution of it ran. Its worker counts the lines."""

    incarnation: Text
    number: Annotated[int, Field(ge=1, le=COUNT_MAX)]
    at_ms: Annotated[int, Field(ge=0, le=COUNT_MAX)]
    level: Text
    text: Text


class Seen(Message):
    """The last answer a worker saw. Only what it was given by then can be judged "not held"."""

    term: int = 0
    number: int = 0


class Sync(Message):
    protocol: int = PROTOCOL_VERSION
    worker: Text
    sync: int  # grows with each sync of this worker; a lower one is an old request that came late
    seen: Seen = Seen()
    holds: tuple[Held, ...] = ()
    reports: Annotated[tuple[Report, ...], Field(max_length=REPORTS_PER_SYNC_MAX)] = ()
    free: dict[Lane, int] = Field(default_factory=dict[Lane, int])
    # The oldest ones that nobody has taken yet, in their order.
    lines: Annotated[tuple[LogLine, ...], Field(max_length=LINES_PER_SYNC_MAX)] = ()


class Assignment(Message):
    claim: Claim
    kind: TaskKind
    lane: Lane
    payload: Json


class Acknowledged(Message):
    """A report was taken, and the worker may forget it. `held`: its claim was still current."""

    seq: int
    held: bool
    plan: Json | None = None  # of EPOCH_PLANNED: the plan to run, which may be an older one


class Answer(Message):
    term: int
    number: int
    registered: bool = True  # False: stop everything and register again
    assignments: tuple[Assignment, ...] = ()
    stop: tuple[Claim, ...] = ()
    savepoint: tuple[Claim, ...] = ()  # finish what is open, plan nothing more, end with SAVEPOINT
    acknowledged: tuple[Acknowledged, ...] = ()
    lines: int = 0  # the highest number of a line that was taken: up to it, all may be forgotten


class Rung(Message):
    """How a parked wait ended: there may be something for the worker, or the time was up."""

    rung: bool


class Goodbye(Message):
    """A worker stops cleanly: what it still holds goes to others at once.

    `cause`: its JVM died, and all that it held with it; None: nothing did.
    """

    worker: Text
    cause: FailureCause | None = None
    reports: Annotated[tuple[Report, ...], Field(max_length=REPORTS_PER_SYNC_MAX)] = ()
    lines: Annotated[tuple[LogLine, ...], Field(max_length=LINES_PER_SYNC_MAX)] = ()
