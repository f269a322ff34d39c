"""Views of jobs, workers and the coordinator: what the API shows and a client reads. A wire format.

Both sides use the same classes. Their docstrings are descriptions in /openapi.json.
"""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, Field, JsonValue


class View(BaseModel):
    """Base of all views. Unknown fields of a newer coordinator are kept, for JSON output."""

    model_config = ConfigDict(frozen=True, extra="allow")


class Health(View):
    status: str  # ok, or degraded, with the reasons in `problems`
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

    kind: str  # PIPELINE; or SETTLE: finishes or aborts what an ended execution left open
    number: int
    most: int  # attempts until it is given up
    epoch: int  # the first one that is not complete, where the attempt begins
    running: bool  # False: it has not started yet
    lost: bool = False  # the last attempt was lost with its worker
    error: str | None = None  # why the last attempt failed
    failed_at_ms: int | None = None  # when that was; numbers restart after progress
    next_at_ms: int | None = None  # an attempt that does not run yet begins no sooner


class PipelineView(View):
    number: int
    status: str
    epoch: int = 0  # the last complete one; for a FINISHED pipeline its completed point
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
    repeatable: bool | None = None  # after a crash the same rows are read again; None: unknown
    not_repeatable: str | None = None  # why they are not


class SavepointView(View):
    """Where a job that has ended can be restored."""

    kind: str  # savepoint; or checkpoint: the last one of a failed job
    epoch: int
    sources: tuple[str, ...] = ()  # whose positions it holds
    ready: tuple[str, ...] = ()  # sources that have read everything
    written: dict[str, int] = Field(default_factory=dict[str, int])  # rows, by sink
    made_at_ms: int
    expires_at_ms: int | None = None
    refused: str | None = None  # why a restore is refused for now


class SavepointDeleted(View):
    id: str  # of the job


class CheckpointView(View):
    pipeline: int
    id: int  # strictly increasing, also through a restore
    kind: str  # checkpoint, savepoint, completed or save mode
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
    due_at_ms: int  # after a failure: of the next try
    failures: int = 0
    error: str | None = None  # of the last try
    waits_for: str | None = None
    at_work: bool = False  # it was requested, or its task has not ended
    unsettled: tuple[int, ...] = ()  # pipelines with an epoch that is neither committed nor aborted
    secrets: tuple[str, ...] = ()  # names of secrets kept for it, as "<sink>.<option>"


class RunView(View):
    """A run of a job; each restore begins a further one."""

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
    cleaned: bool = False  # its state is deleted, and this view comes from history
    cleanup: CleanupView | None = None  # of a job that has ended; None: nothing is left to delete
    history_until_ms: int | None = None  # of a job that has ended


class EndedView(RunView):
    """From history: how a run ended."""

    incarnation: str  # the same for all runs of a job; another job with this id has its own


class PluginVersionView(View):
    role: str  # source, transform or sink
    name: str
    version: str = ""  # of the package that brings it
    digest: str = ""  # the same digest means the same options


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
    resource: str | None = None  # that it was started for; None: it was started by hand
    launch: int = 0  # which launch of that resource
    memory_mb: int = 0  # 0: unknown
    drain_since_ms: int | None = None  # since when it is assigned no more tasks
    protocol: int = 4  # the version of the worker protocol that it speaks
    plugins: tuple[PluginVersionView, ...] = ()  # that it has
    next: str = ""  # what the coordinator does about it next


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
    source: str  # the worker that logged it; or coordinator, with the task that it is about
    number: int  # each source numbers its own lines
    text: str


class LogList(View):
    """What was said about a job, in the order of its times."""

    job: str
    status: str  # of the job
    ended: bool  # the job has ended: its lines are complete, but for late ones
    lines: tuple[LogLineView, ...]
    cursor: str  # for the lines that come after these


class IdList(View):
    """Those that begin as was asked, in their order."""

    ids: tuple[str, ...]


class WorkerList(View):
    workers: tuple[WorkerView, ...]
