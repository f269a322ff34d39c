"""FieldMapper and Filter: which fields go on, under which names and in which order.

Both name fields exactly, as SeaTunnel does, and say which there are when one is missing.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as f

from headrace.errors import Refused


class FieldMapperTransform:
    """Only the mapped fields, in the order of the mapping."""

    has_conditions = False

    def __init__(self, name: str, mapping: Mapping[str, str]) -> None:
        self.name, self._mapping = name, mapping

    def __call__(
        self,
        session: SparkSession,  # noqa: ARG002
        inputs: Mapping[str, DataFrame],
        *,
        now_ms: int,  # noqa: ARG002
    ) -> DataFrame:
        frame = _one(self.name, inputs)
        _check_there(self.name, self._mapping, frame)
        return frame.select(*(_field(old).alias(new) for old, new in self._mapping.items()))


class FilterTransform:
    """Only the fields to include, in the order they are named; or all but those to exclude."""

    has_conditions = False

    def __init__(self, name: str, *, include: Sequence[str], exclude: Sequence[str]) -> None:
        self.name, self._include, self._exclude = name, include, exclude

    def __call__(
        self,
        session: SparkSession,  # noqa: ARG002
        inputs: Mapping[str, DataFrame],
        *,
        now_ms: int,  # noqa: ARG002
    ) -> DataFrame:
        frame = _one(self.name, inputs)
        _check_there(self.name, (*self._include, *self._exclude), frame)
        kept = self._include or [name for name in frame.columns if name not in self._exclude]
        if not kept:
            raise Refused(f"transform {self.name}: no field is left; exclude fewer")
        return frame.select(*(_field(name) for name in kept))


def _one(name: str, inputs: Mapping[str, DataFrame]) -> DataFrame:
    """The rows of all inputs, which then must have the same fields."""
    (first, frame), *rest = inputs.items()
    for table, other in rest:
        if sorted(other.columns) != sorted(frame.columns):
            raise Refused(
                f"transform {name}: tables {first!r} and {table!r} have different fields; "
                "give each a transform of its own"
            )
        frame = frame.unionByName(other)
    return frame


def _check_there(name: str, wanted: Iterable[str], frame: DataFrame) -> None:
    there = frame.columns
    for field in wanted:
        if field not in there:
            raise Refused(f"transform {name}: there is no field {field!r}; {_known(there)}")
        if there.count(field) > 1:
            raise Refused(
                f"transform {name}: {there.count(field)} fields are called {field!r}; "
                "rename them where they are made"
            )


def _known(fields: Sequence[str]) -> str:
    return f"there are {', '.join(map(repr, fields))}"


def _field(name: str) -> Column:
    """By its whole name, dots and backticks included."""
    return f.col("`" + name.replace("`", "``") + "`")
