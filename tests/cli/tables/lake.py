"""Catalogs, tables and processes as a coordinator shows them, and one that shows them in turn."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import httpx2

from tests.cli.jobs.test_jobs import invoke
from tests.cli.machine import Answer

NOW = 1_700_000_000_000


MINUTE = 60_000


NAME = "lake.sales.orders"


CATALOG: dict[str, Any] = {
    "name": "lake",
    "type": "rest",
    "properties": {"uri": "http://rest:8181", "token": "******"},
    "defaults": {"self-optimizing.quota": "2"},
    "table_filter": "sales\\..*",
    "group": "default",
    "tables": 12,
    "removing": False,
    "looking": False,
    "waits_for": None,
    "changed": None,
    "created_at_ms": NOW,
    "discovered_at_ms": NOW - MINUTE,
    "due_at_ms": NOW + MINUTE,
    "failures": 0,
    "error": None,
}


PROCESS: dict[str, Any] = {
    "id": "p4",
    "table": NAME,
    "number": 4,
    "type": "MAJOR",
    "status": "RUNNING",
    "settling": False,
    "canceling": False,
    "snapshot": "11",
    "committed_snapshot": None,
    "files_before": 412,
    "files_planned": 12,
    "files_after": 11,
    "bytes_before": 1_200_000_000,
    "bytes_planned": 1_000_000_000,
    "bytes_after": 1_100_000_000,
    "partitions_left": 2,
    "conflicts": 0,
    "tasks": 8,
    "tasks_done": 3,
    "workers": ["w1"],
    "error": None,
    "created_at_ms": NOW - 2 * MINUTE,
    "ended_at_ms": None,
}


TABLE: dict[str, Any] = {
    "identifier": NAME,
    "catalog": "lake",
    "group": "default",
    "quota": 2.0,
    "quota_set_by": "group",
    "status": "PENDING",
    "status_since_ms": NOW - 3 * MINUTE - 20_000,
    "enabled": True,
    "paused": False,
    "wanted_type": None,
    "health": 62,
    "files": 1240,
    "bytes": 3_400_000_000,
    "rows": 12_000_000,
    "partitions": 31,
    "pending": {
        "type": "MAJOR",
        "files": 412,
        "files_after": 11,
        "bytes": 1_200_000_000,
        "bytes_after": 1_100_000_000,
        "deletes": 2,
        "partitions": 3,
    },
    "process": None,
    "processes": 3,
    "due_at_ms": NOW + MINUTE,
    "not_before_ms": 0,
    "evaluated_at_ms": NOW - 20_000,
    "optimized_at_ms": None,
    "failures": 0,
    "error": None,
    "flaws": [],
    "left_out": [],
    "blockers": [],
    "changed": None,
}


def ended(status: str = "SUCCESS", **changed: Any) -> dict[str, Any]:
    return {**PROCESS, "status": status, "ended_at_ms": NOW, "tasks": None, **changed}


class Script:
    """A coordinator that answers each path with the next of its answers; the last one stays."""

    def __init__(self, answers: Mapping[str, list[Any]]) -> None:
        self._answers = {path: list(bodies) for path, bodies in answers.items()}
        self.heard: list[tuple[str, str, Any]] = []

    def __call__(self, request: httpx2.Request) -> httpx2.Response:
        body = json.loads(request.content) if request.content else None
        self.heard.append((request.method, request.url.path, body))
        left = self._answers[f"{request.method} {request.url.path}"]
        return httpx2.Response(200, json=left.pop(0) if len(left) > 1 else left[0])


def said_to(answer: Answer, *arguments: str) -> list[str]:
    return [line.rstrip() for line in invoke(answer, *arguments).splitlines() if line.strip()]


PLAN: dict[str, Any] = {
    "task": "t9",
    "table": NAME,
    "status": "PLANNED",
    "waits_for": "a worker of group 'default', which has none",
    "error": None,
    "type": None,
    "reason": None,
    "files_before": 0,
    "files_after": 0,
    "bytes_before": 0,
    "bytes_after": 0,
    "bytes_read": 0,
    "deletes_removed": 0,
    "partitions": {},
    "tasks": 0,
    "partitions_left": 0,
    "left_out": [],
}
