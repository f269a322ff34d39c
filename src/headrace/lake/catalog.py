"""A catalog and the tables in it, by their names: what every format of tables is asked with."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from headrace.exactly_once.target import TargetMissing

Namespace = tuple[str, ...]
OnProgress = Callable[[], None]  # called for each page, as a sign of life of a long scan


@dataclass(frozen=True, slots=True)
class CatalogConfig:
    """The name of a catalog, and how to open it."""

    name: str
    properties: Mapping[str, str] = field(repr=False)  # may hold passwords
    hadoop: Mapping[str, str] = field(default_factory=dict[str, str], repr=False)
    set_by: str = "iceberg.catalog.config"  # for people: where to mend its properties

    @property
    def fingerprint(self) -> str:
        """A hash, equal for equal names and settings."""
        parts = [self.name, sorted(self.properties.items()), sorted(self.hadoop.items())]
        return hashlib.sha256(json.dumps(parts).encode()).hexdigest()


@dataclass(frozen=True, slots=True)
class TableRef:
    """A table by its name in its catalog, whether it exists or not."""

    catalog: CatalogConfig
    namespace: tuple[str, ...]
    name: str

    def __str__(self) -> str:
        return ".".join((self.catalog.name, *self.namespace, self.name))


@dataclass(frozen=True, slots=True)
class TableListing:
    """The tables of a catalog, as far as its namespaces could be listed."""

    tables: Mapping[Namespace, Sequence[str]]  # the wanted ones, for every namespace listed
    others: int = 0  # how many tables were not wanted
    failed: Mapping[Namespace, str] = field(default_factory=dict[Namespace, str])  # the reasons


class TableMissing(TargetMissing):
    """The catalog has no table of this name."""

    def __init__(self, ref: TableRef) -> None:
        self.ref = ref
        super().__init__(f"there is no table {ref}; create it, or let the sink create it")


def ignore_progress() -> None:
    """The `OnProgress` for callers that nobody waits for."""
