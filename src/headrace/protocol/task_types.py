"""Task types: for each kind of task, in which lane it runs, what it is told and what it tells.

A type is joined with what is done for it by its kind, on two sides that don't know each other:

- a coordinator builds the payload from the store and applies the result to it
  (coordinator/tables/tasks.py for tables, coordinator/sync for jobs);
- a worker runs the task (worker/tables/registry.py, worker/runner.py).

The orders of table tasks stand here, too, since a rewrite's holds bins as they are sent. Commit and
discard tasks are ordered by nothing but their process.

A new table service is a kind (`TaskKind`), its messages and its type here, and one file with one
line in the registry of each side.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from headrace.errors import UnknownTaskKind
from headrace.model.tables.schedule import BASE_INTERVAL_MS
from headrace.model.task import (
    ForgetOrder,
    Lane,
    PipelineOrder,
    RetryRule,
    SettleOrder,
    TaskKind,
    TaskOrder,
)
from headrace.protocol.messages import ForgetPayload, Message, PipelinePayload, SettleResult
from headrace.protocol.tables import (
    CommitPayload,
    CommitResult,
    Discarded,
    DiscardPayload,
    Discovered,
    DiscoverPayload,
    EvaluatePayload,
    EvaluationResult,
    Planned,
    PlannedBin,
    PlanPayload,
    RewritePayload,
    RewriteResult,
    TypeName,
)

Order = TypeVar("Order", bound=TaskOrder)
Payload = TypeVar("Payload", bound=Message)
Result = TypeVar("Result", bound=Message)


class DiscoverOrder(TaskOrder):
    """The order of a DISCOVER task."""

    catalog: str


class EvaluateOrder(TaskOrder):
    """The order of an EVALUATE task."""

    catalog: str
    tables: tuple[str, ...]  # ids; those that were released from the evaluation since are left out
    refresh_ms: int = BASE_INTERVAL_MS  # for whichever leader applies the result


class PlanOrder(TaskOrder):
    """The order of a PLAN task."""

    budget_bytes: int | None = None  # input of one process
    at_least: TypeName | None = None  # a user asked for it: no rule has to fire
    dry: bool = False  # nothing will be done with the plan, but to show it


class RewriteOrder(TaskOrder):
    """The order of a REWRITE task."""

    bins: tuple[PlannedBin, ...] = ()


class NoResult(Message):
    """The result of a task whose end says it all."""


@dataclass(frozen=True, slots=True)
class TaskType(Generic[Order, Payload, Result]):
    """What both sides know of a kind of task."""

    kind: TaskKind
    lane: Lane
    order: type[Order]  # stored with the task
    payload: type[Payload]  # sent with its assignment
    result: type[Result]  # reported with its end, if that is a success
    retry: RetryRule = RetryRule.AS_ORDERED


PIPELINE = TaskType(TaskKind.PIPELINE, Lane.SLOT, PipelineOrder, PipelinePayload, NoResult)
SETTLE = TaskType(
    TaskKind.SETTLE, Lane.CONTROL, SettleOrder, PipelinePayload, SettleResult, RetryRule.ALWAYS
)
FORGET = TaskType(TaskKind.FORGET, Lane.CONTROL, ForgetOrder, ForgetPayload, NoResult)
NOOP = TaskType(TaskKind.NOOP, Lane.SLOT, TaskOrder, Message, NoResult)
DISCOVER = TaskType(TaskKind.DISCOVER, Lane.CONTROL, DiscoverOrder, DiscoverPayload, Discovered)
EVALUATE = TaskType(
    TaskKind.EVALUATE, Lane.CONTROL, EvaluateOrder, EvaluatePayload, EvaluationResult
)
PLAN = TaskType(TaskKind.PLAN, Lane.CONTROL, PlanOrder, PlanPayload, Planned)
REWRITE = TaskType(TaskKind.REWRITE, Lane.SLOT, RewriteOrder, RewritePayload, RewriteResult)
COMMIT = TaskType(
    TaskKind.COMMIT,
    Lane.CONTROL,
    TaskOrder,
    CommitPayload,
    CommitResult,
    RetryRule.UNLESS_REFUSED,
)
DISCARD = TaskType(TaskKind.DISCARD, Lane.CONTROL, TaskOrder, DiscardPayload, Discarded)

AnyTaskType = TaskType[Any, Any, Any]
TASK_TYPES: Mapping[TaskKind, AnyTaskType] = {
    each.kind: each
    for each in (
        *(PIPELINE, SETTLE, FORGET, NOOP),
        *(DISCOVER, EVALUATE, PLAN, REWRITE, COMMIT, DISCARD),
    )
}


def task_type(kind: str) -> AnyTaskType:
    """The type of a kind of task; `UnknownTaskKind` where there is none."""
    for known, found in TASK_TYPES.items():
        if known == kind:
            return found
    raise UnknownTaskKind(kind)
