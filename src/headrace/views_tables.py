"""What a coordinator shows of catalogs and lake tables, and what a client reads."""

from __future__ import annotations

from pydantic import Field

from headrace.views import View


class CatalogView(View):
    name: str
    type: str
    properties: dict[str, str] = Field(default_factory=dict[str, str])  # secrets are redacted
    defaults: dict[str, str] = Field(default_factory=dict[str, str])
    table_filter: str | None = None
    group: str
    tables: int = 0
    removing: bool = False
    created_at_ms: int
    discovered_at_ms: int | None = None  # None: nobody has looked into it yet
    due_at_ms: int  # of the next look
    looking: bool = False  # a look is under way
    waits_for: str | None = None  # what a look that is due has to wait for
    failures: int = 0  # in a row
    error: str | None = None
    changed: bool | None = None  # after a command: whether it changed anything


class CatalogList(View):
    catalogs: tuple[CatalogView, ...]


class PendingView(View):
    """Input that waits to be rewritten."""

    type: str
    files: int
    files_after: int
    bytes: int
    bytes_after: int
    deletes: int = 0  # files
    partitions: int


class ProcessView(View):
    id: str
    table: str
    number: int
    type: str
    status: str
    settling: bool = False  # the table is asked whether its commit has landed
    canceling: bool = False
    snapshot: str  # from which it was planned; as text, since many programs cut such a number
    committed_snapshot: str | None = None
    files_before: int | None = None  # that were planned to be rewritten
    files_planned: int | None = None  # what they were to become, as the plan guessed
    files_after: int | None = None  # what they have become; None: nothing, or nobody can tell
    bytes_before: int | None = None
    bytes_planned: int | None = None
    bytes_after: int | None = None
    partitions_left: int = 0  # that wait for a further process
    conflicts: int = 0  # bins that were not replaced
    tasks: int | None = None
    tasks_done: int | None = None
    workers: tuple[str, ...] = ()
    error: str | None = None
    created_at_ms: int
    ended_at_ms: int | None = None


class BlockerView(View):
    name: str
    reason: str
    created_at_ms: int
    expires_at_ms: int
    # When it was taken or renewed: the process whose commit had begun before, and may still land.
    committing: int | None = None


class TableView(View):
    identifier: str
    catalog: str
    group: str
    quota: float = 0.5  # up to 1: that part of the group's slots; above: so many
    quota_set_by: str | None = None  # table, catalog or group; None: nobody, or nobody has looked
    status: str
    status_since_ms: int
    enabled: bool = True  # by property
    paused: bool = False  # by command
    wanted_type: str | None = None  # somebody asked for it
    health: int | None = None  # 0 to 100; None: nobody has looked at it yet
    files: int | None = None
    bytes: int | None = None
    rows: int | None = None
    partitions: int | None = None
    pending: PendingView | None = None
    process: ProcessView | None = None  # that runs
    processes: int = 0  # how many there were
    due_at_ms: int  # of the next look at it
    not_before_ms: int = 0  # of planning
    evaluated_at_ms: int | None = None
    optimized_at_ms: int | None = None
    failures: int = 0  # in a row
    error: str | None = None
    flaws: tuple[str, ...] = ()
    left_out: tuple[str, ...] = ()  # files that failed too often
    blockers: tuple[BlockerView, ...] = ()
    changed: bool | None = None  # after a command: whether it changed anything


class TableList(View):
    tables: tuple[TableView, ...]
    after: str | None = None  # to ask for those that follow; None: these are all


class ProcessList(View):
    processes: tuple[ProcessView, ...]


class FindingView(View):
    about: str
    verdict: str  # ok, holds, blocks
    said: str
    measured: str | None = None
    threshold: str | None = None
    property: str | None = None
    way_out: str | None = None


class ExplanationView(View):
    table: str
    headline: str
    findings: tuple[FindingView, ...]


class DryPlanView(View):
    """What a process would do now; of one that is not ready, how far it is."""

    task: str
    table: str
    status: str  # of the task that plans
    waits_for: str | None = None
    error: str | None = None
    type: str | None = None
    reason: str | None = None  # why there is nothing to do
    files_before: int = 0
    files_after: int = 0
    bytes_before: int = 0
    bytes_after: int = 0
    bytes_read: int = 0
    deletes_removed: int = 0
    partitions: dict[str, int] = Field(default_factory=dict[str, int])  # files to rewrite
    tasks: int = 0
    partitions_left: int = 0  # for a further process
    left_out: tuple[str, ...] = ()


class Unblocked(View):
    table: str
    name: str
