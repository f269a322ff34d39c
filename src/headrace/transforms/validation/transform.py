"""DataValidator: a filter that each rule is a part of, and that fails or drops the row.

With FAIL the condition itself raises, in the order of the rules: so the job fails by the first rule
that the row breaks, and no later step can leave the check out.
"""

from __future__ import annotations

from typing import assert_never

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as f
from pyspark.sql import types as spark

from headrace.errors import Refused
from headrace.transforms.frames import FrameTransform, check_fields_exist, field, type_of
from headrace.transforms.validation.descriptor import (
    Check,
    EmailRule,
    LengthRule,
    NotNullRule,
    RangeRule,
    RegexRule,
    ValidatorOptions,
    ValidatorRule,
)

EMAIL_LENGTH_MAX = 254  # characters, as in SeaTunnel
# A local part of at most 63 characters, one @, a domain with a dot; no quotes, no zero.
EMAIL_PATTERN = r"""(?s)\A[^@"'`\x00]{1,63}@(?=[^.]*\.)[a-zA-Z0-9.-]+\z"""


class DataValidatorTransform(FrameTransform):
    """Keeps the rows that break no rule; a row that breaks one fails the job, or is left out."""

    has_conditions = True

    def __init__(self, name: str, options: ValidatorOptions, setting: object) -> None:  # noqa: ARG002
        self.name, self._rules, self._skips = name, options.rules, options.skips

    def changed(self, frame: DataFrame) -> DataFrame:
        check_fields_exist(self.name, (rule.field for rule in self._rules), frame)
        for rule in self._rules:
            broken = f.coalesce(self._broken(rule, frame), f.lit(False))  # noqa: FBT003
            frame = frame.filter(~broken if self._skips else self._raised(rule, broken))
        return frame

    def _raised(self, rule: ValidatorRule, broken: Column) -> Column:
        """True, or an error."""
        said = rule.message or _text(rule.check)
        message = f.lit(f"transform {self.name}: field {rule.field!r} breaks its rule: {said}")
        return f.when(broken, f.raise_error(message).cast("boolean")).otherwise(f.lit(True))  # noqa: FBT003

    def _broken(self, rule: ValidatorRule, frame: DataFrame) -> Column:
        value, kind = field(rule.field), type_of(rule.field, frame)
        match rule.check:
            case NotNullRule():
                return value.isNull()
            case RangeRule() as check:
                if not isinstance(kind, spark.NumericType):
                    raise self._misfit(rule, kind, "RANGE is for numbers")
                return _outside(value, check)
            case LengthRule() as check:
                return self._of_wrong_length(value, rule, check, kind)
            case RegexRule() as check:
                flags = "" if check.case_sensitive else "(?i)"
                whole = rf"{flags}\A(?:{check.pattern})\z"
                return ~f.rlike(value.cast("string"), f.lit(whole))
            case EmailRule():
                email = f.trim(value.cast("string"))
                wrong = (f.length(email) > EMAIL_LENGTH_MAX) | ~f.rlike(email, f.lit(EMAIL_PATTERN))
                return (email != "") & wrong
            case _:
                assert_never(rule.check)

    def _of_wrong_length(
        self, value: Column, rule: ValidatorRule, check: LengthRule, kind: spark.DataType
    ) -> Column:
        match kind:
            case spark.StringType():
                length = f.length(value)
            case spark.ArrayType() | spark.MapType():
                length = f.size(value)
            case _:
                raise self._misfit(rule, kind, "LENGTH is for texts, arrays and maps")
        too_short = f.lit(False) if check.minimum is None else length < check.minimum  # noqa: FBT003
        too_long = f.lit(False) if check.maximum is None else length > check.maximum  # noqa: FBT003
        return value.isNotNull() & (too_short | too_long)

    def _misfit(self, rule: ValidatorRule, kind: spark.DataType, why: str) -> Refused:
        is_a = f"field {rule.field!r} is {kind.simpleString()}"
        return Refused(f"transform {self.name}: {is_a}, and a rule of type {why}")


def _outside(value: Column, check: RangeRule) -> Column:
    outside = f.lit(False)  # noqa: FBT003
    if check.minimum is not None:
        least = f.lit(check.minimum)
        outside = outside | (value < least if check.min_inclusive else value <= least)
    if check.maximum is not None:
        most = f.lit(check.maximum)
        outside = outside | (value > most if check.max_inclusive else value >= most)
    return outside


def _text(check: Check) -> str:
    match check:
        case NotNullRule():
            return "it is null"
        case RangeRule():
            opening, closing = (
                "[" if check.min_inclusive else "(",
                "]" if check.max_inclusive else ")",
            )
            low = "" if check.minimum is None else check.minimum
            high = "" if check.maximum is None else check.maximum
            return f"it is not within {opening}{low}, {high}{closing}"
        case LengthRule():
            low = 0 if check.minimum is None else check.minimum
            high = "any" if check.maximum is None else check.maximum
            return f"its length is not {low} to {high}"
        case RegexRule():
            return f"it does not match {check.pattern!r}"
        case EmailRule():
            return "it is no e-mail address"
        case _:
            assert_never(check)
