"""Lake tables without Spark: snapshots of files with their deletes, marks, and a fenced commit.

What Iceberg promises is kept: a commit is atomic and spends its token or is refused, a file keeps
its data sequence number, a delete by position applies to one file and one by equality to every
earlier file of its partition, expiring a snapshot deletes the files that no other one has. Beside
each table stands `truth`: the rows that its writers believe to be there.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from headrace.errors import Unavailable
from headrace.lake.catalog import TableMissing, TableRef
from headrace.lake.iceberg.token import SpentAtTable, TableCommitAt, find_spent
from headrace.model.jobs.epoch import SpentBy
from headrace.model.tables.files import DataFile, DeleteFile, DeleteKind, Partition, TableFiles
from tests.simulation.faults import AT_LAKE, Faults
from tests.simulation.invariants import Problem
from tests.simulation.world import the_world

T = TypeVar("T")
Row = tuple[int, int]  # a value, which decides the partition, and a number that no other row has
CATALOG, NAMESPACE = "lake", "db"
PARTITIONS = 2
ROW_BYTES = 100
TARGET_ROWS = 4
PROPERTIES: Mapping[str, str] = {
    "self-optimizing.target-size": str(TARGET_ROWS * ROW_BYTES),
    "self-optimizing.max-task-size-bytes": str(TARGET_ROWS * ROW_BYTES),
    "self-optimizing.fragment-ratio": "2",
    "self-optimizing.min-target-size-ratio": "0.5",
    "self-optimizing.minor.trigger.file-count": "3",
    # By time alone nothing is due: what is left to do can then be told at any moment.
    "self-optimizing.minor.trigger.interval": "-1",
    "self-optimizing.min-plan-interval": "1s",
}
ENABLED = "self-optimizing.enabled"
QUOTA = "self-optimizing.quota"


@dataclass(frozen=True, slots=True)
class Delete:
    path: str
    kind: DeleteKind
    partition: int
    sequence: int
    file: str | None  # that a delete by position speaks of
    rows: frozenset[Row]  # of a delete by position
    value: int | None  # of a delete by equality

    def applies_to(self, entry: Entry) -> bool:
        if self.kind is DeleteKind.POSITION:
            return self.file == entry.path
        return self.partition == entry.partition and entry.sequence < self.sequence

    def takes(self, row: Row) -> bool:
        return row in self.rows or row[0] == self.value


@dataclass(frozen=True, slots=True)
class Entry:
    """A data file in a snapshot."""

    path: str
    partition: int
    sequence: int  # its data sequence number


@dataclass(frozen=True, slots=True)
class Snapshot:
    id: int
    sequence: int
    files: tuple[Entry, ...]
    deletes: tuple[Delete, ...]
    summary: Mapping[str, str]

    def deletes_of(self, entry: Entry) -> list[Delete]:
        return [each for each in self.deletes if each.applies_to(entry)]


@dataclass(slots=True)
class Table:
    uuid: str
    properties: dict[str, str]
    problem: Problem
    version: int = 1  # of its metadata
    sequence: int = 0
    snapshots: list[Snapshot] = field(default_factory=list[Snapshot])
    truth: set[Row] = field(default_factory=set[Row])
    stored: dict[str, tuple[Row, ...]] = field(default_factory=dict[str, tuple[Row, ...]])
    staged: dict[str, int] = field(default_factory=dict[str, int])  # process number by path
    late: set[str] = field(default_factory=set[str])  # staged after the token was spent
    orphaned: set[int] = field(default_factory=set[int])  # processes whose files nobody could list
    landed: dict[tuple[str, int], int] = field(default_factory=dict[tuple[str, int], int])

    @property
    def pointer(self) -> str:
        return f"{self.uuid}/v{self.version}"

    @property
    def current(self) -> Snapshot:
        return self.snapshots[-1]

    def snapshot(self, of: int) -> Snapshot | None:
        return next((each for each in self.snapshots if each.id == of), None)

    def commit(
        self,
        files: Iterable[Entry],
        deletes: Iterable[Delete],
        summary: Mapping[str, str] | None = None,
        properties: Mapping[str, str] | None = None,
    ) -> Snapshot:
        """All of it at once, or, for whoever looks, not yet."""
        self.sequence += 1
        self.version += 1
        made = Snapshot(
            # Another table's of the same name must have other ids.
            int(self.uuid) * 1000 + self.version,
            self.sequence,
            tuple(files),
            tuple(deletes),
            dict(summary or {}),
        )
        self.snapshots.append(made)
        self.properties |= properties or {}
        self.check_rows()
        return made

    def set_property(self, name: str, value: str) -> None:
        self.properties[name] = value
        self.version += 1

    def live(self, snapshot: Snapshot, entry: Entry) -> tuple[Row, ...]:
        deletes = snapshot.deletes_of(entry)
        rows = self.stored[entry.path]
        return tuple(row for row in rows if not any(each.takes(row) for each in deletes))

    def check_rows(self) -> None:
        """After every commit: each row that was written and not deleted is there, once."""
        snapshot = self.current
        if gone := [each.path for each in snapshot.files if each.path not in self.stored]:
            self.problem("every_table_row_once", f"snapshot {snapshot.id} lacks files {gone}")
            return
        rows = Counter(row for each in snapshot.files for row in self.live(snapshot, each))
        if rows != Counter(self.truth):
            more = sorted((rows - Counter(self.truth)).items())
            less = sorted((Counter(self.truth) - rows).items())
            what = f"{self.uuid} snapshot {snapshot.id}: too many {more}, few {less}"
            self.problem("every_table_row_once", what)

    def spent(self, at: TableCommitAt) -> SpentAtTable | None:
        """As the product reads it from a table's metadata."""
        told = [{"snapshot-id": each.id, "summary": each.summary} for each in self.snapshots]
        return find_spent(at, properties=self.properties, snapshots=told)

    def land(self, owner: str, number: int, by: SpentBy) -> None:
        if by is SpentBy.DATA:
            self.landed[owner, number] = self.landed.get((owner, number), 0) + 1

    def referred(self) -> set[str]:
        return {entry.path for snapshot in self.snapshots for entry in snapshot.files}

    def expire(self) -> None:
        """All snapshots but the current one go, and the files that only they had."""
        before = self.referred()
        del self.snapshots[:-1]
        self.version += 1
        for path in before - self.referred():
            del self.stored[path]
            self.staged.pop(path, None)

    def files(self) -> TableFiles:
        """As a scan brings them."""
        snapshot = self.current
        places = {each.path: n for n, each in enumerate(snapshot.deletes)}
        return TableFiles(
            snapshot=snapshot.id,
            sequence=snapshot.sequence,
            files=[
                DataFile(
                    path=entry.path,
                    bytes=ROW_BYTES * len(self.stored[entry.path]),
                    rows=len(self.stored[entry.path]),
                    partition=Partition(0, f"p={entry.partition}"),
                    sorted=True,
                    deletes=tuple(places[each.path] for each in snapshot.deletes_of(entry)),
                )
                for entry in snapshot.files
            ],
            deletes=[
                DeleteFile(each.path, each.kind, 1, max(1, len(each.rows)))
                for each in snapshot.deletes
            ],
            properties=dict(self.properties),
        )


class Lake:
    """One catalog. Calls may fail before their effect or after it; for a while it may be away."""

    def __init__(self, faults: Faults, problem: Problem, *, rewrite_s: float) -> None:
        self._faults, self.problem = faults, problem
        self.rewrite_s = rewrite_s  # at most, for one bin
        self.tables: dict[str, Table] = {}
        self.gone: list[Table] = []
        self.away_until_s = 0.0
        self._made = 0
        self._rows = 0

    def make(self, name: str, more: Mapping[str, str]) -> Table:
        """Anew when there is one: what it had is gone."""
        self._made += 1
        table = Table(f"{self._made}", {**PROPERTIES, **more}, self.problem)
        table.commit((), ())
        if (before := self.tables.get(name)) is not None:
            self.gone.append(before)
        self.tables[name] = table
        return table

    def found(self, ref: TableRef) -> Table:
        found = self.tables.get(ref.name)
        if found is None:
            raise TableMissing(ref)
        return found

    def new_row(self, value: int) -> Row:
        self._rows += 1
        return value, self._rows

    def ask(self, name: str, answer: Callable[[], T]) -> T:
        self._meet(f"lake, {name}")
        return answer()

    def call(self, name: str, effect: Callable[[], T]) -> T:
        """The answer may be lost when the effect is not."""
        self._meet(f"lake, before {name}")
        result = effect()
        self._meet(f"lake, after {name}")
        return result

    def _meet(self, point: str) -> None:
        world = the_world()
        process = world.process
        assert process is not None
        world.sleep(process.random.uniform(0.001, 0.02))
        if self._faults.meet(point, AT_LAKE) or world.now_s < self.away_until_s:
            raise Unavailable("the catalog does not answer")

    @property
    def all_tables(self) -> Sequence[Table]:
        return [*self.tables.values(), *self.gone]

    @property
    def landed(self) -> int:
        return sum(sum(table.landed.values()) for table in self.all_tables)
