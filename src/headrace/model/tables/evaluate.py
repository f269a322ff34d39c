"""Which partitions of a table need optimizing, of which type, and why.

The rules and thresholds are Amoro's; two things differ. Clocks belong to partitions: a full pass
that had room for 3 of 800 partitions comes back for the other 797. And every rule is kept with its
threshold and what was measured, whether it fired or not, since a user's first question is why a
table is *not* being optimized.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from headrace.model.tables.files import Partition, TableFiles
from headrace.model.tables.measure import Measured, measure
from headrace.model.tables.settings import OptimizingSettings, property_of
from headrace.model.tables.status import OptimizingType


@dataclass(frozen=True, slots=True)
class Clock:
    """When a partition was last optimized, by type. None: never, and so due at once."""

    minor_ms: int | None = None
    major_ms: int | None = None
    full_ms: int | None = None
    seen_ms: int | None = None  # when it was first seen: a new partition isn't overdue

    def since_ms(self, last_ms: int | None) -> int | None:
        """The later of that time and the first sight of the partition."""
        return max((t for t in (last_ms, self.seen_ms) if t is not None), default=None)

    @property
    def waiting_since_ms(self) -> int | None:
        """Since when nothing was done about it. None: never was."""
        done = [t for t in (self.minor_ms, self.major_ms, self.full_ms) if t is not None]
        return max(done, default=self.seen_ms)


@dataclass(frozen=True, slots=True)
class Rule:
    """One reason to optimize, and how far the partition is from it."""

    type: OptimizingType
    name: str  # the property that sets the threshold, or the rule's own name
    said: str  # what is measured, for people
    measured: float
    threshold: float
    fired: bool


@dataclass(frozen=True, slots=True)
class Evaluated:
    partition: Partition
    measured: Measured
    rules: Sequence[Rule]
    type: OptimizingType | None  # None: it needs nothing
    cost: int  # Amoro's
    waiting_since_ms: int | None

    @property
    def fired(self) -> Sequence[Rule]:
        return [rule for rule in self.rules if rule.fired]


NEVER = Clock()


def evaluate(
    table: TableFiles,
    settings: OptimizingSettings,
    clocks: Mapping[Partition, Clock],
    *,
    now_ms: int,
) -> Sequence[Evaluated]:
    """Every partition of the table with the rules it was held against, in the order of its path."""
    return [
        evaluate_partition(partition, found, settings, clocks.get(partition, NEVER), now_ms=now_ms)
        for partition, found in measure(table, settings).items()
    ]


def forced(evaluated: Sequence[Evaluated], kind: OptimizingType) -> Sequence[Evaluated]:
    """As if every partition were due for this type: somebody asked. A plan must gain all the
    same."""
    return [replace(each, type=max(each.type or kind, kind)) for each in evaluated]


def evaluate_partition(
    partition: Partition,
    found: Measured,
    settings: OptimizingSettings,
    clock: Clock,
    *,
    now_ms: int,
) -> Evaluated:
    rules = (
        *_full_rules(found, settings, clock, now_ms),
        *_major_rules(found, settings),
        *_minor_rules(found, settings, clock, now_ms),
    )
    fired = [rule.type for rule in rules if rule.fired]
    tolerated = _even_enough(found, settings)
    return Evaluated(
        partition=partition,
        measured=found,
        rules=rules,
        type=max(fired, default=None) if settings.enabled and not tolerated else None,
        cost=cost(found, settings),
        waiting_since_ms=clock.waiting_since_ms,
    )


def fires_at_ms(
    found: Measured, settings: OptimizingSettings, clock: Clock, *, now_ms: int
) -> int | None:
    """When the next rule fires by time alone, if nothing changes. None: none ever will.

    A rule that has fired already says nothing new later. A partition that was never optimized and
    never seen has no rule that waits: each of them fires at once or not at all.
    """
    if _even_enough(found, settings):
        return None
    waits: list[tuple[int | None, int]] = []
    if _small(found) > 1:
        waits.append((clock.since_ms(clock.minor_ms), settings.minor_interval_ms))
    if _work(found) > 0:
        waits.append((clock.since_ms(clock.full_ms), settings.full_interval_ms))
    times = [since + wait + 1 for since, wait in waits if since is not None and wait >= 0]
    return min((at for at in times if at > now_ms), default=None)


def needs_clock(found: Measured) -> bool:
    """Something is in it that rules by time count: from the first sight of it on they wait."""
    return _small(found) > 0 or _work(found) > 0 or found.counted.files > 0


def cost(found: Measured, settings: OptimizingSettings) -> int:
    """Amoro's cost of a partition, in bytes. A delete-laden file counts a tenth there, where only
    its deletes are rewritten; what a plan of ours costs is the sum of its bins."""
    rewritten = found.fragments.bytes + found.rewrite.bytes + found.undersized.bytes
    deletes = found.position_deletes + found.equality_deletes
    opened = settings.open_file_cost_bytes * (found.counted.files + deletes.files)
    return 2 * rewritten + found.laden.bytes // 10 + deletes.bytes + opened


def _minor_rules(
    found: Measured, settings: OptimizingSettings, clock: Clock, now_ms: int
) -> Sequence[Rule]:
    small = _small(found)
    said = "fragments and equality delete files"
    interval = settings.minor_interval_ms
    waited = _waited_ms(clock.since_ms(clock.minor_ms), now_ms, interval)
    return (
        Rule(
            OptimizingType.MINOR,
            property_of("minor_file_count"),
            said,
            small,
            settings.minor_file_count,
            fired=small >= settings.minor_file_count,
        ),
        Rule(
            OptimizingType.MINOR,
            property_of("minor_interval_ms"),
            f"milliseconds since the last minor, with {small} {said} of more than 1 needed",
            waited,
            interval,
            fired=small > 1 and 0 <= interval < waited,
        ),
        Rule(
            OptimizingType.MINOR,
            "several-position-deletes",
            "files of full size under several position deletes",
            found.combine,
            1,
            fired=found.combine >= 1,
        ),
    )


def _major_rules(found: Measured, settings: OptimizingSettings) -> Sequence[Rule]:
    target = settings.target_size_bytes
    pair = sum(found.smallest)
    return (
        Rule(
            OptimizingType.MAJOR,
            property_of("duplicate_ratio"),
            f"files with more than {settings.duplicate_ratio:g} of their rows deleted by position",
            found.rewrite.files,
            1,
            fired=found.rewrite.files >= 1,
        ),
        Rule(
            OptimizingType.MAJOR,
            property_of("target_size_bytes"),
            f"bytes in undersized files, whose two smallest ({pair} bytes) must fit into one",
            found.undersized.bytes,
            target,
            fired=len(found.smallest) > 1 and pair <= target <= found.undersized.bytes,
        ),
    )


def _full_rules(
    found: Measured, settings: OptimizingSettings, clock: Clock, now_ms: int
) -> Sequence[Rule]:
    interval = settings.full_interval_ms
    waited = _waited_ms(clock.since_ms(clock.full_ms), now_ms, interval)
    work = _work(found)
    return (
        Rule(
            OptimizingType.FULL,
            property_of("full_interval_ms"),
            f"milliseconds since the last full, with {work} delete files or files to merge",
            waited,
            interval,
            fired=work > 0 and 0 <= interval < waited,
        ),
    )


def _small(found: Measured) -> int:
    return found.fragments.files + found.equality_deletes.files


def _work(found: Measured) -> int:
    """Each of these is enough, once the interval has passed; alone none of them is."""
    return (
        found.any_deletes
        + max(0, found.fragments.files - 1)
        + max(0, found.undersized.files - 1)
        + found.rewrite.files
        + found.laden.files
    )


def _waited_ms(since_ms: int | None, now_ms: int, interval_ms: int) -> int:
    """Never done is one more than the interval asks for: a time since nothing can't be told."""
    return max(interval_ms, -1) + 1 if since_ms is None else now_ms - since_ms


def _even_enough(found: Measured, settings: OptimizingSettings) -> bool:
    """`evaluation.file-size.mse-tolerance`: files that differ little from the size that is enough
    are left alone, unless deletes apply to them."""
    return not found.any_deletes and found.size_error < settings.mse_tolerance_bytes**2
