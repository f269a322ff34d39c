"""Evaluation: which partitions of a table need optimizing, of which type, and why.

The rules and thresholds are Amoro's; two things differ. Clocks belong to partitions: a full pass
that had room for 3 of 800 partitions comes back for the other 797. And every rule is kept with its
threshold and what was measured, whether it fired or not, since a user's first question is why a
table is *not* being optimized.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

from headrace.model.tables.files import MeasuredPartition, Partition, TableFiles, measure
from headrace.model.tables.settings import OptimizingSettings, property_of
from headrace.model.tables.status import OptimizingType


@dataclass(frozen=True, slots=True)
class PartitionClock:
    """When a partition was last optimized, by type. None: never, so that it is due at once."""

    minor_ms: int | None = None
    major_ms: int | None = None
    full_ms: int | None = None
    seen_ms: int | None = None  # when it was first seen: a new partition is not overdue

    def since_ms(self, last_ms: int | None) -> int | None:
        """The later of that time and when the partition was first seen."""
        return max((t for t in (last_ms, self.seen_ms) if t is not None), default=None)

    @property
    def waiting_since_ms(self) -> int | None:
        """When it was last optimized or, failing that, first seen. None: neither is known."""
        done = [t for t in (self.minor_ms, self.major_ms, self.full_ms) if t is not None]
        return max(done, default=self.seen_ms)


class RuleUnit(StrEnum):
    """What a rule measures in."""

    NUMBER = "NUMBER"
    BYTES = "BYTES"
    MILLISECONDS = "MILLISECONDS"


@dataclass(frozen=True, slots=True)
class OptimizingRule:
    """One reason to optimize, and how far the partition is from it."""

    type: OptimizingType
    name: str  # the property that sets the threshold, or the rule's own name
    description: str  # of what is measured, for people
    measured: float
    threshold: float
    fired: bool
    unit: RuleUnit = RuleUnit.NUMBER  # of both


@dataclass(frozen=True, slots=True)
class EvaluatedPartition:
    """A partition with its measures, its rules, and the type of optimizing that it needs."""

    partition: Partition
    measured: MeasuredPartition
    rules: Sequence[OptimizingRule]
    type: OptimizingType | None  # None: it needs nothing
    cost: int  # in bytes, as Amoro computes it
    waiting_since_ms: int | None

    @property
    def fired(self) -> Sequence[OptimizingRule]:
        return [rule for rule in self.rules if rule.fired]


NEVER = PartitionClock()


def evaluate(
    table: TableFiles,
    settings: OptimizingSettings,
    clocks: Mapping[Partition, PartitionClock],
    *,
    now_ms: int,
) -> Sequence[EvaluatedPartition]:
    """Evaluate every partition of the table; in the order of their paths."""
    return [
        evaluate_partition(
            partition, measured, settings, clocks.get(partition, NEVER), now_ms=now_ms
        )
        for partition, measured in measure(table, settings).items()
    ]


def forced(
    evaluated: Sequence[EvaluatedPartition], kind: OptimizingType
) -> Sequence[EvaluatedPartition]:
    """The evaluation as if every partition were due for this type, because a user asked for it.

    A plan must still gain something.
    """
    return [replace(each, type=max(each.type or kind, kind)) for each in evaluated]


def evaluate_partition(
    partition: Partition,
    measured: MeasuredPartition,
    settings: OptimizingSettings,
    clock: PartitionClock,
    *,
    now_ms: int,
) -> EvaluatedPartition:
    """Hold one partition against every rule; the strongest type among those that fired wins."""
    rules = (
        *_full_rules(measured, settings, clock, now_ms),
        *_major_rules(measured, settings),
        *_minor_rules(measured, settings, clock, now_ms),
    )
    fired = [rule.type for rule in rules if rule.fired]
    tolerated = _is_within_mse_tolerance(measured, settings)
    return EvaluatedPartition(
        partition=partition,
        measured=measured,
        rules=rules,
        type=max(fired, default=None) if settings.enabled and not tolerated else None,
        cost=cost(measured, settings),
        waiting_since_ms=clock.waiting_since_ms,
    )


def fires_at_ms(
    measured: MeasuredPartition, settings: OptimizingSettings, clock: PartitionClock, *, now_ms: int
) -> int | None:
    """When the next rule fires by time alone, if no file changes. None: none ever will.

    Rules that have fired already don't count. A partition that was never optimized and never seen
    has no rule that waits: each of them fires at once or not at all.
    """
    if _is_within_mse_tolerance(measured, settings):
        return None
    waits: list[tuple[int | None, int]] = []
    if _small(measured) > 1:
        waits.append((clock.since_ms(clock.minor_ms), settings.minor_interval_ms))
    if _work(measured) > 0:
        waits.append((clock.since_ms(clock.full_ms), settings.full_interval_ms))
    times = [since + wait + 1 for since, wait in waits if since is not None and wait >= 0]
    return min((at for at in times if at > now_ms), default=None)


def needs_clock(measured: MeasuredPartition) -> bool:
    """Whether it holds something that a rule by time counts.

    Such a rule waits from when the partition was first seen, so that has to be recorded.
    """
    return _small(measured) > 0 or _work(measured) > 0 or measured.counted.files > 0


def cost(measured: MeasuredPartition, settings: OptimizingSettings) -> int:
    """The cost of a partition as Amoro computes it, in bytes; it orders partitions.

    A delete-laden file counts a tenth, since Amoro rewrites only its deletes. What a plan of ours
    really reads and writes is in its `Gain`.
    """
    rewritten = measured.fragments.bytes + measured.rewrite.bytes + measured.undersized.bytes
    deletes = measured.position_deletes + measured.equality_deletes
    opened = settings.open_file_cost_bytes * (measured.counted.files + deletes.files)
    return 2 * rewritten + measured.laden.bytes // 10 + deletes.bytes + opened


def _minor_rules(
    measured: MeasuredPartition, settings: OptimizingSettings, clock: PartitionClock, now_ms: int
) -> Sequence[OptimizingRule]:
    small = _small(measured)
    description = "fragments and equality delete files"
    interval = settings.minor_interval_ms
    waited = _waited_ms(clock.since_ms(clock.minor_ms), now_ms, interval)
    return (
        OptimizingRule(
            OptimizingType.MINOR,
            property_of("minor_file_count"),
            description,
            small,
            settings.minor_file_count,
            fired=small >= settings.minor_file_count,
        ),
        OptimizingRule(
            OptimizingType.MINOR,
            property_of("minor_interval_ms"),
            f"time since the last minor, with {small} {description} of more than 1 needed",
            waited,
            interval,
            fired=small > 1 and 0 <= interval < waited,
            unit=RuleUnit.MILLISECONDS,
        ),
        OptimizingRule(
            OptimizingType.MINOR,
            "several-position-deletes",
            "files of full size under several position deletes",
            measured.combine,
            1,
            fired=measured.combine >= 1,
        ),
    )


def _major_rules(
    measured: MeasuredPartition, settings: OptimizingSettings
) -> Sequence[OptimizingRule]:
    target = settings.target_size_bytes
    pair = sum(measured.smallest)
    return (
        OptimizingRule(
            OptimizingType.MAJOR,
            property_of("duplicate_ratio"),
            f"files with more than {settings.duplicate_ratio:g} of their rows deleted by position",
            measured.rewrite.files,
            1,
            fired=measured.rewrite.files >= 1,
        ),
        OptimizingRule(
            OptimizingType.MAJOR,
            property_of("target_size_bytes"),
            f"data in undersized files, whose two smallest ({pair} bytes) must fit into one",
            measured.undersized.bytes,
            target,
            fired=len(measured.smallest) > 1 and pair <= target <= measured.undersized.bytes,
            unit=RuleUnit.BYTES,
        ),
    )


def _full_rules(
    measured: MeasuredPartition, settings: OptimizingSettings, clock: PartitionClock, now_ms: int
) -> Sequence[OptimizingRule]:
    interval = settings.full_interval_ms
    waited = _waited_ms(clock.since_ms(clock.full_ms), now_ms, interval)
    work = _work(measured)
    return (
        OptimizingRule(
            OptimizingType.FULL,
            property_of("full_interval_ms"),
            f"time since the last full, with {work} delete files or files to merge",
            waited,
            interval,
            fired=work > 0 and 0 <= interval < waited,
            unit=RuleUnit.MILLISECONDS,
        ),
    )


def _small(measured: MeasuredPartition) -> int:
    """What the minor rules count."""
    return measured.fragments.files + measured.equality_deletes.files


def _work(measured: MeasuredPartition) -> int:
    """What the full rule counts: any of it is enough once the interval has passed."""
    return (
        measured.any_deletes
        + max(0, measured.fragments.files - 1)
        + max(0, measured.undersized.files - 1)
        + measured.rewrite.files
        + measured.laden.files
    )


def _waited_ms(since_ms: int | None, now_ms: int, interval_ms: int) -> int:
    """Milliseconds since then; when that never was, one more than the interval requires."""
    return max(interval_ms, -1) + 1 if since_ms is None else now_ms - since_ms


def _is_within_mse_tolerance(measured: MeasuredPartition, settings: OptimizingSettings) -> bool:
    """Whether `evaluation.file-size.mse-tolerance` leaves the partition alone.

    It does when the files fall little short of a sufficient size, unless deletes apply to them.
    """
    return not measured.any_deletes and measured.size_error < settings.mse_tolerance_bytes**2
