"""Optimizing settings of a table: Amoro's property names and defaults, and how they are parsed.

Tables of Amoro's users mean the same here. Properties are text that anybody may have set, so each
is read by a parser that knows what it expects, says so, and never raises. A property that can't be
read is a flaw of that table, shown with what was expected, and the default holds for it: one
misspelt number must not stop a table, let alone a catalog.

A duration is a number of milliseconds as in Amoro, of any size, or has a unit: `30d`, `90min`.
`self-optimizing.filter` is kept as text, and applied by whoever reads the table.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

INTEGER_MAX = 2**63 - 1  # the largest number that a column of the store holds
# Longer ones are cut to this, which never comes to pass and can still be added to a time. Users
# write Long.MAX for "never".
DURATION_MAX_MS = 2**62
_DURATION = re.compile(r"(-?\d{1,19})\s*(ms|s|min|h|d)?", re.ASCII | re.IGNORECASE)
_WHOLE = re.compile(r"[+-]?\d{1,19}", re.ASCII)
_UNITS_MS: Mapping[str, int] = {
    "ms": 1,
    "s": 1_000,
    "min": 60_000,
    "h": 3_600_000,
    "d": 86_400_000,
}


@dataclass(frozen=True, slots=True)
class Flaw:
    """A property that could not be read, or that conflicts with another."""

    name: str
    value: str
    expected: str
    used: str  # the value that is used instead, as it would be written
    source: str  # where it is set: "table", "catalog" or "group"

    def __str__(self) -> str:
        return (
            f"{self.source} property {self.name} is {self.value!r}, expected {self.expected}; "
            f"{self.used} is used. Set it to such a value, or remove it"
        )


@dataclass(frozen=True, slots=True)
class Parser:
    """Reads one kind of value; `read` returns None for a text that it does not expect."""

    expected: str
    read: Callable[[str], object | None]


@dataclass(frozen=True, slots=True)
class Property:
    """A table property, and the field of `OptimizingSettings` that it sets."""

    name: str
    field: str
    parser: Parser

    def read(
        self, properties: Mapping[str, str], default: object, source: str, flaws: list[Flaw]
    ) -> object:
        """The value set in `properties`, or the default; a value that can't be read adds a flaw."""
        value = properties.get(self.name)
        if value is None:
            return default
        parsed = self.parser.read(value.strip())
        if parsed is not None:
            return parsed
        flaws.append(Flaw(self.name, value, self.parser.expected, _written(default), source))
        return default


def boolean() -> Parser:
    return Parser("true or false", lambda text: {"true": True, "false": False}.get(text.lower()))


def text() -> Parser:
    return Parser("a name", lambda value: value or None)


def optional_text() -> Parser:
    """Any text. An empty predicate is refused by whoever applies it, not here."""
    return Parser("a predicate", lambda value: value)


def whole(*, least: int) -> Parser:
    def read(value: str) -> int | None:
        if not _WHOLE.fullmatch(value):
            return None
        number = int(value)
        return number if least <= number <= INTEGER_MAX else None

    return Parser(f"a whole number from {least} on", read)


def size() -> Parser:
    return Parser("a number of bytes, at least 1", whole(least=1).read)


def fraction(
    *, least: float = -math.inf, above: float = -math.inf, most: float = math.inf
) -> Parser:
    def read(value: str) -> float | None:
        try:
            number = float(value)
        except ValueError:
            return None
        return number if _within(number) else None

    def _within(number: float) -> bool:
        return math.isfinite(number) and number >= least and number > above and number <= most

    bounds = [
        f"{label} {bound:g}"
        for label, bound in (("at least", least), ("above", above), ("at most", most))
        if math.isfinite(bound)
    ]
    return Parser(" ".join(["a number", " and ".join(bounds)]), read)


def duration_ms() -> Parser:
    """Milliseconds; any negative number means "never", and becomes -1."""

    def read(value: str) -> int | None:
        match = _DURATION.fullmatch(value)
        if match is None:
            return None
        number = int(match[1]) * _UNITS_MS[(match[2] or "ms").lower()]
        return min(max(number, -1), DURATION_MAX_MS) if number <= INTEGER_MAX else None

    return Parser("milliseconds, or a number with ms, s, min, h or d; -1 for never", read)


def _written(value: object) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return "nothing" if value is None else str(value)


@dataclass(frozen=True, slots=True)
class OptimizingSettings:
    """How a table is to be optimized."""

    enabled: bool = True
    group: str = "default"
    quota: float = 0.5  # up to 1: a part of the group's threads; above 1: a number of threads
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
    # Who has set a property, by its name: "table", "catalog" or "group". Others are built in.
    set_by: Mapping[str, str] = field(default_factory=dict[str, str], compare=False)

    @property
    def fragment_bytes(self) -> int:
        """A file of at most this size is a fragment."""
        return self.target_size_bytes // self.fragment_ratio

    @property
    def min_target_bytes(self) -> int:
        """A file above this has reached its size; up to it, it is undersized or a fragment."""
        return int(self.target_size_bytes * self.min_target_size_ratio)

    @property
    def task_bytes(self) -> int:
        """What one task may read, deletes included: Amoro's bin weight."""
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
        group gives to its own. Where the table's own value can't be read, the catalog's holds;
        where that can't be read, the group's, and then what is built in.
        """
        flaws: list[Flaw] = []
        values: dict[str, object] = {}
        set_by: dict[str, str] = {}
        layers = _layers(properties, defaults or {}, groups or {})
        built_in = cls()
        for prop in PROPERTIES:
            value, flaws_before = getattr(built_in, prop.field), len(flaws)
            for source, layer in layers:
                value = prop.read(layer, value, source, flaws)
                if prop.name in layer and len(flaws) == flaws_before:
                    set_by[prop.name] = source
                flaws_before = len(flaws)
            values[prop.field] = value
        values["set_by"] = set_by
        settings = cls(**values)  # pyright: ignore[reportArgumentType]  # each by its own parser
        return settings, [*flaws, *_conflicts(settings)]


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
    """The name of the property that sets this field, to explain a decision by it."""
    return next(prop.name for prop in PROPERTIES if prop.field == field)


def _layers(
    properties: Mapping[str, str],
    defaults: Mapping[str, str],
    groups: Mapping[str, Mapping[str, str]],
) -> Sequence[tuple[str, Mapping[str, str]]]:
    """Who may set a property, in order of increasing precedence.

    Only the table and its catalog decide which group the table is in.
    """
    own = (("catalog", defaults), ("table", properties))
    group = next(prop for prop in PROPERTIES if prop.field == "group")
    name: object = OptimizingSettings().group
    for source, layer in own:
        name = group.read(layer, name, source, [])
    return (("group", groups.get(str(name), {})), *own)


def _conflicts(settings: OptimizingSettings) -> Sequence[Flaw]:
    """Settings that can be read but conflict with each other; they are used as they are."""
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
