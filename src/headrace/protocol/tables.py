"""What the tasks of lake tables carry, and what comes back.

A worker is told everything it needs, the leader's time included, so that no two clocks are ever
compared. Files are named by their paths alone: who rewrites or replaces them reads their records
from the planned snapshot, so a plan stays small enough to be rows of the store.
"""

from __future__ import annotations

from typing import Literal

from pydantic import Field, JsonValue

from headrace.model.epoch import COMMIT_DEADLINE_S
from headrace.protocol.messages import Json, Message

TABLES_PER_EVALUATION_MAX = 50
TABLES_PER_CATALOG_MAX = 100_000  # what one discovery may report; a filter brings fewer
PARTITIONS_TOLD_MAX = 100  # of a pending input, by name; the others are counted
RULES_TOLD_MAX = 10  # partitions of a summary whose rules are told in full
CLOCKS_MAX = 10_000  # partitions of a table whose clocks are kept
# Told with one evaluation: 0.1 s of the leader's writer. One table may have as many.
CLOCKS_PER_EVALUATION_MAX = CLOCKS_MAX
BINS_PER_TASK_MAX = 64  # one Spark job
BINS_PER_PROCESS_MAX = 400
FILES_PER_PROCESS_MAX = 10_000
# What the rewrite tasks of a process bring, and its commit is told: 1 s of the leader's writer. New
# files with metrics of 100 columns take 12 kB each.
COMMIT_BYTES_MAX = 8_000_000
FILES_BLAMED_MAX = 1_000  # paths whose failures are kept, of one table

TypeName = Literal["MINOR", "MAJOR", "FULL"]
# When a partition was last optimized minor, major and full, and when it was first seen.
Times = tuple[int | None, int | None, int | None, int | None]
Clocks = dict[str, Times]  # by `spec/path`
# By group: what its tables have if neither they nor their catalog say otherwise. All of them are
# told, for which group a table is in stands in the table.
GroupDefaults = dict[str, dict[str, str]]


class CatalogSpec(Message):
    """How a catalog is reached. Secrets are redacted here, and stand beside it in a payload."""

    name: str
    type: str
    properties: dict[str, str] = Field(default_factory=dict[str, str])


class OfCatalog(Message):
    catalog: CatalogSpec
    secrets: Json = Field(default_factory=dict[str, JsonValue])  # by "<catalog>.<property>"


class TableName(Message):
    id: str  # the store's; owner of the mark in the table
    namespace: tuple[str, ...]
    name: str
    uuid: str | None = None  # as it was last seen; None: it never was


class DiscoverPayload(OfCatalog):
    table_filter: str | None = None


class Discovered(Message):
    """Every table of the catalog that the filter lets through."""

    # By namespace, its levels joined with U+001F as Iceberg's REST protocol does it.
    tables: dict[str, tuple[str, ...]]
    filtered: int = 0
    # Namespaces that could not be listed: nothing in them counts as dropped.
    failed: dict[str, str] = Field(default_factory=dict[str, str])


class ToEvaluate(Message):
    table: TableName
    pointer: str | None = None  # as it was evaluated last
    look_at_ms: int | None = None  # a rule may fire from then on, though nothing changed
    clocks: Clocks = Field(default_factory=dict[str, Times])
    left_out: tuple[str, ...] = ()  # files that failed too often


class EvaluatePayload(OfCatalog):
    defaults: dict[str, str] = Field(default_factory=dict[str, str])
    groups: GroupDefaults = Field(default_factory=dict[str, dict[str, str]])
    now_ms: int
    tables: tuple[ToEvaluate, ...]


class Chosen(Message):
    """Those settings of a table that the leader decides by."""

    enabled: bool = True
    group: str = "default"
    quota: float = 0.5
    min_plan_interval_ms: int = 60_000
    refresh_max_interval_ms: int = 0
    refresh_step_ms: int = 30_000


class Pending(Message):
    """Input that waits to be rewritten: kept with the table until it is (T2)."""

    type: TypeName
    snapshot: int
    partitions: int
    told: tuple[str, ...]  # the first of them
    files: int
    bytes: int
    position_deletes: int  # files
    equality_deletes: int
    files_after: int
    bytes_after: int
    benefit: float


class RuleTold(Message):
    type: TypeName
    name: str
    said: str
    measured: float
    threshold: float
    fired: bool


class PartitionTold(Message):
    partition: str
    type: TypeName | None
    files: int
    bytes: int
    rules: tuple[RuleTold, ...]


class Summary(Message):
    """What an evaluation measured: for people, and for nothing that is decided."""

    partitions: int
    due: int  # of these: a rule has fired
    files: int
    bytes: int
    rows: int
    position_deletes: int
    equality_deletes: int
    score: int  # how little a scan wastes, 0 to 100
    amoro_score: int
    most: tuple[PartitionTold, ...] = ()  # in need, the neediest first
    # By table property: who has set it, "table", "catalog" or "group". Without: it is built in.
    set_by: dict[str, str] = Field(default_factory=dict[str, str])


class EvaluatedTable(Message):
    """Of one table. Exactly one of `gone`, `error`, `unchanged` is told, or a full look at it."""

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
    seen: tuple[str, ...] = ()  # partitions that have no clock yet and need one from now on


class Evaluated(Message):
    tables: tuple[EvaluatedTable, ...]
    catalog_error: str | None = None  # the catalog itself is away: no table is to blame


class PlanPayload(OfCatalog):
    defaults: dict[str, str] = Field(default_factory=dict[str, str])
    groups: GroupDefaults = Field(default_factory=dict[str, dict[str, str]])
    table: TableName
    now_ms: int
    clocks: Clocks = Field(default_factory=dict[str, Times])
    left_out: tuple[str, ...] = ()
    budget_bytes: int | None = None  # input of one process
    at_least: TypeName | None = None  # somebody asked: rules don't decide, gain still does
    dry: bool = False  # nothing will be done with it


class BinTold(Message):
    number: int  # within the process; a bin is replaced alone or not at all
    partition: str
    paths: tuple[str, ...]
    bytes: int


class GainTold(Message):
    files_before: int
    files_after: int
    deletes_removed: int
    bytes_before: int
    bytes_after: int
    bytes_read: int
    benefit: float


class Planned(Message):
    """What a process is to rewrite; None for all of it, with the reason: nothing gains."""

    uuid: str
    snapshot: int | None = None
    type: TypeName | None = None
    reason: str | None = None  # why there is nothing to do
    tasks: tuple[tuple[BinTold, ...], ...] = ()  # each is one rewrite task
    gain: GainTold | None = None
    done: dict[str, TypeName] = Field(default_factory=dict[str, TypeName])  # by `spec/path`
    left: int = 0  # partitions with bins that wait for another process
    spent: int = 0  # the highest number of a process that the table itself knows of
    left_out: tuple[str, ...] = ()
    chosen: Chosen = Chosen()
    retries: int = 5
    allow_partial_commit: bool = False
    target_bytes: int = 134_217_728


class ProcessRef(Message):
    """The process at its table: owner and number make the token."""

    id: str
    owner: str
    number: int
    snapshot: int
    uuid: str


class RewritePayload(OfCatalog):
    table: TableName
    process: ProcessRef
    bins: tuple[BinTold, ...]
    target_bytes: int


class BinFailed(Message):
    number: int
    error: str
    path: str | None = None  # the file that the error speaks of


class RewriteResult(Message):
    rewritten: tuple[Json, ...] = ()  # formats.iceberg.records.Rewritten, one for each bin
    failed: tuple[BinFailed, ...] = ()


class CommitPayload(OfCatalog):
    table: TableName
    process: ProcessRef
    bins: tuple[BinTold, ...]  # that were rewritten
    rewritten: tuple[Json, ...]  # in the same order
    commit_deadline_s: float = COMMIT_DEADLINE_S


class CommitResult(Message):
    """How a commit ended; asked again, the table gives the same answer (E1, E3).

    CONFLICT: nothing could be replaced; the token is spent with nothing, and what was staged is
    gone. GONE: there is no such table any more. ABORTED: somebody spent the token with nothing.
    """

    outcome: Literal["COMMITTED", "CONFLICT", "ABORTED", "GONE"]
    already: bool = False  # an earlier try had landed
    snapshot: int | None = None
    bins: tuple[int, ...] | None = None  # replaced; None: committed, and nobody can tell which
    conflicts: dict[str, str] = Field(default_factory=dict[str, str])  # by bin number


class DiscardPayload(OfCatalog):
    table: TableName
    process: ProcessRef
    commit_deadline_s: float = COMMIT_DEADLINE_S


class Discarded(Message):
    files: int = 0
    # The token had been spent by a commit of the process, which somebody took for lost.
    committed_snapshot: int | None = None
