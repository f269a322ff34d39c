"""Payloads and results of the tasks for lake tables. A wire format.

A payload holds everything that a worker needs, the leader's time included, so that no two clocks
are ever compared. Files are named by their paths alone: whoever rewrites or replaces them reads
their records from the planned snapshot, so a plan stays small enough to be rows of the store.
"""

from __future__ import annotations

from typing import Literal, assert_never

from pydantic import Field, JsonValue

from headrace.model.jobs.epoch import COMMIT_DEADLINE_S
from headrace.model.tables.evaluation import RuleUnit
from headrace.model.tables.plan import Gain
from headrace.model.tables.status import OptimizingType
from headrace.protocol.messages import Json, Message

TABLES_PER_EVALUATION_MAX = 50
TABLES_PER_CATALOG_MAX = 100_000  # in one discovery; a filter lets fewer through
PARTITIONS_NAMED_MAX = 100  # partitions of a pending input; the others are only counted
RULES_REPORTED_MAX = 10  # partitions of a summary whose rules are reported in full
CLOCKS_MAX = 10_000  # partitions of a table whose clocks are kept
# Sent with one evaluation task: 0.1 s of the leader's writer. One table may have as many.
CLOCKS_PER_EVALUATION_MAX = CLOCKS_MAX
BINS_PER_TASK_MAX = 64  # in one Spark job
BINS_PER_PROCESS_MAX = 400
FILES_PER_PROCESS_MAX = 10_000
# Results of all rewrite tasks of a process, which its commit task carries: 1 s of the leader's
# writer. A new file with metrics of 100 columns takes 12 kB.
COMMIT_BYTES_MAX = 8_000_000
FILES_BLAMED_MAX = 1_000  # paths of one table whose failures are counted

TypeName = Literal["MINOR", "MAJOR", "FULL"]
# A `PartitionClock`: when it was last optimized minor, major and full, and when it was first seen.
Times = tuple[int | None, int | None, int | None, int | None]
Clocks = dict[str, Times]  # by `spec/path`
# Default table properties by group, for tables where neither they nor their catalog set them. All
# groups are sent, since only the table's own properties say which group it is in.
GroupDefaults = dict[str, dict[str, str]]


def type_name(kind: OptimizingType) -> TypeName:
    """The type as the protocol writes it."""
    match kind:
        case OptimizingType.MINOR:
            return "MINOR"
        case OptimizingType.MAJOR:
            return "MAJOR"
        case OptimizingType.FULL:
            return "FULL"
    assert_never(kind)


class CatalogSpec(Message):
    """How a catalog is reached. Secrets are redacted here, and stand beside it in the payload."""

    name: str
    type: str
    properties: dict[str, str] = Field(default_factory=dict[str, str])


class OfCatalog(Message):
    """A payload for a task that reads or writes a catalog."""

    catalog: CatalogSpec
    secrets: Json = Field(default_factory=dict[str, JsonValue])  # by "<catalog>.<property>"


class TableIdentifier(Message):
    id: str  # in the store; the owner of the mark in the table
    namespace: tuple[str, ...]
    name: str
    uuid: str | None = None  # as it was last seen; None: it was never seen


class DiscoverPayload(OfCatalog):
    table_filter: str | None = None


class Discovered(Message):
    """The result of DISCOVER: every table of the catalog that the filter lets through."""

    # By namespace, with its levels joined by U+001F as in Iceberg's REST protocol.
    tables: dict[str, tuple[str, ...]]
    filtered: int = 0
    # Namespaces that could not be listed: nothing in them counts as dropped.
    failed: dict[str, str] = Field(default_factory=dict[str, str])


class ToEvaluate(Message):
    """A table that is to be evaluated."""

    table: TableIdentifier
    pointer: str | None = None  # the metadata that was evaluated last
    look_at_ms: int | None = None  # from then on a rule may fire though nothing has changed
    clocks: Clocks = Field(default_factory=dict[str, Times])
    left_out: tuple[str, ...] = ()  # files that failed too often


class EvaluatePayload(OfCatalog):
    defaults: dict[str, str] = Field(default_factory=dict[str, str])
    groups: GroupDefaults = Field(default_factory=dict[str, dict[str, str]])
    now_ms: int
    tables: tuple[ToEvaluate, ...]


class Chosen(Message):
    """The settings of a table that the leader decides by."""

    enabled: bool = True
    group: str = "default"
    quota: float = 0.5
    min_plan_interval_ms: int = 60_000
    refresh_max_interval_ms: int = 0
    refresh_step_ms: int = 30_000


class Pending(Message):
    """Input that waits to be rewritten: stored with the table until it is (T2)."""

    type: TypeName
    snapshot: int
    partitions: int
    told: tuple[str, ...]  # the first of them, by name
    files: int
    bytes: int
    position_deletes: int  # files
    equality_deletes: int
    files_after: int
    bytes_after: int
    benefit: float


class RuleReport(Message):
    """A rule, as one partition was held against it (`OptimizingRule`)."""

    type: TypeName
    name: str
    said: str  # what is measured, for people
    measured: float
    threshold: float
    fired: bool
    unit: RuleUnit | None = None  # None: its worker is older, and has the unit in the text


class PartitionReport(Message):
    """A partition with all its rules."""

    partition: str
    type: TypeName | None
    files: int
    bytes: int
    rules: tuple[RuleReport, ...]


class Summary(Message):
    """What an evaluation measured: for people alone, nothing is decided by it."""

    partitions: int
    due: int  # partitions for which a rule has fired
    files: int
    bytes: int
    rows: int
    position_deletes: int
    equality_deletes: int
    score: int  # how little a scan wastes, 0 to 100
    amoro_score: int
    most: tuple[PartitionReport, ...] = ()  # those most in need, the neediest first
    # Who has set a table property: "table", "catalog" or "group". Others are built in.
    set_by: dict[str, str] = Field(default_factory=dict[str, str])


class EvaluatedTable(Message):
    """One table: it is `gone`, has an `error`, is `unchanged`, or was measured in full."""

    id: str
    gone: bool = False  # there is no such table
    error: str | None = None
    unchanged: bool = False  # its pointer is the same, and no rule is due: nothing was scanned
    uuid: str | None = None
    pointer: str | None = None
    snapshot: int | None = None
    look_at_ms: int | None = None
    chosen: Chosen = Chosen()
    flaws: tuple[str, ...] = ()
    pending: Pending | None = None
    summary: Summary | None = None
    seen: tuple[str, ...] = ()  # partitions without a clock that need one from now on


class EvaluationResult(Message):
    """The result of EVALUATE."""

    tables: tuple[EvaluatedTable, ...]
    catalog_error: str | None = None  # the catalog itself is unavailable: no table is to blame


class PlanPayload(OfCatalog):
    defaults: dict[str, str] = Field(default_factory=dict[str, str])
    groups: GroupDefaults = Field(default_factory=dict[str, dict[str, str]])
    table: TableIdentifier
    now_ms: int
    clocks: Clocks = Field(default_factory=dict[str, Times])
    left_out: tuple[str, ...] = ()
    budget_bytes: int | None = None  # input of one process
    at_least: TypeName | None = None  # a user asked for it: no rule has to fire, but it must gain
    dry: bool = False  # for a dry run: nothing will be done with the plan


class PlannedBin(Message):
    """Files that are rewritten into one."""

    number: int  # within the process; a bin is replaced as a whole or not at all
    partition: str
    paths: tuple[str, ...]
    bytes: int


class Planned(Message):
    """The result of PLAN: what a process is to rewrite.

    `type`, `gain` and `tasks` are empty when no bin would gain; `reason` says so.
    """

    uuid: str
    snapshot: int | None = None
    type: TypeName | None = None
    reason: str | None = None  # why there is nothing to do
    tasks: tuple[tuple[PlannedBin, ...], ...] = ()  # each is one rewrite task
    gain: Gain | None = None
    done: dict[str, TypeName] = Field(default_factory=dict[str, TypeName])  # by `spec/path`
    left: int = 0  # partitions with bins that are left for another process
    spent: int = 0  # the highest process number that is marked in the table itself
    left_out: tuple[str, ...] = ()
    chosen: Chosen = Chosen()
    retries: int = 5
    allow_partial_commit: bool = False
    target_bytes: int = 134_217_728


class ProcessRef(Message):
    """A process at its table: owner and number make up its commit token."""

    id: str
    owner: str
    number: int
    snapshot: int
    uuid: str


class RewritePayload(OfCatalog):
    table: TableIdentifier
    process: ProcessRef
    bins: tuple[PlannedBin, ...]
    target_bytes: int


class BinFailed(Message):
    number: int
    error: str
    path: str | None = None  # the file that the error is about


class RewriteResult(Message):
    rewritten: tuple[Json, ...] = ()  # lake.iceberg.records.Rewritten, one for each bin
    failed: tuple[BinFailed, ...] = ()


class CommitPayload(OfCatalog):
    table: TableIdentifier
    process: ProcessRef
    bins: tuple[PlannedBin, ...]  # that were rewritten
    rewritten: tuple[Json, ...]  # in the same order
    commit_deadline_s: float = COMMIT_DEADLINE_S


class CommitResult(Message):
    """How a commit ended. Idempotent: repeated, the table gives the same answer (E1, E3).

    CONFLICT: nothing could be replaced; the token is spent by an abort, and what was staged is
    deleted. GONE: there is no such table any more. ABORTED: the token had been spent by an abort.
    """

    outcome: Literal["COMMITTED", "CONFLICT", "ABORTED", "GONE"]
    already: bool = False  # an earlier try of the same commit had landed
    snapshot: int | None = None
    bins: tuple[int, ...] | None = None  # those replaced; None: committed, but unknown which
    conflicts: dict[str, str] = Field(default_factory=dict[str, str])  # by bin number


class DiscardPayload(OfCatalog):
    table: TableIdentifier
    process: ProcessRef
    commit_deadline_s: float = COMMIT_DEADLINE_S


class Discarded(Message):
    files: int = 0
    # The token had been spent by a commit of the process that was believed lost.
    committed_snapshot: int | None = None
