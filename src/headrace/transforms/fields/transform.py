"""FieldMapper and Filter: transforms that select, rename and reorder fields.

Both match the names of fields exactly, as SeaTunnel does, and an error for a missing field names
those that exist.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as f

from headrace.errors import Refused
from headrace.transforms.fields.descriptor import FieldMapperOptions, FilterOptions


class FieldMapperTransform:
    """Keeps the mapped fields under their new names, in the order of the mapping."""

    has_conditions = False

    def __init__(self, name: str, options: FieldMapperOptions, setting: object) -> None:  # noqa: ARG002
        self.name, self._mapping = name, options.mapping

    def __call__(
        self,
        session: SparkSession,  # noqa: ARG002
        inputs: Mapping[str, DataFrame],
        *,
        now_ms: int,  # noqa: ARG002
    ) -> DataFrame:
        frame = union_of(self.name, inputs)
        _check_fields_exist(self.name, self._mapping, frame)
        return frame.select(*(_field(old).alias(new) for old, new in self._mapping.items()))


class FilterTransform:
    """Keeps the fields to include, in the order they are named, or all but those to exclude."""

    has_conditions = False

    def __init__(self, name: str, options: FilterOptions, setting: object) -> None:  # noqa: ARG002
        self.name, self._include, self._exclude = name, options.include, options.exclude

    def __call__(
        self,
        session: SparkSession,  # noqa: ARG002
        inputs: Mapping[str, DataFrame],
        *,
        now_ms: int,  # noqa: ARG002
    ) -> DataFrame:
        frame = union_of(self.name, inputs)
        _check_fields_exist(self.name, (*self._include, *self._exclude), frame)
        kept = self._include or [name for name in frame.columns if name not in self._exclude]
        if not kept:
            raise Refused(f"transform {self.name}: no field is left; exclude fewer")
        return frame.select(*(_field(name) for name in kept))


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


def _check_fields_exist(name: str, wanted: Iterable[str], frame: DataFrame) -> None:
    fields = frame.columns
    for field in wanted:
        if field not in fields:
            raise Refused(f"transform {name}: there is no field {field!r}; {_known_fields(fields)}")
        if fields.count(field) > 1:
            raise Refused(
                f"transform {name}: {fields.count(field)} fields are called {field!r}; "
                "rename them where they are made"
            )


def _known_fields(fields: Sequence[str]) -> str:
    return f"there are {', '.join(map(repr, fields))}"


def _field(name: str) -> Column:
    """A column by its whole name, which may contain dots and backticks."""
    return f.col("`" + name.replace("`", "``") + "`")
