"""Save modes: what a sink does to its target before the first row of a job.

`schema_save_mode` speaks of the table (or folder), `data_save_mode` of what is in it. Making a
table that is missing, and appending to one that is there, can be said twice without harm. All
else is done once, as epoch 0; whether a job has that epoch is decided here, from its options.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum

from pydantic import JsonValue

from headrace.jobfile.options import Kind, Option


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


_HARMLESS = frozenset({SchemaMode.CREATE, SchemaMode.IGNORE})


def schema_mode(options: Mapping[str, JsonValue]) -> SchemaMode:
    return SchemaMode(str(options.get("schema_save_mode") or SchemaMode.CREATE))


def data_mode(options: Mapping[str, JsonValue]) -> DataMode:
    return DataMode(str(options.get("data_save_mode") or DataMode.APPEND))


def opens(options: Mapping[str, JsonValue]) -> bool:
    """Whether a sink with these options has something to do in epoch 0."""
    return schema_mode(options) not in _HARMLESS or data_mode(options) is not DataMode.APPEND


def saving_flaw(options: Mapping[str, JsonValue]) -> str | None:
    """What is wrong with the save modes and `custom_sql`, taken together."""
    custom = data_mode(options) is DataMode.CUSTOM
    given = bool(str(options.get("custom_sql") or "").strip())
    if custom and not given:
        return f"data_save_mode = {DataMode.CUSTOM} needs the option 'custom_sql'"
    if given and not custom:
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
    """`custom`: whether CUSTOM_PROCESSING is built."""
    choices = tuple(mode.value for mode in DataMode)
    return Option(
        "data_save_mode",
        Kind.STRING,
        DataMode.APPEND.value,
        choices=choices,
        supported=None if custom else tuple(c for c in choices if c != DataMode.CUSTOM),
        doc=doc,
    )
