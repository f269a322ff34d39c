"""A table format: what a worker does to a lake table, whichever library keeps such tables.

worker/tables decides what is done and in which order, for every format alike: it asks a table
before it commits, and deletes what was staged only after the token is spent. A format does one step
at a time, on the table as it is then. A further format is one class that does these steps, and
passes tests/contracts/table_format.py.

Its rewrites are exactly once by a token: the owner and the number of a process. Either a
replacement spends it or an abort does, in one atomic change of the table, and the table itself
says which. A process with a higher number refuses those below it.

What a bin consists of (`BinInputs`), and what it has become (`RewrittenBin`), is the format's own.
The latter is sent and stored as JSON, and is read by the format alone, but for its number.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeVar

from pyspark.sql import SparkSession

from headrace.clock import Clock
from headrace.errors import Refused, Unavailable
from headrace.lake.catalog import CatalogConfig, Namespace, OnProgress, TableListing, TableRef
from headrace.model.jobs.epoch import Moment, SpentBy
from headrace.model.tables.files import TableFiles


@dataclass(frozen=True, slots=True)
class Probe:
    """What a table's metadata says, without a scan. A count is None where no writer reported it."""

    uuid: str
    pointer: str  # the metadata file; as long as it is the same, nothing has changed
    format_version: int
    snapshot: int | None
    sequence: int
    committed_at_ms: int | None
    files: int | None
    bytes: int | None
    rows: int | None
    position_deletes: int | None  # rows
    equality_deletes: int | None  # rows
    delete_files: int | None
    properties: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class ProcessExecution:
    """A process that rewrites files of a table, and the execution that works for it."""

    owner: str  # the optimizer of this table, the same for all its processes
    number: int  # grows with every process of the table
    execution: str  # of the task; what it stages is told from what others stage
    # A moment at which the execution was still the current one; a commit too long after is refused.
    since: Moment | None = field(default=None, compare=False)


@dataclass(frozen=True, slots=True)
class ProcessSpent:
    """What spent the token of a process."""

    by: SpentBy
    snapshot: int | None  # None: it is expired


@dataclass(frozen=True, slots=True)
class Replaced:
    """What became of a replacement. A group is a bin, unless a caller put several into one."""

    already: bool  # the token was spent by somebody else's commit of the same process
    snapshot: int | None  # None: nothing was committed, or the snapshot was expired since
    groups: frozenset[int] | None  # replaced; None: spent, and the snapshot that lists them is gone
    conflicts: Mapping[int, str]  # why a group was not replaced and has to be planned again


class BinInputs(Protocol):
    """The files of one bin with all that is needed to read and to replace them."""

    @property
    def number(self) -> int:
        """The bin's, in its process."""
        ...

    @property
    def rows(self) -> int: ...

    @property
    def paths(self) -> Sequence[str]:
        """Of its data files."""
        ...


class RewrittenBin(Protocol):
    """The new files of one bin, staged."""

    @property
    def number(self) -> int:
        """The bin's, in its process."""
        ...

    @property
    def paths(self) -> Sequence[str]: ...

    def record(self) -> dict[str, Any]:
        """As JSON. It holds the bin's `number`, by which a leader tells bins apart."""
        ...


InputsT = TypeVar("InputsT", bound=BinInputs)
MadeT = TypeVar("MadeT", bound=RewrittenBin)


class FormatErrors(Protocol):
    """What the library beneath a format raises, read for people and for retries."""

    @property
    def types(self) -> tuple[type[Exception], ...]:
        """Of the errors that only the format can read; the other methods take no others."""
        ...

    def translated(self, error: Exception, message: str) -> Refused | Unavailable:
        """The error to raise in its place: `Refused` when a retry would fail again."""
        ...

    def is_closed(self, error: Exception) -> bool:
        """Whether a catalog has answered by it, and only does not show its namespaces."""
        ...

    def line(self, error: Exception) -> str:
        """What it says itself, in one line."""
        ...

    def cause(self, error: Exception) -> str:
        """What a job failed of, in one line, rather than that it was aborted."""
        ...

    def messages(self, error: Exception) -> str:
        """All that it says, with its causes, to search for names of files in."""
        ...

    def way_out(self, error: Exception) -> str:
        """What helps when a table can't be read because of it."""
        ...


class TableFormat(Protocol[InputsT, MadeT]):
    """What can be done to the tables of one format. Holds no state of a task.

    A method raises `TableMissing` when there is no such table, another `HeadraceError` for what it
    can explain, and else whatever the library beneath raises (`errors`).
    """

    @property
    def catalog_types(self) -> Collection[str]:
        """The types of catalogs whose tables are of this format."""
        ...

    @property
    def errors(self) -> FormatErrors: ...

    def catalog_config(
        self, name: str, kind: str, properties: Mapping[str, str], *, warehouse: str
    ) -> CatalogConfig:
        """How a catalog of this type is opened. `warehouse`: the worker's own."""
        ...

    def list_namespaces(self, session: SparkSession, catalog: CatalogConfig) -> Sequence[Namespace]:
        """Those at the root. Also how a catalog is asked whether it answers at all."""
        ...

    def list_tables(
        self,
        session: SparkSession,
        catalog: CatalogConfig,
        *,
        wanted: Callable[[Namespace, str], bool],
        tables_max: int,
        on_progress: OnProgress,
    ) -> TableListing:
        """The wanted tables, by namespace. A namespace that can't be listed stops no other."""
        ...

    def uuid(self, session: SparkSession, ref: TableRef) -> str:
        """What tells a table from another of the same name."""
        ...

    def probe(self, session: SparkSession, ref: TableRef) -> Probe:
        """Read the metadata only; the time it takes does not depend on the number of files."""
        ...

    def spent_number(self, seen: Probe, owner: str) -> int:
        """The highest process number of this owner that is spent at the table; 0: none is."""
        ...

    def scan(
        self,
        session: SparkSession,
        ref: TableRef,
        *,
        filter: str | None,  # noqa: A002 - the property's name
        on_progress: OnProgress,
    ) -> TableFiles:
        """Every data file of the current snapshot; with a filter, those that may hold matching
        rows."""
        ...

    def choose(
        self,
        session: SparkSession,
        ref: TableRef,
        *,
        snapshot: int,
        bins: Mapping[int, Sequence[str]],
        on_progress: OnProgress,
    ) -> Sequence[InputsT]:
        """The inputs of each bin, in the order given; `bins` has their paths by their numbers.
        `Refused` when the snapshot, or a file of it, is gone."""
        ...

    def rewrite(
        self,
        session: SparkSession,
        ref: TableRef,
        bins: Sequence[InputsT],
        process: ProcessExecution,
        *,
        target_bytes: int,
    ) -> Sequence[MadeT]:
        """Rewrite each bin into files of about `target_bytes`, staged and not committed. The
        results are in the order of the bins."""
        ...

    def read_rewritten(self, record: Mapping[str, Any]) -> MadeT:
        """The bin that `RewrittenBin.record` was made of."""
        ...

    def look(
        self, session: SparkSession, ref: TableRef, process: ProcessExecution
    ) -> ProcessSpent | None:
        """What spent the token of the process, read from the table; None while it is unspent."""
        ...

    def look_replaced(
        self, session: SparkSession, ref: TableRef, process: ProcessExecution
    ) -> Replaced | None:
        """As `look`, for a process that is to be committed: `TokenSpent` when it was aborted."""
        ...

    def replace(
        self,
        session: SparkSession,
        ref: TableRef,
        bins: Sequence[InputsT],
        rewritten: Mapping[int, MadeT],
        process: ProcessExecution,
        *,
        clock: Clock,
        deadline_s: float,
    ) -> Replaced:
        """Replace all bins in one commit, except those that conflict; `rewritten` is by number.
        `TokenSpent` after an abort, `Fenced` past the deadline. When every bin conflicts, nothing
        is committed and the token is still unspent."""
        ...

    def give_up(
        self,
        session: SparkSession,
        ref: TableRef,
        process: ProcessExecution,
        *,
        clock: Clock,
        deadline_s: float,
    ) -> ProcessSpent:
        """Spend the token without a change, and delete nothing yet. The result says what spent it:
        this abort, or a commit before it."""
        ...

    def discard(self, session: SparkSession, ref: TableRef, process: ProcessExecution) -> int:
        """Delete what the process staged and no snapshot refers to; returns how many files.
        `Refused` while its token is unspent (E6)."""
        ...

    def unclaimed(
        self, session: SparkSession, ref: TableRef, process: ProcessExecution, kept: Iterable[str]
    ) -> Collection[str]:
        """Files that the process staged beside `kept`: rewrites by executions that were lost."""
        ...


AnyTableFormat = TableFormat[Any, Any]
