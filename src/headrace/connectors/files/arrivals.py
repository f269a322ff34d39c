"""Which files of a listing come next. All of it is pure: a listing and a position give a choice and
the next position.

*Batch* reads what is there, in the order of names; the position is the last name read.

*Streaming* reads what arrives, in the order of (time modified, name). Files do not arrive in that
order, so the position is a *low mark* and the files that were read above it: a file above the low
mark that was not read is new. The low mark stays LATE_MAX_MS behind the newest file read, and rises
faster when more than SEEN_MAX files, or names of more than SEEN_BYTES_MAX, are above it: a position
never grows beyond that. A file that arrives below the low mark is never read. That there are such
files is noticed by their number: more lie below the mark than were read there.

However fast the low mark rises, it stays below every file that is not *settled*: a file is read
SETTLE_MS after it was last written to. So a file that is moved in whole within that time is never
missed, and one that is still being written is not read in part.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from pydantic import BaseModel, ConfigDict, JsonValue

from headrace.errors import Refused
from headrace.spark.filesystem import FileInfo

SETTLE_MS = 5_000  # without a change, after which a file counts as whole
LATE_MAX_MS = 3_600_000  # how much older than the newest file read a new one may be
SEEN_MAX = 1_000  # files that a position holds by name
SEEN_BYTES_MAX = 100_000  # for these names as JSON, since the store keeps positions
SLICE_BYTES_MAX = 200_000  # for a slice's names as JSON, since the store keeps plans, too
MARK_BYTES = 30  # that a file takes in JSON beside its name: time, size and commas
ROW_BYTES_GUESS = 100  # by which a slice is limited to a number of rows without reading any
FileMark = tuple[int, str]  # time modified in ms, and name


class FilesPosition(BaseModel):
    model_config = ConfigDict(frozen=True)

    name: str = ""  # batch: the last name read
    low: FileMark = (-1, "")  # streaming: the low mark
    seen: tuple[FileMark, ...] = ()  # files read above it
    below: int = 0  # how many files were read at the low mark or below it
    # The columns that were found in the first files, when the job gives none; see inference.py.
    columns: tuple[dict[str, JsonValue], ...] | None = None


@dataclass(frozen=True, slots=True)
class ArrivedFiles:
    files: Sequence[FileInfo]
    after: FilesPosition
    last: bool  # no file comes after these
    late: int = 0  # at least so many files arrived below the low mark, and are never read


def choose_batch(
    listing: Iterable[FileInfo], position: FilesPosition | None, *, rows_max: int | None
) -> ArrivedFiles:
    """The next files of a batch."""
    left = sorted(
        (info for info in listing if position is None or info.path > position.name),
        key=lambda info: info.path,
    )
    files = _cut(left, rows_max)
    name = files[-1].path if files else (position.name if position else "")
    return ArrivedFiles(files, FilesPosition(name=name), last=len(files) == len(left))


def choose_arrived(
    listing: Iterable[FileInfo], position: FilesPosition | None, *, rows_max: int | None
) -> ArrivedFiles:
    """The next files of a stream.

    Raises `Refused` when a file was changed after it was read: its rows would come twice.
    """
    before = position or FilesPosition()
    read = {name: modified for modified, name in before.seen}
    new: list[FileInfo] = []
    below = 0
    for info in listing:
        if (info.modified_ms, info.path) <= before.low:
            below += 1
        elif info.path not in read:
            new.append(info)
        elif read[info.path] != info.modified_ms:
            raise Refused(
                f"{info.path} was changed after it was read; files must be moved in whole: "
                "give what was added a name of its own"
            )
    new.sort(key=lambda info: (info.modified_ms, info.path))
    files = _cut(new, rows_max)
    late = max(0, below - before.below)
    return ArrivedFiles(files, _position_after(before, files), last=False, late=late)


def settled(info: FileInfo, *, now_ms: int) -> bool:
    """Whether nobody has written to the file for SETTLE_MS. One from the future has to wait."""
    return info.modified_ms <= now_ms - SETTLE_MS


def _position_after(before: FilesPosition, files: Sequence[FileInfo]) -> FilesPosition:
    seen = sorted({*before.seen, *((info.modified_ms, info.path) for info in files)})
    if not seen:
        return before
    low = max(before.low, (seen[-1][0] - LATE_MAX_MS, ""))
    kept = _fitting(reversed([name for _, name in seen]), SEEN_BYTES_MAX, count_max=SEEN_MAX)
    if kept < len(seen):
        low = max(low, seen[-kept - 1])
    above = tuple(mark for mark in seen if mark > low)
    return FilesPosition(low=low, seen=above, below=before.below + len(seen) - len(above))


def _cut(files: Sequence[FileInfo], rows_max: int | None) -> Sequence[FileInfo]:
    """The first files, within the limits of a slice; at least one, as none can be read in part."""
    files = files[: _fitting((info.path for info in files), SLICE_BYTES_MAX)]
    if rows_max is None:
        return files
    total = 0
    for count, info in enumerate(files):
        total += info.bytes
        if count > 0 and total > rows_max * ROW_BYTES_GUESS:
            return files[:count]
    return files


def _fitting(names: Iterable[str], bytes_max: int, *, count_max: int | None = None) -> int:
    """How many of the first names fit into the limits; at least one."""
    total = 0
    count = 0
    for name in names:
        total += len(json.dumps(name)) + MARK_BYTES
        if count > 0 and (total > bytes_max or count == count_max):
            break
        count += 1
    return count
