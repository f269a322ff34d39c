"""A table's snapshots and how they follow one another. Pure; catalogs.py asks the JVM.

Rows come into a table by *append* snapshots. A *replace* snapshot (compaction) holds the same rows
in other files, so whoever reads appends steps over it. *overwrite* and *delete* snapshots take rows
away again, which no reading of appends can tell.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from headrace.errors import Refused

APPEND = "append"
OVERWRITE = "overwrite"
REPLACE = "replace"
_CHANGES = ("added-data-files", "deleted-data-files", "added-delete-files", "removed-delete-files")
_DELETES = ("total-position-deletes", "total-equality-deletes")


class SnapshotGone(Refused):
    """A snapshot that was there when it was planned, or named in a job file, is no longer."""


@dataclass(frozen=True, slots=True)
class Snapshot:
    id: int
    parent: int | None
    at_ms: int
    summary: Mapping[str, str]
    schema: int | None = None

    @property
    def operation(self) -> str:
        return self.summary.get("operation", APPEND)  # format version 1 had none of its own

    @property
    def changes_nothing(self) -> bool:
        """Whether it says that it holds the same rows as the one before it."""
        if self.operation == REPLACE:
            return True
        tells = "total-records" in self.summary
        return tells and all(int(self.summary.get(key, "0")) == 0 for key in _CHANGES)

    @property
    def added_rows(self) -> int | None:
        """None: it does not say."""
        if self.changes_nothing:
            return 0
        told = self.summary.get("added-records")
        return int(told) if told is not None else None

    @property
    def total_rows(self) -> int | None:
        """None: it does not say, or rows are marked as deleted and counted all the same."""
        told = self.summary.get("total-records")
        if told is None or any(int(self.summary.get(key, "0")) > 0 for key in _DELETES):
            return None
        return int(told)


@dataclass(frozen=True, slots=True)
class Column:
    id: int
    name: str
    type: Any  # as Iceberg writes it: a text, or an object


@dataclass(frozen=True, slots=True)
class History:
    table: str  # for people
    snapshots: Mapping[int, Snapshot]
    current: Snapshot | None
    schema: int
    schemas: Mapping[int, Sequence[Column]]

    @classmethod
    def of(cls, table: str, told: Mapping[str, Any]) -> History:
        """From a table's metadata, as Iceberg writes it."""
        snapshots = {one.id: one for one in map(_snapshot, told.get("snapshots", ()))}
        return cls(
            table=table,
            snapshots=snapshots,
            current=snapshots.get(told.get("current-snapshot-id") or -1),
            schema=int(told["current-schema-id"]),
            schemas={
                int(one["schema-id"]): [
                    Column(int(field["id"]), field["name"], field["type"])
                    for field in one["fields"]
                ]
                for one in told["schemas"]
            },
        )

    def lineage(self, until: Snapshot | None) -> Iterator[Snapshot]:
        """A snapshot and those before it, as far as they are kept, newest first."""
        for _ in range(len(self.snapshots)):
            if until is None:
                return
            yield until
            until = self.snapshots.get(until.parent) if until.parent is not None else None

    def find(self, snapshot: int) -> Snapshot:
        found = self.snapshots.get(snapshot)
        if found is None:
            raise SnapshotGone(
                f"{self.table} has no snapshot {snapshot}: it was expired, or never was; keep "
                "snapshots longer, and submit the job anew"
            )
        return found

    def as_of(self, at_ms: int) -> Snapshot:
        """What was current at that time."""
        for snapshot in self.lineage(self.current):
            if snapshot.at_ms <= at_ms:
                return snapshot
        raise SnapshotGone(
            f"{self.table} has no snapshot as old as {at_ms} ms; name a later time, or a snapshot"
        )

    def between(self, after: int | None, until: Snapshot) -> list[Snapshot]:
        """Snapshots behind `after` up to `until`, oldest first; all of them, or `SnapshotGone`.

        `after` itself may have been expired: what came behind it counts. None: from the very
        first one.
        """
        steps: list[Snapshot] = []
        for snapshot in self.lineage(until):
            if snapshot.id == after:
                return steps[::-1]
            steps.append(snapshot)
            if snapshot.parent == after:
                return steps[::-1]
        raise SnapshotGone(self._why_not(after, until))

    def _why_not(self, after: int | None, until: Snapshot) -> str:
        whole = next(reversed(list(self.lineage(until)))).parent is None
        if whole and after in self.snapshots:
            return (
                f"{self.table} was rolled back: snapshot {after}, up to which it was read, is not "
                f"before snapshot {until.id}; submit the job anew"
            )
        named = "its first snapshot" if after is None else f"snapshot {after}"
        return (
            f"snapshots of {self.table} between {named} and {until.id} were expired before they "
            "were read, so rows appended in between can't be told from others; keep snapshots "
            "longer than the job may stand still, and submit it anew with stream_scan_strategy = "
            "TABLE_SCAN_THEN_INCREMENTAL"
        )


def _snapshot(told: Mapping[str, Any]) -> Snapshot:
    parent, schema = told.get("parent-snapshot-id"), told.get("schema-id")
    return Snapshot(
        id=int(told["snapshot-id"]),
        parent=int(parent) if parent is not None else None,
        at_ms=int(told["timestamp-ms"]),
        summary=told.get("summary", {}),
        schema=int(schema) if schema is not None else None,
    )
