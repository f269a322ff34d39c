"""The options of one plug-in of a job, checked, with defaults and secrets, read by their types.

`Descriptor.read_options` makes a plug-in's own frozen options from these, once, so that nothing
after it meets a JSON value or the name of an option.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import TypeVar, cast

from pydantic import JsonValue

from headrace.errors import Refused
from headrace.plugins.save_modes import SaveModes, data_mode, schema_mode
from headrace.plugins.schema import TableSchema, parse_schema

T = TypeVar("T")


class ResolvedOptions:
    """Every declared option by its name; one without value and default is None.

    A getter raises `Refused` for a value of another type. The checks of a job file let none
    through, so only a specification that was written by hand can hold one.
    """

    def __init__(self, values: Mapping[str, JsonValue]) -> None:
        self._values = values

    def value(self, name: str) -> JsonValue:
        """The value as it is, e.g. of an option of `Kind.JSON`."""
        return self._values.get(name)

    def text(self, name: str) -> str:
        return _found(name, self.optional_text(name))

    def optional_text(self, name: str) -> str | None:
        value = self.value(name)
        if value is None or isinstance(value, str):
            return value
        raise _wrong(name, "a text", value)

    def integer(self, name: str) -> int:
        return _found(name, self.optional_integer(name))

    def optional_integer(self, name: str) -> int | None:
        value = self.value(name)
        if value is None or (isinstance(value, int) and not isinstance(value, bool)):
            return value
        raise _wrong(name, "a whole number", value)

    def optional_number(self, name: str) -> float | None:
        value = self.value(name)
        if value is None or (isinstance(value, int | float) and not isinstance(value, bool)):
            return value
        raise _wrong(name, "a number", value)

    def flag(self, name: str) -> bool:
        """Whether the option is set to true; missing, it is false."""
        value = self.value(name)
        if value is None or isinstance(value, bool):
            return bool(value)
        raise _wrong(name, "true or false", value)

    def items(self, name: str) -> Sequence[JsonValue]:
        """The items of a list; empty when it is missing."""
        value = self.value(name)
        if value is None or isinstance(value, list):
            return tuple(value or ())
        raise _wrong(name, "a list", value)

    def texts(self, name: str) -> tuple[str, ...]:
        """The items of a list of texts; empty when it is missing."""
        return tuple(str(item) for item in self.items(name))

    def properties(self, name: str) -> Mapping[str, str]:
        """A map of texts; empty when it is missing. A truth value is `true` or `false`."""
        value = self.value(name)
        if value is not None and not isinstance(value, dict):
            raise _wrong(name, "an object", value)
        found = cast("Mapping[str, JsonValue]", value or {})
        return MappingProxyType({key: _property(item) for key, item in found.items()})

    def schema(self, name: str) -> TableSchema | None:
        """A schema block, parsed; None when it is missing."""
        value = self.value(name)
        return parse_schema(value) if value else None

    def save_modes(self) -> SaveModes:
        return SaveModes(schema_mode(self._values), data_mode(self._values))


def _property(value: JsonValue) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _found(name: str, value: T | None) -> T:
    if value is None:
        raise Refused(f"option {name!r} is missing")
    return value


def _wrong(name: str, kind: str, value: JsonValue) -> Refused:
    return Refused(f"option {name!r} must be {kind}, and is a {type(value).__name__}")
