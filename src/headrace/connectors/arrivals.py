"""Which files come next. Pure: a listing and a position give a choice and the next position.

*Batch*: in the order of their names; the position is the last name read.

*Streaming*: in the order of (time modified, name). Files arrive in no such order, so the position
is a *low mark* and what was read above it: a file above the low mark that was not read is new. The
low mark stays LATE_MAX_MS behind the newest file read, and rises faster when more than SEEN_MAX
files, or names of more than SEEN_BYTES_MAX, are above it: a position never grows beyond that. A
file that comes in below it is not seen; that there are such files is told by their number, when
more lie below the mark than were read there.

However fast it rises, it stays below what is not *settled*: a file is read SETTLE_MS after it was
last written to. So a file that is moved in whole within that time is never missed, and one that is
still written to is not read in part.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from pydantic import BaseModel, ConfigDict

from headrace.errors import Refused
from headrace.formats.files.filesystem import FileInfo

SETTLE_MS = 5_000  # without a change, before a file counts as whole
LATE_MAX_MS = 3_600_000  # how much older than the newest file read a new one may be
SEEN_MAX = 1_000  # files that a position remembers by name
SEEN_BYTES_MAX = 100_000  # of these names, as JSON: a position is kept in the store
SLICE_BYTES_MAX = 200_000  # of a slice's names, as JSON: so is a plan, of several sources
MARK_BYTES = 30  # of a file in JSON, beside its name: its time, its size, and their commas
ROW_BYTES_GUESS = 100  # to cut a slice by rows without reading any

Mark = tuple[int, str]  # time modified in ms, and name


class Position(BaseModel):
    model_config = ConfigDict(frozen=True)

    name: str = ""  # batch: the last one read
    low: Mark = (-1, "")  # streaming
    seen: tuple[Mark, ...] = ()
    below: int = 0  # how many were read at the low mark or below it


@dataclass(frozen=True, slots=True)
class Choice:
    files: Sequence[FileInfo]
    after: Position
    last: bool  # nothing comes after them
    late: int = 0  # files that came in below the low mark: at least so many, never read


def settled(info: FileInfo, *, now_ms: int) -> bool:
    """Nobody has written to it for a while. A file from the future waits for its time."""
    return info.modified_ms <= now_ms - SETTLE_MS


def choose_batch(
    found: Iterable[FileInfo], position: Position | None, *, rows_max: int | None
) -> Choice:
    left = sorted(
        (info for info in found if position is None or info.path > position.name),
        key=lambda info: info.path,
    )
    files = _cut(left, rows_max)
    name = files[-1].path if files else (position.name if position else "")
    return Choice(files, Position(name=name), last=len(files) == len(left))


def choose_arrived(
    found: Iterable[FileInfo], position: Position | None, *, rows_max: int | None
) -> Choice:
    """Raises `Refused` when a file was changed after it was read: its rows would come twice."""
    before = position or Position()
    read = {name: modified for modified, name in before.seen}
    new: list[FileInfo] = []
    below = 0
    for info in found:
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
    return Choice(files, _after(before, files), last=False, late=late)


def _after(before: Position, files: Sequence[FileInfo]) -> Position:
    seen = sorted({*before.seen, *((info.modified_ms, info.path) for info in files)})
    if not seen:
        return before
    low = max(before.low, (seen[-1][0] - LATE_MAX_MS, ""))
    kept = _fitting(reversed([name for _, name in seen]), SEEN_BYTES_MAX, count_max=SEEN_MAX)
    if kept < len(seen):
        low = max(low, seen[-kept - 1])
    above = tuple(mark for mark in seen if mark > low)
    return Position(low=low, seen=above, below=before.below + len(seen) - len(above))


def _cut(files: Sequence[FileInfo], rows_max: int | None) -> Sequence[FileInfo]:
    """At least one file: none can be read in part."""
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
    """How many of the first names fit; at least one."""
    total = 0
    count = 0
    for name in names:
        total += len(json.dumps(name)) + MARK_BYTES
        if count > 0 and (total > bytes_max or count == count_max):
            break
        count += 1
    return count
