"""The registry of table tasks, the coordinator's half: a further service is one more entry."""

from __future__ import annotations

from collections.abc import Sequence

from headrace.coordinator.tables import catalogs, evaluation, plan_scheduler, process_tasks
from headrace.coordinator.tables.table_task import AnyTableTask
from headrace.errors import UnknownTaskKind

TABLE_TASKS: Sequence[AnyTableTask] = (
    catalogs.DISCOVER,
    evaluation.EVALUATE,
    plan_scheduler.PLAN,
    process_tasks.REWRITE,
    process_tasks.COMMIT,
    process_tasks.DISCARD,
)


def table_task(kind: str) -> AnyTableTask:
    """What is done about a kind of table task."""
    for each in TABLE_TASKS:
        if each.type.kind == kind:
            return each
    raise UnknownTaskKind(kind)
