"""The files of a table at one snapshot, and what they add up to in each partition.

These are the small values that evaluating and planning look at. A scan brings 100,000 of them, so a
delete file stands once in `TableFiles.deletes`, and a data file names by index those that apply to
it; an equality delete that applies to every file of a partition would otherwise be repeated for
each.

`measure` makes the numbers that rules, cost and health are about. Names and limits are Amoro's. A
*fragment* is at most target / fragment-ratio, an *undersized* file at most target x
min-target-size-ratio, a larger one has *reached* its size. A file that isn't a fragment is a
*rewrite segment* when more of its rows than duplicate-ratio are deleted by position; equality
deletes apply to every earlier file and say nothing of one, so they don't count. A reached file
under an equality delete or several position deletes is *delete-laden*: in Amoro its deletes are
rewritten, here the file is, with its deletes applied.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property

from headrace.model.tables.settings import OptimizingSettings


class DeleteKind(StrEnum):
    POSITION = "POSITION"  # v2: rows of named files, by their position
    EQUALITY = "EQUALITY"  # v2: every earlier row with these values
    VECTOR = "VECTOR"  # v3: one bitmap of positions, for one data file

    @property
    def by_position(self) -> bool:
        """Whether it tells how many rows of a file are deleted; an equality delete does not."""
        return self is not DeleteKind.EQUALITY


@dataclass(frozen=True, slots=True, order=True)
class Partition:
    """Where a file lies. The same path under two partition specs is two partitions."""

    spec: int
    key: str  # the partition path, such as day=2026-01-31; "" when the table is not partitioned

    @property
    def id(self) -> str:
        """`spec/path`: the id of the partition in the store and in messages."""
        return f"{self.spec}/{self.key}"

    @staticmethod
    def of_id(text: str) -> Partition:
        spec, _, key = text.partition("/")
        return Partition(int(spec), key)

    def __str__(self) -> str:
        return f"{self.key or 'unpartitioned'} (spec {self.spec})"


@dataclass(frozen=True, slots=True)
class DeleteFile:
    path: str
    kind: DeleteKind
    bytes: int
    rows: int  # entries, for all of the data files that it applies to


@dataclass(frozen=True, slots=True)
class DataFile:
    path: str
    bytes: int
    rows: int
    partition: Partition
    sorted: bool  # in the sort order that the table declares; True when it declares none
    deletes: tuple[int, ...] = ()  # indexes into TableFiles.deletes: those that apply to it


@dataclass(frozen=True, slots=True)
class TableFiles:
    """All files of a table at one snapshot."""

    snapshot: int | None  # None: a table without a snapshot, and so without files
    sequence: int  # number of that snapshot; rewritten files keep it
    files: Sequence[DataFile]
    deletes: Sequence[DeleteFile]
    properties: Mapping[str, str]

    def deletes_of(self, file: DataFile) -> Sequence[DeleteFile]:
        return [self.deletes[index] for index in file.deletes]


class FileSize(StrEnum):
    """What a table's settings make of a file's size; see above."""

    FRAGMENT = "FRAGMENT"
    UNDERSIZED = "UNDERSIZED"
    REACHED = "REACHED"


@dataclass(frozen=True, slots=True)
class FileClass:
    """What a file is, by its size and its deletes."""

    size: FileSize
    rewrite: bool  # a rewrite segment
    laden: bool  # under an equality delete or several position deletes, and no fragment
    combine: bool  # under several position deletes, and no fragment


@dataclass(frozen=True, slots=True)
class FileTally:
    """A number of files with their bytes and rows."""

    files: int = 0
    bytes: int = 0
    rows: int = 0

    @staticmethod
    def of(files: Sequence[DataFile]) -> FileTally:
        return FileTally(len(files), sum(f.bytes for f in files), sum(f.rows for f in files))

    def __add__(self, other: FileTally) -> FileTally:
        return FileTally(self.files + other.files, self.bytes + other.bytes, self.rows + other.rows)


class DeleteIndex:
    """The deletes of a table, prepared for sums over indexes, of which there may be millions."""

    def __init__(self, table: TableFiles) -> None:
        self.bytes = [delete.bytes for delete in table.deletes]
        self.rows = [delete.rows for delete in table.deletes]
        self.by_position = [delete.kind.by_position for delete in table.deletes]
        self._position_rows = [d.rows if d.kind.by_position else 0 for d in table.deletes]
        self._files = table.files

    @cached_property
    def _shared_by(self) -> Sequence[int]:
        shared = [0] * len(self.bytes)
        for file in self._files:
            for index in file.deletes:
                shared[index] += 1
        return shared

    def position_rows(self, file: DataFile) -> int:
        """Entries of every position delete that applies to the file.

        As in Amoro, entries for the other files of such a delete count as well.
        """
        return sum(map(self._position_rows.__getitem__, file.deletes))

    def position_files(self, file: DataFile) -> int:
        return sum(map(self.by_position.__getitem__, file.deletes))

    def live_rows(self, file: DataFile) -> int:
        """Rows that are probably left, with position deletes spread evenly over their files."""
        dead = sum(-(-self._position_rows[i] // self._shared_by[i]) for i in file.deletes)
        return max(0, file.rows - dead)

    def live_bytes(self, file: DataFile) -> int:
        if not file.deletes:
            return file.bytes
        live = self.live_rows(file)
        return -(-file.bytes * live // file.rows) if live else 0

    def sum_bytes(self, indexes: Collection[int]) -> int:
        return sum(map(self.bytes.__getitem__, indexes)) if indexes else 0

    def tally(self, indexes: Iterable[int], *, by_position: bool) -> FileTally:
        chosen = [i for i in indexes if self.by_position[i] is by_position]
        size = sum(map(self.bytes.__getitem__, chosen))
        return FileTally(len(chosen), size, sum(map(self.rows.__getitem__, chosen)))


_CLEAN = {size: FileClass(size, rewrite=False, laden=False, combine=False) for size in FileSize}


class Classifier:
    """Classifies the files of a table."""

    def __init__(self, deletes: DeleteIndex, settings: OptimizingSettings) -> None:
        self._deletes = deletes
        self._fragment_bytes = settings.fragment_bytes
        self._min_target_bytes = settings.min_target_bytes
        self._duplicate_ratio = settings.duplicate_ratio

    def of(self, file: DataFile) -> FileClass:
        if file.bytes <= self._fragment_bytes:
            return _CLEAN[FileSize.FRAGMENT]
        undersized = file.bytes <= self._min_target_bytes
        size = FileSize.UNDERSIZED if undersized else FileSize.REACHED
        if not file.deletes:
            return _CLEAN[size]
        by_position = self._deletes.position_files(file)
        return FileClass(
            size,
            rewrite=self._deletes.position_rows(file) > file.rows * self._duplicate_ratio,
            laden=by_position > 1 or by_position < len(file.deletes),
            combine=by_position > 1,
        )


@dataclass(frozen=True, slots=True)
class MeasuredPartition:
    """What the files of one partition add up to.

    Of `fragments`, `rewrite`, `undersized` and `laden`, a file counts in the first that it fits.
    """

    files: FileTally  # all of them
    fragments: FileTally
    rewrite: FileTally
    undersized: FileTally
    laden: FileTally  # reached files only
    combine: int  # how many of the laden files are under several position deletes
    smallest: tuple[int, ...]  # bytes of the two smallest undersized files
    position_deletes: FileTally  # that apply to files of these four tallies
    equality_deletes: FileTally
    any_deletes: int  # deletes that apply to any file of the partition
    applied: int  # pairs of a file and a delete that applies to it, each read by every scan
    live_bytes: int
    size_error: float  # mean square of the bytes that files lack to the undersized limit

    @property
    def counted(self) -> FileTally:
        return self.fragments + self.rewrite + self.undersized + self.laden


def measure(
    table: TableFiles, settings: OptimizingSettings
) -> Mapping[Partition, MeasuredPartition]:
    """Measure each partition that has files, in the order of spec and path."""
    deletes = DeleteIndex(table)
    by_partition: defaultdict[Partition, list[DataFile]] = defaultdict(list)
    for file in table.files:
        by_partition[file.partition].append(file)
    classes = Classifier(deletes, settings)
    return {
        partition: _measure(by_partition[partition], deletes, classes, settings)
        for partition in sorted(by_partition)
    }


class Share(StrEnum):
    """The tally that a file counts in."""

    FRAGMENT = "FRAGMENT"
    REWRITE = "REWRITE"
    UNDERSIZED = "UNDERSIZED"
    LADEN = "LADEN"
    HEALTHY = "HEALTHY"


def share(file_class: FileClass) -> Share:
    if file_class.size is FileSize.FRAGMENT:
        return Share.FRAGMENT
    if file_class.rewrite:
        return Share.REWRITE
    if file_class.size is FileSize.UNDERSIZED:
        return Share.UNDERSIZED
    return Share.LADEN if file_class.laden else Share.HEALTHY


def _measure(
    files: Sequence[DataFile],
    deletes: DeleteIndex,
    classes: Classifier,
    settings: OptimizingSettings,
) -> MeasuredPartition:
    shares: dict[Share, list[DataFile]] = {each: [] for each in Share}
    combine = 0
    for file in files:
        file_class = classes.of(file)
        part = share(file_class)
        shares[part].append(file)
        combine += part is Share.LADEN and file_class.combine
    healthy = shares[Share.HEALTHY]
    counted = {
        i for part in Share if part is not Share.HEALTHY for f in shares[part] for i in f.deletes
    }
    enough = settings.min_target_bytes
    lacking = (max(0, enough - file.bytes) for file in files)
    return MeasuredPartition(
        files=FileTally.of(files),
        fragments=FileTally.of(shares[Share.FRAGMENT]),
        rewrite=FileTally.of(shares[Share.REWRITE]),
        undersized=FileTally.of(shares[Share.UNDERSIZED]),
        laden=FileTally.of(shares[Share.LADEN]),
        combine=combine,
        smallest=tuple(sorted(file.bytes for file in shares[Share.UNDERSIZED])[:2]),
        position_deletes=deletes.tally(counted, by_position=True),
        equality_deletes=deletes.tally(counted, by_position=False),
        any_deletes=len(counted.union(*(file.deletes for file in healthy))),
        applied=sum(len(file.deletes) for file in files),
        live_bytes=sum(map(deletes.live_bytes, files)),
        size_error=sum(lack * lack for lack in lacking) / len(files),
    )
