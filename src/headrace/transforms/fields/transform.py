"""Transforms that select, rename, copy and rewrite fields. None of them drops a row."""

from __future__ import annotations

from collections import Counter

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as f

from headrace.errors import Refused
from headrace.transforms.fields.descriptor import (
    CopyOptions,
    FieldMapperOptions,
    FieldRenameOptions,
    FilterOptions,
    RegexExtractOptions,
    ReplaceOptions,
    SplitOptions,
)
from headrace.transforms.frames import (
    FrameTransform,
    check_fields_exist,
    field,
    text_field,
    with_fields,
)
from headrace.transforms.java_regex import first_match


class FieldMapperTransform(FrameTransform):
    """Keeps the mapped fields under their new names, in the order of the mapping."""

    def __init__(self, name: str, options: FieldMapperOptions, setting: object) -> None:  # noqa: ARG002
        self.name, self._mapping = name, options.mapping

    def changed(self, frame: DataFrame) -> DataFrame:
        check_fields_exist(self.name, self._mapping, frame)
        return frame.select(*(field(old).alias(new) for old, new in self._mapping.items()))


class FilterTransform(FrameTransform):
    """Keeps the fields to include, in the order they are named, or all but those to exclude."""

    def __init__(self, name: str, options: FilterOptions, setting: object) -> None:  # noqa: ARG002
        self.name, self._include, self._exclude = name, options.include, options.exclude

    def changed(self, frame: DataFrame) -> DataFrame:
        check_fields_exist(self.name, (*self._include, *self._exclude), frame)
        kept = self._include or [name for name in frame.columns if name not in self._exclude]
        if not kept:
            raise Refused(f"transform {self.name}: no field is left; exclude fewer")
        return frame.select(*(field(name) for name in kept))


class CopyTransform(FrameTransform):
    """Adds copies of fields, each of what came in: a copy of a copy is that of its source."""

    def __init__(self, name: str, options: CopyOptions, setting: object) -> None:  # noqa: ARG002
        self.name, self._sources = name, options.sources

    def changed(self, frame: DataFrame) -> DataFrame:
        check_fields_exist(self.name, self._sources.values(), frame)
        return with_fields(frame, {new: field(old) for new, old in self._sources.items()})


class FieldRenameTransform(FrameTransform):
    """Renames all fields by rules. Refuses two that would get the same name."""

    def __init__(self, name: str, options: FieldRenameOptions, setting: object) -> None:  # noqa: ARG002
        self.name, self._rules, self._specific = name, options.rules, options.specific

    def changed(self, frame: DataFrame) -> DataFrame:
        check_fields_exist(self.name, self._specific, frame)
        names = [self._specific.get(old) or self._rules.new_name(old) for old in frame.columns]
        for new, times in Counter(names).items():
            if times > 1:
                same = ", ".join(
                    repr(old) for old, got in zip(frame.columns, names, strict=True) if got == new
                )
                raise Refused(
                    f"transform {self.name}: fields {same} would all be called {new!r}; "
                    "name one of them in 'specific'"
                )
        return frame.toDF(*names)


class ReplaceTransform(FrameTransform):
    """Replaces a text, or matches of a regular expression, in one field. Null stays null."""

    def __init__(self, name: str, options: ReplaceOptions, setting: object) -> None:  # noqa: ARG002
        self.name, self._options = name, options

    def changed(self, frame: DataFrame) -> DataFrame:
        options = self._options
        made = self._replaced(text_field(self.name, options.field, frame))
        return with_fields(frame, {options.field: made})

    def _replaced(self, text: Column) -> Column:
        options = self._options
        if not options.is_regex:
            return f.replace(text, f.lit(options.pattern), f.lit(options.replacement))
        pattern, replacement = options.pattern, options.replacement
        if options.first_only:
            pattern, replacement = first_match(pattern, replacement)
        return f.regexp_replace(text, f.lit(pattern), f.lit(replacement))


class SplitTransform(FrameTransform):
    """Splits a field at most into as many parts as there are new fields."""

    def __init__(self, name: str, options: SplitOptions, setting: object) -> None:  # noqa: ARG002
        self.name, self._options = name, options

    def changed(self, frame: DataFrame) -> DataFrame:
        options = self._options
        check_fields_exist(self.name, [options.field], frame)
        text = field(options.field).cast("string")
        parts = f.split(text, options.separator, len(options.outputs))
        made = {name: f.get(parts, f.lit(at)) for at, name in enumerate(options.outputs)}
        return with_fields(frame, made)


class RegexExtractTransform(FrameTransform):
    """Fills fields from the groups of the first match, or from defaults."""

    def __init__(self, name: str, options: RegexExtractOptions, setting: object) -> None:  # noqa: ARG002
        self.name, self._options = name, options

    def changed(self, frame: DataFrame) -> DataFrame:
        options = self._options
        check_fields_exist(self.name, [options.field], frame)
        text = field(options.field).cast("string")
        matches = f.coalesce(f.rlike(text, f.lit(options.pattern)), f.lit(False))  # noqa: FBT003
        made = {
            name: f.when(matches, _group(text, options.pattern, group)).otherwise(
                f.lit(default).cast("string")
            )
            for group, (name, default) in enumerate(
                zip(options.outputs, options.defaults, strict=True), 1
            )
        }
        return with_fields(frame, made)


def _group(text: Column, pattern: str, group: int) -> Column:
    """The group of the first match; null when it took no part in it, for which Spark gives an empty
    text. In Java a reference back to such a group matches nothing, so it is looked for from the
    first match on, whose place is kept by (?>…)."""
    found = f.regexp_extract(text, pattern, group)
    took_part = rf"\A(?>(?s:.*?)(?={pattern}))(?s:.*?)\{group}"
    return f.when((found != "") | f.rlike(text, f.lit(took_part)), found)
