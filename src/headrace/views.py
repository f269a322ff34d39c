"""What a coordinator shows, and what a client reads: the same classes on both sides."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, Field, JsonValue


class View(BaseModel):
    """Fields that only a newer coordinator has are kept, so that JSON output has them."""

    model_config = ConfigDict(frozen=True, extra="allow")


class Health(View):
    status: str  # ok, or degraded: see `problems`
    problems: tuple[str, ...] = ()
    leading: bool
    term: int | None = None
    leader: str | None = None
    version: str
    store: str
    pid: int


class ProgressView(View):
    step: str
    epoch: int = 0
    rows: int = 0
    rows_expected: int | None = None


class AttemptView(View):
    """The attempt that runs, or comes next, once one has failed; or the one that settles."""

    kind: str  # PIPELINE; SETTLE: what an ended execution left open is finished or aborted
    number: int
    most: int  # so many attempts there are, then it is given up
    epoch: int  # the first one that is not complete: it begins there
    running: bool  # False: it is waited for
    lost: bool = False  # the last one ended with its worker
    error: str | None = None  # why the last one failed
    failed_at_ms: int | None = None  # when that was: numbers begin anew with progress
    next_at_ms: int | None = None  # one that does not run yet begins no sooner


class PipelineView(View):
    number: int
    status: str
    epoch: int = 0  # the last complete one; of a FINISHED pipeline its completed point
    rows_in: int = 0
    rows_out: int = 0
    read: dict[str, int] = Field(default_factory=dict[str, int])  # rows, by source name
    written: dict[str, int] = Field(default_factory=dict[str, int])  # rows, by sink name
    commits: dict[str, JsonValue] = Field(default_factory=dict[str, JsonValue])
    error: str | None = None
    execution: str | None = None
    worker: str | None = None
    spark_application: str | None = None
    progress: ProgressView | None = None
    attempt: AttemptView | None = None  # None: nothing has failed since an epoch was completed
    repeatable: bool | None = None  # a crash gives the same rows again; None: not looked up
    not_repeatable: str | None = None  # why it is not


class SavepointView(View):
    """Where a job that has ended can be restored."""

    kind: str  # savepoint; or checkpoint, the last one of a failed job
    epoch: int
    sources: tuple[str, ...] = ()  # of which it has a position
    ready: tuple[str, ...] = ()  # sources that have read everything
    written: dict[str, int] = Field(default_factory=dict[str, int])  # rows, by sink
    made_at_ms: int
    expires_at_ms: int | None = None
    refused: str | None = None  # why a restore is refused for now


class SavepointDeleted(View):
    id: str  # of its job


class CheckpointView(View):
    pipeline: int
    id: int  # strictly growing, also through a restore
    kind: str  # checkpoint, savepoint, completed, save mode
    status: str
    planned_at_ms: int
    prepared_at_ms: int | None = None
    completed_at_ms: int | None = None
    duration_ms: int | None = None
    size_bytes: int = 0  # of its plan and its stage handles
    rows_in: int | None = None
    rows_out: int | None = None


class CleanupView(View):
    """What is still to be deleted of a job that has ended, and when."""

    step: str  # STATE: its rows in the store; TARGETS: what it staged and marked at its sinks
    due_at_ms: int  # after a failure, of the next try
    failures: int = 0
    error: str | None = None  # of the last try
    waits_for: str | None = None
    at_work: bool = False  # it was asked for, or there is a task for it that has not ended
    unsettled: tuple[int, ...] = ()  # pipelines with an epoch that is neither committed nor aborted
    secrets: tuple[str, ...] = ()  # kept for it, encrypted: which ones, as "<sink>.<option>"


class RunView(View):
    """A run of a job: each restore is a further one."""

    id: str
    name: str
    status: str
    group: str
    run: int = 1
    error: str | None = None
    created_at_ms: int
    started_at_ms: int | None = None
    ended_at_ms: int | None = None
    pipelines: tuple[PipelineView, ...] = ()


class JobView(RunView):
    waits_for: str | None = None
    savepoint: SavepointView | None = None
    notes: tuple[str, ...] = ()  # of a restore: what is new in the job file
    cleaned: bool = False  # its state is deleted, and this is what history has
    cleanup: CleanupView | None = None  # of a job that has ended; None: nothing is left to delete
    history_until_ms: int | None = None  # of a job that has ended


class EndedView(RunView):
    """From history: how a run ended."""

    incarnation: str  # the same of all runs of a job; another job under the same id has its own


class WorkerView(View):
    id: str
    group: str
    slots: int
    host: str
    pid: int
    version: str
    spark_application: str
    registered_at_ms: int
    seen_at_ms: int
    executions: tuple[str, ...] = ()
    resource: str | None = None  # what it was started for; None: somebody started it by hand
    launch: int = 0  # which start of that
    memory_mb: int = 0  # 0: it did not say
    drain_since_ms: int | None = None  # since when it is given nothing more
    next: str = ""  # what the keeper does about it


class JobList(View):
    """Those that have not ended."""

    jobs: tuple[JobView, ...]


class HistoryList(View):
    runs: tuple[EndedView, ...]


class CheckpointList(View):
    checkpoints: tuple[CheckpointView, ...]


class LogLineView(View):
    at_ms: int
    level: str
    source: str  # the worker that said it; or coordinator, with the task that it speaks of
    number: int  # each source counts its own
    text: str


class LogList(View):
    """What was said about a job, in the order of its times."""

    job: str
    status: str  # of the job
    ended: bool  # whether the job has ended: its lines are complete, but for stragglers
    lines: tuple[LogLineView, ...]
    cursor: str  # for what comes after them


class IdList(View):
    """Those that begin as was asked, in their order."""

    ids: tuple[str, ...]


class WorkerList(View):
    workers: tuple[WorkerView, ...]
