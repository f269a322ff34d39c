"""How a table wants to be optimized: Amoro's property names and defaults, so that its users' tables
mean the same here.

A property that can't be read is a flaw of that table, shown with what was expected, and the default
holds for it: one misspelt number must not stop a table, let alone a catalog. A duration is a number
of milliseconds as in Amoro, of any size, or has a unit: `30d`, `90min`. `self-optimizing.filter` is
kept as text; whoever reads the table applies it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from headrace.model.tables.properties import (
    Flaw,
    Property,
    boolean,
    duration_ms,
    fraction,
    optional_text,
    size,
    text,
    whole,
)


@dataclass(frozen=True, slots=True)
class OptimizingSettings:
    enabled: bool = True
    group: str = "default"
    quota: float = 0.5  # up to 1: that part of the group's threads; above: so many threads
    target_size_bytes: int = 134_217_728
    max_task_size_bytes: int = 134_217_728
    max_file_count: int = 10_000  # data files that one bin may read
    fragment_ratio: int = 8
    min_target_size_ratio: float = 0.75
    minor_file_count: int = 12
    minor_interval_ms: int = 3_600_000  # negative: never by time alone
    duplicate_ratio: float = 0.1
    full_interval_ms: int = -1  # negative: never
    full_rewrite_all_files: bool = True
    filter: str | None = None
    execute_retries: int = 5
    allow_partial_commit: bool = False
    min_plan_interval_ms: int = 60_000
    fallback_interval_ms: int = -1  # negative: the summary alone never decides
    mse_tolerance_bytes: int = 0
    refresh_max_interval_ms: int = 0  # 0: the evaluation interval does not adapt
    refresh_step_ms: int = 30_000
    open_file_cost_bytes: int = 4_194_304
    # By name of a property that somebody has set: who. "table", "catalog" or "group".
    set_by: Mapping[str, str] = field(default_factory=dict[str, str], compare=False)

    @property
    def fragment_bytes(self) -> int:
        """At most this: a fragment."""
        return self.target_size_bytes // self.fragment_ratio

    @property
    def min_target_bytes(self) -> int:
        """At most this, and no fragment: undersized. Above: it has reached its size."""
        return int(self.target_size_bytes * self.min_target_size_ratio)

    @property
    def task_bytes(self) -> int:
        """What one task may read: Amoro's bin weight, deletes included."""
        return max(self.target_size_bytes, self.max_task_size_bytes)

    @classmethod
    def read(
        cls,
        properties: Mapping[str, str],
        defaults: Mapping[str, str] | None = None,
        groups: Mapping[str, Mapping[str, str]] | None = None,
    ) -> tuple[OptimizingSettings, list[Flaw]]:
        """The settings of a table with these properties, and what could not be read.

        `defaults` are properties that the catalog gives to its tables, `groups` those that each
        group gives to its own. A flaw in the table's own falls back to the catalog's, a flaw in
        these to the group's, and then to what is built in.
        """
        flaws: list[Flaw] = []
        found: dict[str, object] = {}
        set_by: dict[str, str] = {}
        layers = _layers(properties, defaults or {}, groups or {})
        built_in = cls()
        for prop in PROPERTIES:
            value, known = getattr(built_in, prop.field), len(flaws)
            for source, layer in layers:
                value = prop.read(layer, value, source, flaws)
                if prop.name in layer and len(flaws) == known:
                    set_by[prop.name] = source
                known = len(flaws)
            found[prop.field] = value
        found["set_by"] = set_by
        settings = cls(**found)  # pyright: ignore[reportArgumentType]  # each by its own parser
        return settings, [*flaws, *_at_odds(settings)]


PROPERTIES: Sequence[Property] = (
    Property("self-optimizing.enabled", "enabled", boolean()),
    Property("self-optimizing.group", "group", text()),
    Property("self-optimizing.quota", "quota", fraction(above=0)),
    Property("self-optimizing.target-size", "target_size_bytes", size()),
    Property("self-optimizing.max-task-size-bytes", "max_task_size_bytes", size()),
    Property("self-optimizing.max-file-count", "max_file_count", whole(least=2)),
    Property("self-optimizing.fragment-ratio", "fragment_ratio", whole(least=1)),
    Property(
        "self-optimizing.min-target-size-ratio",
        "min_target_size_ratio",
        fraction(above=0, most=1),
    ),
    Property("self-optimizing.minor.trigger.file-count", "minor_file_count", whole(least=1)),
    Property("self-optimizing.minor.trigger.interval", "minor_interval_ms", duration_ms()),
    Property("self-optimizing.major.trigger.duplicate-ratio", "duplicate_ratio", fraction(least=0)),
    Property("self-optimizing.full.trigger.interval", "full_interval_ms", duration_ms()),
    Property("self-optimizing.full.rewrite-all-files", "full_rewrite_all_files", boolean()),
    Property("self-optimizing.filter", "filter", optional_text()),
    Property("self-optimizing.execute.num-retries", "execute_retries", whole(least=0)),
    Property("self-optimizing.allow-partial-commit", "allow_partial_commit", boolean()),
    Property("self-optimizing.min-plan-interval", "min_plan_interval_ms", duration_ms()),
    Property("self-optimizing.evaluation.fallback-interval", "fallback_interval_ms", duration_ms()),
    Property(
        "self-optimizing.evaluation.file-size.mse-tolerance",
        "mse_tolerance_bytes",
        whole(least=0),
    ),
    Property(
        "self-optimizing.refresh-table.adaptive.max-interval-ms",
        "refresh_max_interval_ms",
        duration_ms(),
    ),
    Property(
        "self-optimizing.refresh-table.adaptive.increase-step-ms",
        "refresh_step_ms",
        duration_ms(),
    ),
    Property("read.split.open-file-cost", "open_file_cost_bytes", whole(least=0)),
)


def property_of(field: str) -> str:
    """The name under which a user sets this field, for whoever explains a decision by it."""
    return next(prop.name for prop in PROPERTIES if prop.field == field)


def _layers(
    properties: Mapping[str, str],
    defaults: Mapping[str, str],
    groups: Mapping[str, Mapping[str, str]],
) -> Sequence[tuple[str, Mapping[str, str]]]:
    """Who may set a property, the least heard first. Table and catalog alone say which group."""
    own = (("catalog", defaults), ("table", properties))
    group = next(prop for prop in PROPERTIES if prop.field == "group")
    name: object = OptimizingSettings().group
    for source, layer in own:
        name = group.read(layer, name, source, [])
    return (("group", groups.get(str(name), {})), *own)


def _at_odds(settings: OptimizingSettings) -> Sequence[Flaw]:
    """Readable, and still not what anybody wants; used as they stand."""
    if settings.min_target_bytes <= settings.target_size_bytes - settings.fragment_bytes:
        return ()
    most = 1 - 1 / settings.fragment_ratio
    return (
        Flaw(
            name=property_of("min_target_size_ratio"),
            value=str(settings.min_target_size_ratio),
            expected=f"at most {most:g}, or a file one fragment short of the target is undersized",
            used=str(settings.min_target_size_ratio),
            source="table",
        ),
    )
