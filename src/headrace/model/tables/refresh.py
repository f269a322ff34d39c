"""How often a table is looked at: seldom while nothing is found, soon again when something is.

Amoro's adaptive interval (additive increase, multiplicative decrease), by its two properties. It is
kept with the table, so a restart doesn't begin again with every table at its shortest.
"""

from __future__ import annotations

from dataclasses import dataclass

BASE_INTERVAL_MS = 60_000  # Amoro's `refresh-tables.interval`
DISCOVER_INTERVAL_MS = 3 * 60_000  # Amoro's `refresh-external-catalogs.interval`


@dataclass(frozen=True, slots=True)
class Pace:
    """`self-optimizing.refresh-table.adaptive.*`."""

    most_ms: int = 0  # up to the base interval: it does not adapt
    step_ms: int = 30_000
    base_ms: int = BASE_INTERVAL_MS

    def next_interval_ms(self, interval_ms: int, *, demand: bool) -> int:
        """The interval after a look that found input to rewrite, or none."""
        next_ms = interval_ms // 2 if demand else interval_ms + max(0, self.step_ms)
        return max(self.base_ms, min(next_ms, self.most_ms))

    def due_at_ms(self, now_ms: int, interval_ms: int, *, look_at_ms: int | None) -> int:
        """When a table is looked at next; a rule by time that fires before is not slept through."""
        due_ms = now_ms + interval_ms
        if look_at_ms is None or look_at_ms >= due_ms:
            return due_ms
        return max(look_at_ms, now_ms + self.base_ms)
