"""The files of a table at one snapshot, as small values: what evaluating and planning look at.

A scan brings 100,000 of them, so a delete file stands once in `TableFiles.deletes` and a data file
names by index those that apply to it; an equality delete that applies to every file of a partition
would otherwise be repeated for each.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum


class DeleteKind(StrEnum):
    POSITION = "POSITION"  # v2: rows of named files, by their position
    EQUALITY = "EQUALITY"  # v2: every earlier row with these values
    VECTOR = "VECTOR"  # v3: one bitmap of positions, for one data file

    @property
    def by_position(self) -> bool:
        """It says how many rows of a file are gone; an equality delete says no such thing."""
        return self is not DeleteKind.EQUALITY


@dataclass(frozen=True, slots=True, order=True)
class Partition:
    """Where a file lies. Two specs may give the same path, and are two partitions all the same."""

    spec: int
    key: str  # the partition path, such as day=2026-01-31; "" when the table is not partitioned

    @property
    def id(self) -> str:
        """`spec/path`: under which a store and messages know it."""
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
    rows: int  # entries in it, which for a position delete over many files are of all of them


@dataclass(frozen=True, slots=True)
class DataFile:
    path: str
    bytes: int
    rows: int
    partition: Partition
    sorted: bool  # written in the order the table declares; True when it declares none
    deletes: tuple[int, ...] = ()  # indexes into TableFiles.deletes: those that apply to it


@dataclass(frozen=True, slots=True)
class TableFiles:
    snapshot: int | None  # None: a table without a snapshot, and so without files
    sequence: int  # of that snapshot: what is rewritten keeps it
    files: Sequence[DataFile]
    deletes: Sequence[DeleteFile]
    properties: Mapping[str, str]

    def deletes_of(self, file: DataFile) -> Sequence[DeleteFile]:
        return [self.deletes[index] for index in file.deletes]
