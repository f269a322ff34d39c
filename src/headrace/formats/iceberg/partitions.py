"""What a partition is called: Iceberg's own path of it, made of values instead of a JVM call each.

Pure. A table may have 100,000 partitions, and asking the JVM for each name would take minutes.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import date, timedelta
from typing import Any
from urllib.parse import quote

from headrace.model.tables.files import Partition

_EPOCH = date(1970, 1, 1)
_MONTHS = 12
_HOURS = 24
_CYCLE_YEARS, _CYCLE_DAYS = 400, 146_097  # the calendar repeats itself; Python's ends with 9999
_NULL_TEXT = "%6Eull"  # of the text `null`, which Iceberg's own path does not tell from no value

Specs = Mapping[int, Sequence[tuple[str, str]]]  # by id: the name and the transform of each field


def specs_of(metadata: Mapping[str, Any]) -> Specs:
    """From a table's metadata, as its file says it."""
    return {
        int(spec["spec-id"]): [(field["name"], field["transform"]) for field in spec["fields"]]
        for spec in metadata["partition-specs"]
    }


def forgotten_specs(metadata: Mapping[str, Any]) -> frozenset[int]:
    """Specs by a column that was dropped: Iceberg no longer reads the values of their partitions,
    and so does not find their files again when they are to be replaced."""
    current = metadata.get("current-schema-id")
    schemas = metadata.get("schemas", ())
    there = {each for one in schemas if one["schema-id"] == current for each in _ids(one)}
    return frozenset(
        int(spec["spec-id"])
        for spec in metadata["partition-specs"]
        if any(
            field["transform"] != "void" and not there.issuperset(_sources(field))
            for field in spec["fields"]
        )
    )


def _sources(field: Mapping[str, Any]) -> Sequence[int]:
    """Of a partition's field; version 3 allows several."""
    return field.get("source-ids") or (field["source-id"],)


def _ids(struct: Mapping[str, Any]) -> Iterator[int]:
    """Of all fields that a partition may be made of: those of structs in structs, too."""
    for field in struct["fields"]:
        yield field["id"]
        if isinstance(field["type"], Mapping) and "fields" in field["type"]:
            yield from _ids(field["type"])


class Partitions:
    """Makes each partition once, so that all files in it share one value."""

    def __init__(self, specs: Specs) -> None:
        self._specs = specs
        self._made: dict[tuple[Any, ...], Partition] = {}

    def of(self, record: Mapping[str, Any]) -> Partition:
        """Of a file, as Iceberg's JSON tells it."""
        spec, values = int(record["spec-id"]), record.get("partition", ())
        key = (spec, repr(values))  # by value alone -0.0 and 0.0 would be one partition
        found = self._made.get(key)
        if found is None:
            found = self._made[key] = Partition(spec, partition_path(self._specs[spec], values))
        return found


def partition_path(fields: Sequence[tuple[str, str]], values: Sequence[Any]) -> str:
    return "/".join(
        f"{_encoded(name)}={_NULL_TEXT if value == 'null' else _encoded(_told(transform, value))}"
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
            return _hour(value)
        case _:
            return str(value)


def _hour(value: int) -> str:
    """Any that a timestamp of Iceberg may have: one year beyond Python's must not end a scan."""
    days, hour = divmod(value, _HOURS)
    cycles, days = divmod(days, _CYCLE_DAYS)
    day = _EPOCH + timedelta(days=days)
    return f"{day.year + cycles * _CYCLE_YEARS:04d}-{day:%m-%d}-{hour:02d}"


def _encoded(text: str) -> str:
    return quote(text, safe="* ").replace(" ", "+").replace("~", "%7E")  # as Java does it
