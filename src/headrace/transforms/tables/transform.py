"""Transforms that go by the names of the tables they read."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from headrace.errors import Refused
from headrace.transforms.frames import FrameTransform, union_of, with_fields
from headrace.transforms.tables.descriptor import (
    MetadataOptions,
    TableFilterOptions,
    TableMergeOptions,
    TableRenameOptions,
)


@dataclass(frozen=True, slots=True)
class TableParts:
    """The parts of a table's name: `table`, `database.table` or `database.schema.table`."""

    database: str | None
    schema: str | None
    table: str

    @classmethod
    def of(cls, name: str) -> TableParts:
        first, *rest = name.split(".", maxsplit=2)
        match rest:
            case []:
                return cls(None, None, first)
            case [table]:
                return cls(first, None, table)
            case _:
                return cls(first, rest[0], rest[1])


class MetadataTransform:
    """Adds the names of the table that each row comes from. Refuses a field that exists."""

    has_conditions = False

    def __init__(self, name: str, options: MetadataOptions, setting: object) -> None:  # noqa: ARG002
        self.name, self._fields = name, options.fields

    def __call__(
        self,
        session: SparkSession,  # noqa: ARG002
        inputs: Mapping[str, DataFrame],
        *,
        now_ms: int,  # noqa: ARG002
    ) -> DataFrame:
        named = {table: self._named(TableParts.of(table), frame) for table, frame in inputs.items()}
        return union_of(self.name, named)

    def _named(self, parts: TableParts, frame: DataFrame) -> DataFrame:
        values = {"Database": parts.database, "Table": parts.table}
        for field in self._fields.values():
            if field in frame.columns:
                raise Refused(
                    f"transform {self.name}: there is a field {field!r} already; "
                    "choose another name in metadata_fields"
                )
        made = {field: f.lit(values[key]).cast("string") for key, field in self._fields.items()}
        return with_fields(frame, made)


class TableFilterTransform:
    """Keeps the rows of tables whose names match. With none of them, the result has no rows."""

    has_conditions = True

    def __init__(self, name: str, options: TableFilterOptions, setting: object) -> None:  # noqa: ARG002
        self.name, self._options = name, options

    def __call__(
        self,
        session: SparkSession,  # noqa: ARG002
        inputs: Mapping[str, DataFrame],
        *,
        now_ms: int,  # noqa: ARG002
    ) -> DataFrame:
        kept = {
            table: frame
            for table, frame in inputs.items()
            if self._matches(TableParts.of(table)) == self._options.keeps_matches
        }
        if kept:
            return union_of(self.name, kept)
        return union_of(self.name, inputs).filter(f.lit(False))  # noqa: FBT003

    def _matches(self, parts: TableParts) -> bool:
        pairs = (
            (self._options.database, parts.database),
            (self._options.schema, parts.schema),
            (self._options.table, parts.table),
        )
        return all(
            part is not None and pattern.fullmatch(part) is not None
            for pattern, part in pairs
            if pattern is not None
        )


class TableMergeTransform(FrameTransform):
    """The union of the tables that it reads."""

    def __init__(self, name: str, options: TableMergeOptions, setting: object) -> None:  # noqa: ARG002
        self.name = name

    def changed(self, frame: DataFrame) -> DataFrame:
        return frame


class TableRenameTransform(FrameTransform):
    """The rows as they are: their table has no name that a sink would see."""

    def __init__(self, name: str, options: TableRenameOptions, setting: object) -> None:  # noqa: ARG002
        self.name = name

    def changed(self, frame: DataFrame) -> DataFrame:
        return frame
