"""Catalogs and tables that are given to another group, perhaps because the first has no workers.

A task that nobody has claimed would wait in the first one for ever; it is canceled, and what it was
for is planned anew where it can be done.
"""

from __future__ import annotations

from headrace.model.task import TaskStatus
from headrace.store.table_tasks import State
from headrace.store.tasks import Task

MOVED = "it is for the workers of another group now"


def waits_elsewhere(task: Task | State | None, group: str) -> bool:
    """Whether nobody has it, and only workers of a group that was left could take it."""
    return task is not None and task.status is TaskStatus.PLANNED and task.group != group
