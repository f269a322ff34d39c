"""What the files of each partition add up to: the numbers that rules, cost and health speak of.

Names and limits are Amoro's. A *fragment* is at most target / fragment-ratio, an *undersized* file
at most target x min-target-size-ratio, a larger one has *reached* its size. A file that isn't a
fragment is a *rewrite segment* when more of its rows than duplicate-ratio are deleted by position;
equality deletes apply to every earlier file and say nothing of one, so they don't count. A reached
file under an equality delete or several position deletes is *delete-laden*: in Amoro its deletes
are rewritten, here the file is, with its deletes applied.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property

from headrace.model.tables.files import DataFile, Partition, TableFiles
from headrace.model.tables.settings import OptimizingSettings


class FileSize(StrEnum):
    FRAGMENT = "FRAGMENT"
    UNDERSIZED = "UNDERSIZED"
    REACHED = "REACHED"


@dataclass(frozen=True, slots=True)
class FileClass:
    size: FileSize
    rewrite: bool  # a rewrite segment
    laden: bool  # under an equality delete or several position deletes, and no fragment
    combine: bool  # under several position deletes, and no fragment


@dataclass(frozen=True, slots=True)
class Tally:
    files: int = 0
    bytes: int = 0
    rows: int = 0

    @staticmethod
    def of(files: Sequence[DataFile]) -> Tally:
        return Tally(len(files), sum(f.bytes for f in files), sum(f.rows for f in files))

    def __add__(self, other: Tally) -> Tally:
        return Tally(self.files + other.files, self.bytes + other.bytes, self.rows + other.rows)


class DeleteIndex:
    """The deletes of a table, ready for sums over a file's indexes: there may be millions."""

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
        """Entries of every position delete that applies, also those of its other files: Amoro's."""
        return sum(map(self._position_rows.__getitem__, file.deletes))

    def position_files(self, file: DataFile) -> int:
        return sum(map(self.by_position.__getitem__, file.deletes))

    def live_rows(self, file: DataFile) -> int:
        """Rows that are probably left: a position delete is spread evenly over its files."""
        dead = sum(-(-self._position_rows[i] // self._shared_by[i]) for i in file.deletes)
        return max(0, file.rows - dead)

    def live_bytes(self, file: DataFile) -> int:
        if not file.deletes:
            return file.bytes
        live = self.live_rows(file)
        return -(-file.bytes * live // file.rows) if live else 0

    def sum_bytes(self, indexes: Collection[int]) -> int:
        return sum(map(self.bytes.__getitem__, indexes)) if indexes else 0

    def tally(self, indexes: Iterable[int], *, by_position: bool) -> Tally:
        chosen = [i for i in indexes if self.by_position[i] is by_position]
        size = sum(map(self.bytes.__getitem__, chosen))
        return Tally(len(chosen), size, sum(map(self.rows.__getitem__, chosen)))


_CLEAN = {size: FileClass(size, rewrite=False, laden=False, combine=False) for size in FileSize}


class Classifier:
    """Says of each file of a table what it is."""

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
class Measured:
    """One partition. A file is counted in the first of these that it belongs to."""

    files: Tally  # all of them
    fragments: Tally
    rewrite: Tally
    undersized: Tally
    laden: Tally  # reached files only
    combine: int  # those of them under several position deletes
    smallest: tuple[int, ...]  # bytes of the two smallest undersized files
    position_deletes: Tally  # that apply to files counted above
    equality_deletes: Tally
    any_deletes: int  # that apply to any file
    applied: int  # pairs of a file and a delete that applies to it: each is read by every scan
    live_bytes: int
    size_error: float  # mean square of what files lack of the undersized limit, in bytes

    @property
    def counted(self) -> Tally:
        return self.fragments + self.rewrite + self.undersized + self.laden


def measure(table: TableFiles, settings: OptimizingSettings) -> Mapping[Partition, Measured]:
    """Each partition that has files, in the order of its spec and path."""
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
    """Which of the tallies a file is counted in."""

    FRAGMENT = "FRAGMENT"
    REWRITE = "REWRITE"
    UNDERSIZED = "UNDERSIZED"
    LADEN = "LADEN"
    HEALTHY = "HEALTHY"


def share(found: FileClass) -> Share:
    if found.size is FileSize.FRAGMENT:
        return Share.FRAGMENT
    if found.rewrite:
        return Share.REWRITE
    if found.size is FileSize.UNDERSIZED:
        return Share.UNDERSIZED
    return Share.LADEN if found.laden else Share.HEALTHY


def _measure(
    files: Sequence[DataFile],
    deletes: DeleteIndex,
    classes: Classifier,
    settings: OptimizingSettings,
) -> Measured:
    shares: dict[Share, list[DataFile]] = {each: [] for each in Share}
    combine = 0
    for file in files:
        found = classes.of(file)
        part = share(found)
        shares[part].append(file)
        combine += part is Share.LADEN and found.combine
    healthy = shares[Share.HEALTHY]
    counted = {
        i for part in Share if part is not Share.HEALTHY for f in shares[part] for i in f.deletes
    }
    enough = settings.min_target_bytes
    lacking = (max(0, enough - file.bytes) for file in files)
    return Measured(
        files=Tally.of(files),
        fragments=Tally.of(shares[Share.FRAGMENT]),
        rewrite=Tally.of(shares[Share.REWRITE]),
        undersized=Tally.of(shares[Share.UNDERSIZED]),
        laden=Tally.of(shares[Share.LADEN]),
        combine=combine,
        smallest=tuple(sorted(file.bytes for file in shares[Share.UNDERSIZED])[:2]),
        position_deletes=deletes.tally(counted, by_position=True),
        equality_deletes=deletes.tally(counted, by_position=False),
        any_deletes=len(counted.union(*(file.deletes for file in healthy))),
        applied=sum(len(file.deletes) for file in files),
        live_bytes=sum(map(deletes.live_bytes, files)),
        size_error=sum(lack * lack for lack in lacking) / len(files),
    )
