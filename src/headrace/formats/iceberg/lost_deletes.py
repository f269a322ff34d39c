"""Would a commit lose an equality delete that came after the plan? Pure.

A commit drops delete files older than every data file it finds, and Iceberg (as of 1.12; its pull
request 10962 is open) does not count the files that the same commit adds. New files with the
sequence number of the plan may still need such a delete: without it deleted rows would be back.
Told from snapshot summaries alone, and in doubt the answer is yes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

Snapshot = Mapping[str, Any]


def would_lose(metadata: Mapping[str, Any], *, planned: int, replaced: int) -> bool:
    """`replaced`: how many data files of the planned snapshot the commit takes away."""
    snapshots = {one["snapshot-id"]: one for one in metadata.get("snapshots", ())}
    since = _since(snapshots, metadata.get("current-snapshot-id"), planned)
    came = [_sequence(one) for one in since if _count(one, "added-equality-deletes")]
    if not came:
        return False
    kept = _oldest_kept(snapshots.get(planned), since, replaced)
    last = int(metadata.get("last-sequence-number", 0))
    oldest = last if kept is None else min(kept, last)
    return any(sequence < oldest for sequence in came)


def descends(metadata: Mapping[str, Any], planned: int) -> bool:
    """Does the history of the table as it is now lead back to the planned snapshot?"""
    snapshots = {one["snapshot-id"]: one for one in metadata.get("snapshots", ())}
    current = metadata.get("current-snapshot-id")
    since = _since(snapshots, current, planned)
    return planned == (since[-1].get("parent-snapshot-id") if since else current)


def _since(
    snapshots: Mapping[int, Snapshot], current: int | None, planned: int
) -> Sequence[Snapshot]:
    """The snapshots after the planned one, as far as they are known, newest first."""
    found: list[Snapshot] = []
    while current is not None and current != planned and current in snapshots:
        found.append(snapshots[current])
        current = snapshots[current].get("parent-snapshot-id")
    return found


def _oldest_kept(planned: Snapshot | None, since: Sequence[Snapshot], replaced: int) -> int | None:
    """The lowest sequence number known to be of a file that stays; None: none is known.

    Whoever took files away may have given them back with a number younger than the plan, another
    Headrace on the same table too: then nothing is known of those that stay.
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
