"""A commit that would lose an equality delete is known from snapshot summaries alone."""

from __future__ import annotations

from typing import Any

import pytest

from headrace.lake.iceberg.replace_conflicts import would_lose_deletes

PLANNED = 1


def table(*summaries: dict[str, str], planned_files: int = 2) -> dict[str, Any]:
    """The planned snapshot with number 1, and one after the other for each summary."""
    told = [{"total-data-files": str(planned_files)}, *summaries]
    return {
        "current-snapshot-id": len(told),
        "last-sequence-number": len(told),
        "snapshots": [
            {
                "snapshot-id": number,
                "parent-snapshot-id": number - 1 or None,
                "sequence-number": number,
                "summary": summary,
            }
            for number, summary in enumerate(told, 1)
        ],
    }


DATA = {"operation": "append", "added-data-files": "1"}
DELETE = {"operation": "overwrite", "added-equality-deletes": "3"}
UPSERT = DATA | DELETE
REMOVAL = {"operation": "delete", "deleted-data-files": "1"}
PROCESS = {"operation": "replace", "deleted-data-files": "4", "headrace.commit": "o/0/1/optimize"}


@pytest.mark.parametrize(
    ("came", "lost"),
    [
        ((), False),
        ((DATA, REMOVAL), False),  # no equality delete
        ((DELETE,), False),  # the newest of all, which Iceberg never drops
        ((DELETE, DATA), True),  # all that stays is younger than the delete
        ((DELETE, DELETE), True),
        ((DATA, DELETE, DATA), False),  # the first data stays, and is older
        ((UPSERT, UPSERT, UPSERT), False),  # as Flink commits
        ((UPSERT, REMOVAL, DATA), True),  # it may be the older data that went
        ((UPSERT, PROCESS, UPSERT), True),  # what a process gives back may be younger
    ],
)
def test_a_delete_is_lost_when_all_known_files_are_younger(
    *, came: tuple[dict[str, str], ...], lost: bool
) -> None:
    assert would_lose_deletes(table(*came), planned=PLANNED, replaced=2) is lost


def test_a_file_left_out_of_the_plan_keeps_every_delete() -> None:
    assert not would_lose_deletes(table(DELETE, DATA), planned=PLANNED, replaced=1)
    assert would_lose_deletes(table(DELETE, DATA, REMOVAL), planned=PLANNED, replaced=1)
    assert would_lose_deletes(table(DELETE, DATA, PROCESS), planned=PLANNED, replaced=1)


def test_an_expired_plan_is_no_proof_of_files_left_out() -> None:
    told = table(DELETE, DATA)
    del told["snapshots"][0]

    assert would_lose_deletes(told, planned=PLANNED, replaced=1)
