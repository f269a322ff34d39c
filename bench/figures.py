"""The few statistics a bench needs, and how a figure is judged."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from statistics import median
from typing import Any, Literal, TypeVar

Better = Literal["lower", "higher"]
Side = Literal["ours", "peer"]
PLACES = 3

T = TypeVar("T")


def percentile(values: Sequence[float], share: float) -> float:
    """The smallest value that at least `share` of all values do not exceed."""
    if not values:
        raise ValueError("no values were measured")
    ranked = sorted(values)
    rank = -(-len(ranked) * share // 1)  # rounded up
    return ranked[max(0, int(rank) - 1)]


def in_ms(seconds: float) -> float:
    return round(seconds * 1000, PLACES)


def rounded(values: Sequence[float]) -> list[float]:
    return [round(value, PLACES) for value in values]


def middle(values: Sequence[float]) -> float:
    """The median, rounded for people. Raises StatisticsError without values."""
    return round(median(values), PLACES)


def reaches(value: float, aim: float, *, better: Better) -> bool:
    return value <= aim if better == "lower" else value >= aim


def turns(pairs: int) -> list[tuple[Side, Side]]:
    """Who goes first in each pair: the two in turn, so that neither always finds a warm cache."""
    return [("ours", "peer") if pair % 2 == 0 else ("peer", "ours") for pair in range(pairs)]


def rotations(who: Sequence[T], *, rounds: int) -> list[list[T]]:
    """The order of each round: everybody moves one place on, so that nobody always goes first."""
    return [[who[(place + turn) % len(who)] for place in range(len(who))] for turn in range(rounds)]


def in_turns(
    measure: Callable[[Side], T], *, pairs: int, warm_up_pairs: int
) -> tuple[list[T], list[T]]:
    """Measure both sides so often, in turns: ours and the peer's, without the first pairs."""
    kept: dict[Side, list[T]] = {"ours": [], "peer": []}
    for pair, order in enumerate(turns(warm_up_pairs + pairs)):
        for side in order:
            took = measure(side)
            if pair >= warm_up_pairs:
                kept[side].append(took)
    return kept["ours"], kept["peer"]


def differing(found: Mapping[str, Any], expected: Mapping[str, Any]) -> list[str]:
    """The facts of a table that are not as they should be."""
    return sorted(name for name in found.keys() | expected if found.get(name) != expected.get(name))
