"""Conflicts of a planned replacement with what others committed meanwhile, group by group.

`find_conflicts` is asked only after the table has refused a commit. A file that is gone, or that
has other deletes by position than were applied, is a conflict. A new equality delete is none: it
applies to the new files as well, since these keep the sequence number of the planned snapshot.

`would_lose_deletes` (pure) says whether a commit would lose an equality delete that came after the
plan. A commit drops delete files that are older than every data file it knows, and Iceberg (as of
1.12; its pull request 10962 is open) does not count the files that the same commit adds. New files
with the sequence number of the plan may still need such a delete: without it deleted rows would
come back. The answer is derived from snapshot summaries alone, and is yes when in doubt.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from pydantic import BaseModel, ConfigDict
from pyspark.sql import SparkSession

from headrace.errors import Refused
from headrace.lake.iceberg.catalogs import metadata_of
from headrace.lake.iceberg.file_records import (
    DeleteKey,
    Inputs,
    Record,
    Rewritten,
    delete_key,
    pages,
    references,
)

Snapshot = Mapping[str, Any]

_EQUALITY = "equality-deletes"


class BinGroup(BaseModel):
    """Bins, of one or more partitions, that are replaced together or not at all."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    number: int
    bins: list[Inputs]
    rewritten: list[Rewritten]  # one for each bin, in the same order


class Conflict(Refused):
    """Some groups have to be planned again; `reasons` says why, by group number."""

    def __init__(self, table: str, reasons: Mapping[int, str]) -> None:
        self.reasons = dict(reasons)
        details = "; ".join(f"group {number}: {reason}" for number, reason in self.reasons.items())
        super().__init__(f"{table} was changed since it was planned: {details}; plan these again")


def find_conflicts(session: SparkSession, table: Any, groups: Sequence[BinGroup]) -> dict[int, str]:
    """The reason for each group that conflicts, by group number; groups without a conflict are left
    out."""
    common_reason = _common_reason(session, table, groups)
    if common_reason is not None:
        return {group.number: common_reason for group in groups}
    planned = {
        task["data-file"]["file-path"]: _applied(task, inputs.deletes)
        for group in groups
        for inputs in group.bins
        for task in inputs.tasks
    }
    now: dict[str, dict[DeleteKey, bool]] = {}
    for page in pages(session, table, table.newScan()):
        for task in page.tasks:
            path = task["data-file"]["file-path"]
            if path in planned:
                now[path] = _applied(task, page.deletes)
    reasons: dict[int, str] = {}
    for group in groups:
        reason = _reason(group, planned, now)
        if reason is not None:
            reasons[group.number] = reason
    return reasons


def _common_reason(session: SparkSession, table: Any, groups: Sequence[BinGroup]) -> str | None:
    """A reason that holds for every group; None when there is none."""
    snapshot = groups[0].bins[0].snapshot
    if table.snapshot(snapshot) is None:
        return f"snapshot {snapshot}, from which it was planned, was expired"
    if not descends(metadata_of(session, table), snapshot):
        # Its history does not show what came since, so Iceberg would refuse every attempt.
        return f"snapshot {snapshot}, from which it was planned, was rolled back or cut off"
    if loses_deletes(session, table, groups):
        return "an equality delete came meanwhile that the commit would lose"
    return None


def loses_deletes(session: SparkSession, table: Any, groups: Sequence[BinGroup]) -> bool:
    """Whether replacing these groups would drop a delete file that the new files need."""
    bins = [inputs for group in groups for inputs in group.bins]
    replaced = sum(len(inputs.tasks) for inputs in bins)
    metadata = metadata_of(session, table)
    return would_lose_deletes(metadata, planned=bins[0].snapshot, replaced=replaced)


def _reason(
    group: BinGroup,
    planned: Mapping[str, Mapping[DeleteKey, bool]],
    now: Mapping[str, Mapping[DeleteKey, bool]],
) -> str | None:
    """Why this group conflicts; None when it does not."""
    for inputs in group.bins:
        for task in inputs.tasks:
            path = task["data-file"]["file-path"]
            if path not in now:
                return f"{path} was removed"
            before, after = planned[path], now[path]
            if before.keys() - after.keys():
                return f"a delete file of {path} was removed"
            if any(not after[key] for key in after.keys() - before.keys()):
                return f"rows of {path} were deleted"
    return None


def _applied(task: Record, deletes: Sequence[Record]) -> dict[DeleteKey, bool]:
    """The delete files that apply to a data file, each with whether it deletes by equality."""
    applied = (deletes[index] for index in references(task))
    return {delete_key(one): one["content"] == _EQUALITY for one in applied}


def would_lose_deletes(metadata: Mapping[str, Any], *, planned: int, replaced: int) -> bool:
    """Whether a commit on this table would lose an equality delete that came after the plan.
    `replaced`: how many data files of the planned snapshot the commit takes away."""
    snapshots = {one["snapshot-id"]: one for one in metadata.get("snapshots", ())}
    since = _since(snapshots, metadata.get("current-snapshot-id"), planned)
    delete_sequences = [_sequence(one) for one in since if _count(one, "added-equality-deletes")]
    if not delete_sequences:
        return False
    kept = _oldest_kept(snapshots.get(planned), since, replaced)
    last = int(metadata.get("last-sequence-number", 0))
    oldest = last if kept is None else min(kept, last)
    return any(sequence < oldest for sequence in delete_sequences)


def descends(metadata: Mapping[str, Any], planned: int) -> bool:
    """Whether the current snapshot of the table descends from the planned one."""
    snapshots = {one["snapshot-id"]: one for one in metadata.get("snapshots", ())}
    current = metadata.get("current-snapshot-id")
    since = _since(snapshots, current, planned)
    return planned == (since[-1].get("parent-snapshot-id") if since else current)


def _since(
    snapshots: Mapping[int, Snapshot], current: int | None, planned: int
) -> Sequence[Snapshot]:
    """The snapshots after the planned one, newest first, as far as they are known."""
    newer: list[Snapshot] = []
    while current is not None and current != planned and current in snapshots:
        newer.append(snapshots[current])
        current = snapshots[current].get("parent-snapshot-id")
    return newer


def _oldest_kept(planned: Snapshot | None, since: Sequence[Snapshot], replaced: int) -> int | None:
    """The lowest sequence number known to be of a data file that stays; None: none is known.

    Whoever removed files may have added them again under a sequence number higher than the plan's,
    as another Headrace on the same table does. So after any removal nothing is known of the files
    that stay.
    """
    if any(_count(one, "deleted-data-files") for one in since):
        return None
    if planned is not None and _count(planned, "total-data-files") > replaced:
        return _sequence(planned)
    return min((_sequence(one) for one in since if _count(one, "added-data-files")), default=None)


def _count(snapshot: Snapshot, name: str) -> int:
    return int(snapshot.get("summary", {}).get(name, 0))


def _sequence(snapshot: Snapshot) -> int:
    return int(snapshot.get("sequence-number", 0))
