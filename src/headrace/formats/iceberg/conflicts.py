"""Which groups can't replace their files any more, because somebody changed these meanwhile.

Asked only after the table has refused. A file that is gone, or has other deletes by position than
were applied, is a conflict. A new equality delete is none: it applies to the new files as well,
since these keep the sequence number of the planned snapshot.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from pydantic import BaseModel, ConfigDict
from pyspark.sql import SparkSession

from headrace.errors import Refused
from headrace.formats.iceberg.catalogs import metadata_of
from headrace.formats.iceberg.lost_deletes import descends, would_lose
from headrace.formats.iceberg.records import (
    DeleteKey,
    Inputs,
    Record,
    Rewritten,
    delete_key,
    pages,
    references,
)

_EQUALITY = "equality-deletes"


class Group(BaseModel):
    """Bins that are replaced together or not at all: those of one or more partitions."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    number: int
    bins: list[Inputs]
    rewritten: list[Rewritten]  # of each bin, in the same order


class Conflict(Refused):
    """Groups that have to be planned again, each with the reason."""

    def __init__(self, table: str, reasons: Mapping[int, str]) -> None:
        self.reasons = dict(reasons)
        told = "; ".join(f"group {number}: {reason}" for number, reason in self.reasons.items())
        super().__init__(f"{table} was changed since it was planned: {told}; plan these again")


def find_conflicts(session: SparkSession, table: Any, groups: Sequence[Group]) -> dict[int, str]:
    """The reason for each group that conflicts; nothing for the others."""
    of_all = _of_all(session, table, groups)
    if of_all is not None:
        return {group.number: of_all for group in groups}
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


def _of_all(session: SparkSession, table: Any, groups: Sequence[Group]) -> str | None:
    """A reason that every group has."""
    snapshot = groups[0].bins[0].snapshot
    if table.snapshot(snapshot) is None:
        return f"snapshot {snapshot}, from which it was planned, was expired"
    if not descends(metadata_of(session, table), snapshot):
        # What came since can't be told from its history, and so Iceberg refuses it every time.
        return f"snapshot {snapshot}, from which it was planned, was rolled back or cut off"
    if loses_deletes(session, table, groups):
        return "an equality delete came meanwhile that the commit would lose"
    return None


def loses_deletes(session: SparkSession, table: Any, groups: Sequence[Group]) -> bool:
    """Would replacing these drop a delete that the new files need?"""
    bins = [inputs for group in groups for inputs in group.bins]
    replaced = sum(len(inputs.tasks) for inputs in bins)
    told = metadata_of(session, table)
    return would_lose(told, planned=bins[0].snapshot, replaced=replaced)


def _reason(
    group: Group,
    planned: Mapping[str, Mapping[DeleteKey, bool]],
    now: Mapping[str, Mapping[DeleteKey, bool]],
) -> str | None:
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
    """The deletes of a file, each with whether it deletes by equality."""
    applied = (deletes[index] for index in references(task))
    return {delete_key(one): one["content"] == _EQUALITY for one in applied}
