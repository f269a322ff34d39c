"""Save modes: what a sink does to its target before the first row of a job.

`schema_save_mode` is about the table (or folder), `data_save_mode` about what is in it. Creating
a missing table and appending to an existing one are idempotent. Everything else must be done
exactly once, as epoch 0; `SaveModes.opens` says whether a sink needs that epoch.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from pydantic import JsonValue

from headrace.plugins.options import Kind, Option


class SchemaMode(StrEnum):
    RECREATE = "RECREATE_SCHEMA"
    CREATE = "CREATE_SCHEMA_WHEN_NOT_EXIST"
    ERROR = "ERROR_WHEN_SCHEMA_NOT_EXIST"
    IGNORE = "IGNORE"


class DataMode(StrEnum):
    DROP = "DROP_DATA"
    APPEND = "APPEND_DATA"
    CUSTOM = "CUSTOM_PROCESSING"
    ERROR = "ERROR_WHEN_DATA_EXISTS"


# Of a sink that builds all of them; a sink without statements of its user's builds the second.
ALL_SAVE_MODES: tuple[SchemaMode | DataMode, ...] = (*SchemaMode, *DataMode)
SAVE_MODES_WITHOUT_CUSTOM = tuple(mode for mode in ALL_SAVE_MODES if mode is not DataMode.CUSTOM)
_IDEMPOTENT = frozenset({SchemaMode.CREATE, SchemaMode.IGNORE})


@dataclass(frozen=True, slots=True)
class SaveModes:
    """The save modes of one sink."""

    schema: SchemaMode
    data: DataMode

    @property
    def opens(self) -> bool:
        """Whether they need epoch 0: more than idempotent save modes."""
        return self.schema not in _IDEMPOTENT or self.data is not DataMode.APPEND


def schema_mode(options: Mapping[str, JsonValue]) -> SchemaMode:
    return SchemaMode(str(options.get("schema_save_mode") or SchemaMode.CREATE))


def data_mode(options: Mapping[str, JsonValue]) -> DataMode:
    return DataMode(str(options.get("data_save_mode") or DataMode.APPEND))


def save_mode_flaw(options: Mapping[str, JsonValue]) -> str | None:
    """What is wrong with the combination of the save modes and `custom_sql`, or None."""
    custom = data_mode(options) is DataMode.CUSTOM
    has_sql = bool(str(options.get("custom_sql") or "").strip())
    if custom and not has_sql:
        return f"data_save_mode = {DataMode.CUSTOM} needs the option 'custom_sql'"
    if has_sql and not custom:
        return f"option 'custom_sql' needs data_save_mode = {DataMode.CUSTOM}"
    return None


def schema_save_mode(doc: str) -> Option:
    return Option(
        "schema_save_mode",
        Kind.STRING,
        SchemaMode.CREATE.value,
        choices=tuple(mode.value for mode in SchemaMode),
        doc=doc,
    )


def data_save_mode(doc: str, *, custom: bool = True) -> Option:
    """`custom`: whether CUSTOM_PROCESSING is built for this sink."""
    choices = tuple(mode.value for mode in DataMode)
    return Option(
        "data_save_mode",
        Kind.STRING,
        DataMode.APPEND.value,
        choices=choices,
        supported=None if custom else tuple(c for c in choices if c != DataMode.CUSTOM),
        doc=doc,
    )
