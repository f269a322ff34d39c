"""What a partition is called: Iceberg's own path of it, made of values instead of a JVM call each.

Pure. A table may have 100,000 partitions, and asking the JVM for each name would take minutes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any
from urllib.parse import quote

from headrace.model.tables.files import Partition

_EPOCH = datetime(1970, 1, 1)  # noqa: DTZ001 - Iceberg counts in UTC, and no time is compared
_MONTHS = 12

Specs = Mapping[int, Sequence[tuple[str, str]]]  # by id: the name and the transform of each field


def specs_of(metadata: Mapping[str, Any]) -> Specs:
    """From a table's metadata, as its file says it."""
    return {
        int(spec["spec-id"]): [(field["name"], field["transform"]) for field in spec["fields"]]
        for spec in metadata["partition-specs"]
    }


class Partitions:
    """Makes each partition once, so that all files in it share one value."""

    def __init__(self, specs: Specs) -> None:
        self._specs = specs
        self._made: dict[tuple[Any, ...], Partition] = {}

    def of(self, record: Mapping[str, Any]) -> Partition:
        """Of a file, as Iceberg's JSON tells it."""
        spec, values = int(record["spec-id"]), record.get("partition", ())
        key = (spec, *values)
        found = self._made.get(key)
        if found is None:
            found = self._made[key] = Partition(spec, partition_path(self._specs[spec], values))
        return found


def partition_path(fields: Sequence[tuple[str, str]], values: Sequence[Any]) -> str:
    return "/".join(
        f"{_encoded(name)}={_encoded(_told(transform, value))}"
        for (name, transform), value in zip(fields, values, strict=True)
    )


def _told(transform: str, value: Any) -> str:
    """As people read it. Days, dates and times are told so already, other spans are counted."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return str(value).lower()
    match transform:
        case "year":
            return f"{1970 + value:04d}"
        case "month":
            return f"{1970 + value // _MONTHS:04d}-{value % _MONTHS + 1:02d}"
        case "hour":
            return f"{_EPOCH + timedelta(hours=value):%Y-%m-%d-%H}"
        case _:
            return str(value)


def _encoded(text: str) -> str:
    return quote(text, safe="* ").replace(" ", "+").replace("~", "%7E")  # as Java does it
