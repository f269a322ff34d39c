"""Which files come next. Pure: a listing and a position give a choice and the next position.

*Batch*: in the order of their names; the position is the last name read.

*Streaming*: in the order of (time modified, name). Files arrive in no such order, so the position
is a *low mark* and what was read above it: a file above the low mark that was not read is new. The
low mark stays LATE_MAX_MS behind the newest file, and rises faster when more than SEEN_MAX files
are above it, so that a position never grows. A file that comes in below it is not seen: files
must be moved in whole, with a time of modification that is not much older than their arrival.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from pydantic import BaseModel, ConfigDict

from headrace.errors import Refused
from headrace.formats.files.filesystem import FileInfo

LATE_MAX_MS = 3_600_000  # how much older than the newest file read a new one may be
SEEN_MAX = 1_000  # files that a position remembers by name
FILES_PER_SLICE_MAX = 50_000  # a plan is kept in the store
ROW_BYTES_GUESS = 100  # to cut a slice by rows without reading any

Mark = tuple[int, str]  # time modified in ms, and name


class Position(BaseModel):
    model_config = ConfigDict(frozen=True)

    name: str = ""  # batch: the last one read
    low: Mark = (-1, "")  # streaming
    seen: tuple[Mark, ...] = ()


@dataclass(frozen=True, slots=True)
class Choice:
    files: Sequence[FileInfo]
    after: Position
    last: bool  # nothing comes after them


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
    for info in found:
        if (info.modified_ms, info.path) <= before.low:
            continue
        if info.path not in read:
            new.append(info)
        elif read[info.path] != info.modified_ms:
            raise Refused(
                f"{info.path} was changed after it was read; files must be moved in whole: "
                "give what was added a name of its own"
            )
    new.sort(key=lambda info: (info.modified_ms, info.path))
    files = _cut(new, rows_max)
    return Choice(files, _after(before, files), last=False)


def _after(before: Position, files: Sequence[FileInfo]) -> Position:
    seen = sorted({*before.seen, *((info.modified_ms, info.path) for info in files)})
    if not seen:
        return before
    low = max(before.low, (seen[-1][0] - LATE_MAX_MS, ""))
    if len(seen) > SEEN_MAX:
        low = max(low, seen[-SEEN_MAX - 1])
    return Position(low=low, seen=tuple(mark for mark in seen if mark > low))


def _cut(files: Sequence[FileInfo], rows_max: int | None) -> Sequence[FileInfo]:
    """At least one file: none can be read in part."""
    files = files[:FILES_PER_SLICE_MAX]
    if rows_max is None:
        return files
    total = 0
    for count, info in enumerate(files):
        total += info.bytes
        if count > 0 and total > rows_max * ROW_BYTES_GUESS:
            return files[:count]
    return files
