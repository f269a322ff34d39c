"""Frames as transforms see them: the union of the inputs, fields by their exact names.

Names of fields are matched exactly, as SeaTunnel does, and an error for a missing field names those
that exist.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql import types as spark

from headrace.errors import Refused


class FrameTransform(ABC):
    """A transform of the union of its inputs, row by row: each row goes on."""

    has_conditions = False
    name: str

    def __call__(
        self,
        session: SparkSession,  # noqa: ARG002
        inputs: Mapping[str, DataFrame],
        *,
        now_ms: int,  # noqa: ARG002
    ) -> DataFrame:
        return self.changed(union_of(self.name, inputs))

    @abstractmethod
    def changed(self, frame: DataFrame) -> DataFrame:
        """What it makes of a frame. Raises `Refused` for fields that are missing or don't fit."""
        ...


def union_of(name: str, inputs: Mapping[str, DataFrame]) -> DataFrame:
    """The union of all inputs. Raises `Refused` when their fields differ."""
    (first, frame), *rest = inputs.items()
    for table, other in rest:
        if sorted(other.columns) != sorted(frame.columns):
            raise Refused(
                f"transform {name}: tables {first!r} and {table!r} have different fields; "
                "give each a transform of its own"
            )
        frame = frame.unionByName(other)
    return frame


def check_fields_exist(name: str, wanted: Iterable[str], frame: DataFrame) -> None:
    fields = frame.columns
    for wanted_field in wanted:
        if wanted_field not in fields:
            raise Refused(
                f"transform {name}: there is no field {wanted_field!r}; {_known_fields(fields)}"
            )
        if (times := fields.count(wanted_field)) > 1:
            raise Refused(
                f"transform {name}: {times} fields are called {wanted_field!r}; "
                "rename them where they are made"
            )


def text_field(name: str, wanted: str, frame: DataFrame) -> Column:
    """A field that holds texts. Raises `Refused` when it is missing or of another type."""
    check_fields_exist(name, [wanted], frame)
    kind = type_of(wanted, frame)
    if not isinstance(kind, spark.StringType):
        raise Refused(
            f"transform {name}: field {wanted!r} must be a text, and is {kind.simpleString()}; "
            "cast it with Sql before"
        )
    return field(wanted)


def type_of(wanted: str, frame: DataFrame) -> spark.DataType:
    return frame.schema[frame.columns.index(wanted)].dataType


def with_fields(frame: DataFrame, made: Mapping[str, Column]) -> DataFrame:
    """The frame with fields that are made of it: one that exists is replaced in its place, the
    others follow at the end."""
    kept = [made[name].alias(name) if name in made else field(name) for name in frame.columns]
    added = [column.alias(name) for name, column in made.items() if name not in frame.columns]
    return frame.select(*kept, *added)


def field(name: str) -> Column:
    """A column by its whole name, which may contain dots and backticks."""
    return f.col("`" + name.replace("`", "``") + "`")


def _known_fields(fields: Sequence[str]) -> str:
    return f"there are {', '.join(map(repr, fields))}"
