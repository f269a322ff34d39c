"""Values written in a job file, as the Python values that Spark takes for a column type."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, date, datetime, time
from decimal import Decimal, InvalidOperation
from typing import Any, assert_never, cast

from headrace.errors import Refused
from headrace.jobfile.types import (
    ArrayType,
    ColumnType,
    DecimalType,
    MapType,
    PlainType,
    RowType,
    VectorType,
)

_NOW_WORDS = frozenset({"CURRENT_DATE", "CURRENT_TIME", "CURRENT_TIMESTAMP"})


def to_python(value: Any, of: ColumnType, *, name: str, now_ms: int) -> Any:
    """`value` as a column of this type holds it. Raises `Refused`, which names the column."""
    if value is None:
        return None
    try:
        return _convert(value, of, name=name, now_ms=now_ms)
    except (ValueError, TypeError, InvalidOperation, binascii.Error) as error:
        kind = of.name if isinstance(of, PlainType | VectorType) else str(of)
        raise Refused(f"column {name!r}: {value!r} is no {kind}") from error


def _convert(value: Any, of: ColumnType, *, name: str, now_ms: int) -> Any:
    def inner(item: Any, kind: ColumnType, key: object) -> Any:
        return to_python(item, kind, name=f"{name}.{key}", now_ms=now_ms)

    match of:
        case PlainType():
            return _PLAIN[of.name](_at_this_time(value, of.name, now_ms))
        case DecimalType():
            return round(Decimal(str(value)), of.scale)
        case ArrayType():
            return [inner(item, of.element, at) for at, item in enumerate(_sequence(value))]
        case MapType():
            items = cast("Mapping[Any, Any]", _mapping(value)).items()
            return {inner(key, of.key, "key"): inner(item, of.value, key) for key, item in items}
        case RowType():
            return tuple(
                inner(item, kind, key)
                for (key, kind), item in zip(of.fields, _fields(value, of), strict=True)
            )
        case VectorType():
            raise TypeError(of.name)
    assert_never(of)


def _fields(value: Any, of: RowType) -> Sequence[Any]:
    if isinstance(value, Mapping):
        given = cast("Mapping[str, Any]", value)
        return [given.get(key) for key, _ in of.fields]
    return _sequence(value)


def _sequence(value: Any) -> Sequence[Any]:
    if not isinstance(value, list):
        raise TypeError
    return cast("list[Any]", value)


def _mapping(value: Any) -> Any:
    if not isinstance(value, Mapping):
        raise TypeError
    return cast("Mapping[Any, Any]", value)


def _at_this_time(value: Any, kind: str, now_ms: int) -> Any:
    """The time in place of a word that asks for it."""
    if not (isinstance(value, str) and value.upper() in _NOW_WORDS):
        return value
    now = datetime.fromtimestamp(now_ms / 1000, tz=UTC).replace(tzinfo=None)
    if kind == "date":
        return now.date().isoformat()
    return now.time().isoformat("seconds") if kind == "time" else now.isoformat(" ", "seconds")


def _boolean(value: Any) -> bool:
    if str(value).lower() not in {"true", "false"}:
        raise ValueError
    return str(value).lower() == "true"


def _integer(bits: int) -> Callable[[Any], int]:
    def convert(value: Any) -> int:
        number = int(str(value))
        if not -(1 << (bits - 1)) <= number < 1 << (bits - 1):
            raise ValueError
        return number

    return convert


def _instant(value: Any) -> datetime:
    found = datetime.fromisoformat(str(value))
    return found if found.tzinfo else found.replace(tzinfo=UTC)


def _text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


_PLAIN: dict[str, Callable[[Any], Any]] = {
    "string": _text,
    "boolean": _boolean,
    "tinyint": _integer(8),
    "smallint": _integer(16),
    "int": _integer(32),
    "bigint": _integer(64),
    "float": float,
    "double": float,
    "bytes": lambda value: base64.b64decode(str(value), validate=True),
    "date": lambda value: date.fromisoformat(str(value)),
    "time": lambda value: time.fromisoformat(str(value)).isoformat("seconds"),
    "timestamp": lambda value: datetime.fromisoformat(str(value)).replace(tzinfo=None),
    "timestamp_tz": _instant,
    "null": lambda _value: None,
}
