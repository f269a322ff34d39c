"""Bins: which files are rewritten together, and which bins make up one rewrite task.

A bin is the unit of a rewrite, and becomes one file. Neighbours by path go together, so that an
order the files had among them is kept. A bin is limited by one output of the target size, by what a
task may read (data *and* deletes: Amoro weighs only data, and its tasks run out of memory on
deletes), and by how many files it may open. Afterwards small bins are joined wherever they lie,
until no two fit. That makes a plan final: the rewrite of a table's bins leaves nothing that the
same plan would rewrite again.

A task takes neighbouring bins until it has enough to do. One task per bin would pay for a Spark job
each time, and a table of many partitions has hundreds of small bins; all bins in one task would
leave threads idle, and lose everything when one bin fails. So small bins share a task, up to what
one task may read, and a bin of that size has a task for itself.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from dataclasses import dataclass

from headrace.model.tables.files import DataFile, DeleteIndex, Partition
from headrace.model.tables.settings import OptimizingSettings


@dataclass(frozen=True, slots=True)
class Bin:
    """Files of one partition that are rewritten into one."""

    partition: Partition
    files: tuple[DataFile, ...]  # by path
    deletes: frozenset[int]  # indexes of all deletes that apply to any of the files
    bytes: int
    delete_bytes: int
    live_bytes: int  # what is probably left to write, by the deletes
    outputs: int  # files it becomes: one, none when every row is deleted, more for a huge file

    @property
    def read_bytes(self) -> int:
        return self.bytes + self.delete_bytes

    @property
    def applied(self) -> int:
        """Pairs of a file and a delete that applies to it, which a scan no longer has to merge."""
        return sum(len(file.deletes) for file in self.files)

    @property
    def orders(self) -> bool:
        """Whether the rewrite sorts rows that are not in the table's declared order yet."""
        return not all(file.sorted for file in self.files)


class Packer:
    """Packs the files of one partition into bins."""

    def __init__(self, deletes: DeleteIndex, settings: OptimizingSettings) -> None:
        self._deletes = deletes
        self._target = settings.target_size_bytes
        self._task = settings.task_bytes
        self._files_max = settings.max_file_count

    def pack(self, files: Sequence[DataFile]) -> Sequence[Bin]:
        """Put every file into one bin; the bins come in the order of their first path."""
        packed = map(self._bin, self._join(self._neighbours(sorted(files, key=_by_path))))
        return sorted(packed, key=lambda each: each.files[0].path)

    def _neighbours(self, files: Sequence[DataFile]) -> Sequence[_Load]:
        loads: list[_Load] = []
        for file in files:
            added = _Load(file, self._deletes)
            if loads and self._fits(loads[-1], added):
                loads[-1].take(added, self._delete_bytes(loads[-1], added))
            else:
                loads.append(added)
        return loads

    def _join(self, loads: Sequence[_Load]) -> Sequence[_Load]:
        """Join the two smallest while they fit by size; when they don't, no other two do.

        Where two would fit by size, but not by what a task may read or open, the one that reads
        more is done, and the other may still find a partner.
        """
        heap = [(load.live, index, load) for index, load in enumerate(loads)]
        heapq.heapify(heap)
        done: list[_Load] = []
        while len(heap) > 1:
            small, next_small = heapq.heappop(heap), heapq.heappop(heap)
            one, other = small[2], next_small[2]
            if one.live + other.live > self._target:
                heap.extend([small, next_small])
                break
            if self._fits(one, other):
                one.take(other, self._delete_bytes(one, other))
                heapq.heappush(heap, (one.live, small[1], one))
                continue
            heavy = max(small, next_small, key=lambda item: (item[2].read_bytes, item[1]))
            done.append(heavy[2])
            heapq.heappush(heap, next_small if heavy is small else small)
        return [*done, *(load for _, _, load in heap)]

    def _fits(self, one: _Load, other: _Load) -> bool:
        if one.live + other.live > self._target:
            return False
        if len(one.files) + len(other.files) > self._files_max:
            return False
        size = one.bytes + other.bytes
        if size > self._task:
            return False
        return size + self._delete_bytes(one, other) <= self._task or self._reads_anyway(one, other)

    def _reads_anyway(self, one: _Load, other: _Load) -> bool:
        """Whether one of them reads the deletes of both anyway, and these nearly fill a task.

        Otherwise a partition under one huge equality delete would be rewritten file by file,
        reading that delete each time.
        """
        nested = one.deletes >= other.deletes or other.deletes >= one.deletes
        most = max(one.delete_bytes, other.delete_bytes)
        return nested and bool(one.deletes and other.deletes) and most > self._task // 2

    def _delete_bytes(self, one: _Load, other: _Load) -> int:
        """The delete bytes of both together: a delete that applies to both is read once."""
        if not other.deletes:
            return one.delete_bytes
        return one.delete_bytes + self._deletes.sum_bytes(other.deletes - one.deletes)

    def _bin(self, load: _Load) -> Bin:
        return Bin(
            partition=load.files[0].partition,
            files=tuple(sorted(load.files, key=_by_path)),
            deletes=frozenset(load.deletes),
            bytes=load.bytes,
            delete_bytes=load.delete_bytes,
            live_bytes=load.live,
            # Rounded down: the outputs of a huge file have at least the target size.
            outputs=max(1, load.live // self._target) if load.live else 0,
        )


class _Load:
    """A bin that is still being filled."""

    __slots__ = ("bytes", "delete_bytes", "deletes", "files", "live")

    def __init__(self, file: DataFile, deletes: DeleteIndex) -> None:
        self.files = [file]
        self.bytes, self.live = file.bytes, deletes.live_bytes(file)
        self.deletes = set(file.deletes)
        self.delete_bytes = deletes.sum_bytes(file.deletes)

    @property
    def read_bytes(self) -> int:
        return self.bytes + self.delete_bytes

    def take(self, other: _Load, delete_bytes: int) -> None:
        """Add the other's files; `delete_bytes` are those of both together."""
        self.files += other.files
        self.bytes += other.bytes
        self.live += other.live
        self.deletes |= other.deletes
        self.delete_bytes = delete_bytes


def _by_path(file: DataFile) -> str:
    return file.path


def group(bins: Sequence[Bin], *, task_bytes: int, bins_max: int) -> Sequence[Sequence[Bin]]:
    """Cut the bins into tasks, in their order, so that bins of a partition stay neighbours.

    A task reads at most `task_bytes`, unless it is one bin that reads more.
    """
    tasks: list[list[Bin]] = []
    room = 0
    for each in bins:
        if not tasks or each.read_bytes > room or len(tasks[-1]) >= bins_max:
            tasks.append([])
            room = task_bytes
        tasks[-1].append(each)
        room -= each.read_bytes
    return tasks
