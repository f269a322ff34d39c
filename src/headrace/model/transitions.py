"""Transition maps: which status may follow which, as data.

Each state machine is an enum and one map from every status to those that may follow it. The store
derives the guard of every status write from the map (`may_become` in `store/core/schema.py`), and
the diagrams in the docs are drawn from it, so there is no second list of steps that could be wrong.

A status is never followed by itself: what only changes beside the status is written by a function
of its own.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import TypeVar

from headrace.errors import IllegalTransition

Status = TypeVar("Status", bound=StrEnum)


def predecessors(
    transitions: Mapping[Status, frozenset[Status]], target: Status
) -> frozenset[Status]:
    """The statuses that `target` may follow."""
    return frozenset(status for status, following in transitions.items() if target in following)


def check_transition(
    kind: str,
    key: str,
    transitions: Mapping[Status, frozenset[Status]],
    current: Status,
    target: Status,
) -> None:
    """Raise IllegalTransition for a step that the map does not have: a mistake in a program, unlike
    a row that somebody else has moved, which only keeps a write from landing (C1)."""
    if target not in transitions[current]:
        raise IllegalTransition(kind, key, current, target)
