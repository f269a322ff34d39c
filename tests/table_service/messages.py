"""What is said about counting: its kind, its messages, its type."""

from __future__ import annotations

from headrace.model.task import Lane, TaskKind, TaskOrder
from headrace.protocol.messages import Message
from headrace.protocol.tables import OfCatalog, TableIdentifier
from headrace.protocol.task_types import TaskType


def _further_kind(name: str) -> TaskKind:
    """As a member of the enum would be; a service of the product is one."""
    kind = str.__new__(TaskKind, name)
    kind._name_ = kind._value_ = name
    return kind


KIND = _further_kind("COUNT")


class CountPayload(OfCatalog):
    table: TableIdentifier


class Counted(Message):
    rows: int


COUNT = TaskType(KIND, Lane.CONTROL, TaskOrder, CountPayload, Counted)
