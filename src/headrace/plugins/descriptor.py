"""`Descriptor`: all that is known of a source, sink or transform without running it.

It is one object beside the plug-in's code, which imports neither Spark nor that code. So the reader
of job files, coordinators and workers go by the same descriptor: the first two check a job and
decide by its capabilities, and only a worker resolves `make`, the dotted name of the class.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Generic, TypeVar

from pydantic import JsonValue

from headrace.errors import Refused
from headrace.plugins.jars import JarCoordinates
from headrace.plugins.options import OptionSet
from headrace.plugins.resolved_options import ResolvedOptions
from headrace.plugins.row_kinds import INSERT_ONLY, KindTreatment, RowFlow, RowKind
from headrace.plugins.save_modes import DataMode, SaveModes, SchemaMode
from headrace.plugins.syntax_tree import ROLES, Role

# Options of the job's graph: they become inputs and outputs, and no plug-in reads them.
WIRING = frozenset({"plugin_input", "plugin_output"})
# What identifies a table or folder. One whose key begins with another's lies within it.
TargetKey = tuple[str, ...]
O = TypeVar("O")  # noqa: E741 - the plug-in's own options
_NAME = re.compile(r"[A-Za-z][\w-]*", re.ASCII)
_MAKE = re.compile(r"[\w.]+:\w+")


class Guarantee(StrEnum):
    """What a sink promises when any process dies at any instant; of a source: the same for what
    it gives to sinks that promise it."""

    EXACTLY_ONCE = "exactly once"
    AT_LEAST_ONCE = "at least once"
    NONE = "none"


@dataclass(frozen=True, slots=True, kw_only=True)
class Capabilities:
    """What a plug-in can do, as data. A new field needs a default that says "no"."""

    guarantee: Guarantee | None = None  # None: a transform keeps what its pipeline promises
    how: str = ""  # how the guarantee is kept, for the page of guarantees
    bounded: bool = True  # of a source: it may come to an end, as a batch job needs it
    unbounded: bool = True  # whether a streaming job, which does not end, can use it
    repeatable: bool = True  # of a source: a slice gives the same rows again, or is refused (E5)
    row_kinds: frozenset[RowKind] = INSERT_ONLY  # that a source may give, or a sink takes
    treats_kinds: KindTreatment = KindTreatment.REFUSES  # of a transform: what becomes of the kinds
    upsert: bool = False  # of a sink: rows replace those of the same key
    multi_table: bool = False  # rows of several tables in one frame
    save_modes: tuple[SchemaMode | DataMode, ...] = ()  # of a sink: those that are built
    schema_evolution: bool = False  # of a sink: its target follows the columns of the rows

    def as_json(self) -> dict[str, JsonValue]:
        return {
            "guarantee": None if self.guarantee is None else self.guarantee.value,
            "bounded": self.bounded,
            "unbounded": self.unbounded,
            "repeatable": self.repeatable,
            "row_kinds": [kind.value for kind in RowKind if kind in self.row_kinds],
            "treats_kinds": self.treats_kinds.name,
            "upsert": self.upsert,
            "multi_table": self.multi_table,
            "save_modes": [mode.value for mode in self.save_modes],
            "schema_evolution": self.schema_evolution,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Descriptor(Generic[O]):
    """A plug-in's description of itself. `O` is the class of its options."""

    name: str  # as job files call it; found whatever its case
    role: Role
    make: str  # "package.module:Class", called by workers as (name, options, setting)
    options: OptionSet
    read_options: Callable[[ResolvedOptions], O]
    doc: str = ""
    capabilities: Capabilities = field(default_factory=Capabilities)
    # Jars that its classes are in, which a worker fetches when a job first needs them.
    jars: tuple[JarCoordinates, ...] = ()
    # Which of them are needed with these options; missing: all.
    jars_for: Callable[[O], tuple[JarCoordinates, ...]] | None = None
    one_of: tuple[tuple[str, ...], ...] = ()  # of each group at least one option must be given
    # What is wrong with the combination of options that are each right by themselves, or None.
    flaw: Callable[[Mapping[str, JsonValue]], str | None] | None = None
    # The same for a streaming job only: what is wrong with the options there, or None.
    streaming_flaw: Callable[[Mapping[str, JsonValue]], str | None] | None = None
    # What identifies the table or folder that a sink writes to; missing: it has no target.
    target_key: Callable[[O], TargetKey | None] | None = None
    # Of a source whose options decide it: which kinds of rows it gives, and whether of several
    # tables; missing: whatever its capabilities name.
    flow: Callable[[Mapping[str, JsonValue]], RowFlow] | None = None
    # Of a transform that reads row kinds: what it gives when this comes; missing: the same.
    changes_flow: Callable[[Mapping[str, JsonValue], RowFlow], RowFlow] | None = None
    # The package that brings it, and its version. The catalog fills in what is missing.
    package: str = ""
    version: str = ""

    def __post_init__(self) -> None:
        if not _NAME.fullmatch(self.name):
            raise ValueError(f"{self.name!r} is no name of a plug-in; use letters, digits, - and _")
        if self.role not in ROLES:
            raise ValueError(f"{self.name}: {self.role!r} is no role; known are {', '.join(ROLES)}")
        if not _MAKE.fullmatch(self.make):
            raise ValueError(f"{self.name}: make = {self.make!r} must be package.module:Class")
        reads = self.capabilities.treats_kinds is KindTreatment.READS
        if self.changes_flow is not None and not reads:
            raise ValueError(f"{self.name}: changes_flow needs treats_kinds = KindTreatment.READS")

    @property
    def title(self) -> str:
        return f"{self.role} {self.name}"

    @property
    def brought_by(self) -> str:
        """The package, with its version, for people."""
        return f"{self.package} {self.version}".strip()

    @property
    def digest(self) -> str:
        """A SHA-256 of what a job can see of the plug-in: two programs whose digests are the same
        accept the same options, and mean the same by its capabilities."""
        seen = {
            "role": self.role,
            "name": self.name,
            "options": [option.as_json() for option in self.options.declared],
            "prefixes": sorted(self.options.prefixes),
            "one_of": [list(group) for group in self.one_of],
            "capabilities": self.capabilities.as_json(),
        }
        text = json.dumps(seen, sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(text.encode()).hexdigest()

    def resolve(self, given: Mapping[str, JsonValue]) -> dict[str, JsonValue]:
        """Every declared option with its value or default; None when it has neither."""
        declared = (option for option in self.options.declared if option.name not in WIRING)
        return {**{option.name: option.default for option in declared}, **given}

    def typed_options(self, given: Mapping[str, JsonValue]) -> O:
        """The plug-in's own options from those of a job, which are checked and have their secrets.
        Raises `Refused` for a value that no check would let through."""
        return self.read_options(ResolvedOptions(self.resolve(given)))

    def jars_of(self, given: Mapping[str, JsonValue]) -> tuple[JarCoordinates, ...]:
        """The jars that it needs with these options, which are checked and have their secrets."""
        if self.jars_for is None:
            return self.jars
        return self.jars_for(self.typed_options(given))

    def save_modes_of(self, given: Mapping[str, JsonValue]) -> SaveModes | None:
        """The save modes of a sink with these options; None: it has none, and options of the same
        names are its own. Raises `Refused` for a value that is no save mode."""
        if not self.capabilities.save_modes:
            return None
        try:
            return ResolvedOptions(self.resolve(given)).save_modes()
        except ValueError as error:
            raise Refused(f"{self.title}: {error}") from None

    def target_of(self, given: Mapping[str, JsonValue]) -> TargetKey | None:
        """What identifies the target of a sink with these options; None: it has none."""
        return None if self.target_key is None else self.target_key(self.typed_options(given))

    def source_flow(self, given: Mapping[str, JsonValue]) -> RowFlow:
        """What may come from a source with these options."""
        if self.flow is not None:
            return self.flow(given)
        return RowFlow(self.capabilities.row_kinds, self.capabilities.multi_table)

    def flow_after(self, given: Mapping[str, JsonValue], come: RowFlow) -> RowFlow:
        """What a transform with these options gives when `come` comes."""
        return come if self.changes_flow is None else self.changes_flow(given, come)


AnyDescriptor = Descriptor[Any]
