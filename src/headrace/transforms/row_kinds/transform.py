"""FilterRowKind and RowKindExtractor: the two transforms that see the kinds of rows.

A frame without a column of kinds holds rows that are all inserted. Where it has one, or a column of
tables, the engine has given it to all inputs, and drops what the result need not carry.
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as f

from headrace.errors import Refused
from headrace.plugins.row_kinds import KIND_COLUMN, RowKind
from headrace.transforms.frames import FrameTransform
from headrace.transforms.row_kinds.descriptor import FilterRowKindOptions, RowKindExtractorOptions


class FilterRowKindTransform(FrameTransform):
    """Keeps rows of some kinds, with all of their fields."""

    has_conditions = True

    def __init__(self, name: str, options: FilterRowKindOptions, setting: object) -> None:  # noqa: ARG002
        self.name, self._kept = name, options.kept

    def changed(self, frame: DataFrame) -> DataFrame:
        if KIND_COLUMN in frame.columns:
            return frame.where(f.col(KIND_COLUMN).isin([kind.value for kind in self._kept]))
        return frame if RowKind.INSERT in self._kept else frame.where(f.lit(col=False))


class RowKindExtractorTransform(FrameTransform):
    """Appends a field with the kind of each row."""

    def __init__(self, name: str, options: RowKindExtractorOptions, setting: object) -> None:  # noqa: ARG002
        self.name, self._options = name, options

    def changed(self, frame: DataFrame) -> DataFrame:
        field = self._options.field
        if field.lower() in (name.lower() for name in frame.columns):
            raise Refused(
                f"transform {self.name}: there is a field {field!r} already; set "
                "custom_field_name to another one"
            )
        return frame.withColumn(field, self._kind(frame)).drop(KIND_COLUMN)

    def _kind(self, frame: DataFrame) -> Column:
        if KIND_COLUMN not in frame.columns:
            return f.lit(self._text(RowKind.INSERT))
        kind = f.col(KIND_COLUMN)
        if not self._options.full:
            return kind
        known = [item for each in RowKind for item in (f.lit(each.value), f.lit(each.name))]
        return f.create_map(*known)[kind]

    def _text(self, kind: RowKind) -> str:
        return kind.name if self._options.full else kind.value
