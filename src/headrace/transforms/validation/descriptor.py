"""The descriptor of DataValidator, which holds rows against rules."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal

from headrace.plugins import blocks
from headrace.plugins.descriptor import Capabilities, Descriptor
from headrace.plugins.options import (
    Kind,
    Option,
    OptionSet,
    common_options,
    one_table_options,
)
from headrace.plugins.resolved_options import ResolvedOptions
from headrace.plugins.row_kinds import KindTreatment
from headrace.plugins.syntax_tree import Array, Node, Note, Object, Problem

RULES = ("NOT_NULL", "RANGE", "LENGTH", "REGEX", "UDF")
EMAIL = "EMAIL"  # the only function that SeaTunnel brings along
_NOT_BUILT = (
    "is not built yet: bad rows can't be sent elsewhere; SKIP leaves them out, and a Sql "
    "transform beside this one can select them"
)
_KEYS = {
    "NOT_NULL": (),
    "RANGE": ("min_value", "max_value", "min_inclusive", "max_inclusive"),
    "LENGTH": ("min_length", "max_length", "exact_length"),
    "REGEX": ("pattern", "case_sensitive"),
    "UDF": ("function_name",),
}


@dataclass(frozen=True, slots=True)
class NotNullRule:
    pass


@dataclass(frozen=True, slots=True)
class RangeRule:
    minimum: Decimal | None
    maximum: Decimal | None
    min_inclusive: bool
    max_inclusive: bool


@dataclass(frozen=True, slots=True)
class LengthRule:
    minimum: int | None
    maximum: int | None


@dataclass(frozen=True, slots=True)
class RegexRule:
    pattern: str
    case_sensitive: bool


@dataclass(frozen=True, slots=True)
class EmailRule:
    pass


Check = NotNullRule | RangeRule | LengthRule | RegexRule | EmailRule


@dataclass(frozen=True, slots=True)
class ValidatorRule:
    field: str
    check: Check
    message: str | None  # the user's own


@dataclass(frozen=True, slots=True)
class ValidatorOptions:
    rules: tuple[ValidatorRule, ...]
    skips: bool  # leave bad rows out, instead of failing


def read_rules(node: Node) -> tuple[ValidatorRule, ...]:
    """The rules in `field_rules`, written flat or nested. Raises `Problem`."""
    if not isinstance(node, Array) or not node.items:
        raise Problem(node.place, "field_rules must be a list of at least one rule")
    return tuple(rule for item in node.items for rule in _rules_of(item))


def _rules_of(node: Node) -> tuple[ValidatorRule, ...]:
    what = "a rule of field_rules"
    if isinstance(node, Object) and "rules" in node.members:
        outer = blocks.block(
            node, what=what, keys=("field_name", "rules"), required=("field_name", "rules")
        )
        field = blocks.text(outer, "field_name") or ""
        inner = outer.members["rules"]
        if not isinstance(inner, Array):
            raise Problem(inner.place, "rules must be a list")
        return tuple(_rule(field, item, keys=()) for item in inner.items)
    known = ("field_name", "rule_type", "custom_message", *(k for ks in _KEYS.values() for k in ks))
    flat = blocks.block(node, what=what, keys=known, required=("field_name", "rule_type"))
    return (_rule(blocks.text(flat, "field_name") or "", flat, keys=("field_name",)),)


def _rule(field: str, node: Node, *, keys: tuple[str, ...]) -> ValidatorRule:
    if not isinstance(node, Object):
        raise Problem(node.place, "a rule must be an object")
    kind = blocks.choice(node, "rule_type", RULES)
    if kind is None:
        raise Problem(node.place, f"a rule must have 'rule_type': one of {', '.join(RULES)}")
    blocks.block(
        node,
        what=f"a rule of type {kind}",
        keys=(*keys, "rule_type", "custom_message", *_KEYS[kind]),
        required=(),
    )
    return ValidatorRule(field, _CHECKS[kind](node), blocks.text(node, "custom_message"))


def _range(of: Object) -> Check:
    rule = RangeRule(
        blocks.number(of, "min_value"),
        blocks.number(of, "max_value"),
        blocks.flag(of, "min_inclusive", default=True),
        blocks.flag(of, "max_inclusive", default=True),
    )
    if rule.minimum is None and rule.maximum is None:
        raise Problem(of.place, "a rule of type RANGE must have 'min_value' or 'max_value'")
    return rule


def _length(of: Object) -> Check:
    exact = blocks.count(of, "exact_length")
    if exact is not None:
        return LengthRule(exact, exact)
    rule = LengthRule(blocks.count(of, "min_length"), blocks.count(of, "max_length"))
    if rule.minimum is None and rule.maximum is None:
        wanted = "'min_length', 'max_length' or 'exact_length'"
        raise Problem(of.place, f"a rule of type LENGTH must have {wanted}")
    return rule


def _regex(of: Object) -> Check:
    pattern = blocks.text(of, "pattern")
    if not pattern:
        raise Problem(of.place, "a rule of type REGEX must have 'pattern'")
    return RegexRule(pattern, blocks.flag(of, "case_sensitive", default=True))


def _function(of: Object) -> Check:
    name = blocks.text(of, "function_name")
    if name is None or name.upper() != EMAIL:
        raise Problem(
            of.place,
            f"a rule of type UDF runs {EMAIL} only, not {name!r}: functions in Java can't be "
            "brought along; write a rule of type REGEX, or a Sql transform",
        )
    return EmailRule()


_CHECKS: dict[str, Callable[[Object], Check]] = {
    "NOT_NULL": lambda _: NotNullRule(),
    "RANGE": _range,
    "LENGTH": _length,
    "REGEX": _regex,
    "UDF": _function,
}


def _check_rules(node: Node, _: Note) -> None:
    read_rules(node)


def _options(options: ResolvedOptions) -> ValidatorOptions:
    return ValidatorOptions(
        blocks.read_again(options.value("field_rules"), read_rules, option="field_rules"),
        skips=options.text("row_error_handle_way") == "SKIP",
    )


DATA_VALIDATOR = Descriptor(
    name="DataValidator",
    role="transform",
    make="headrace.transforms.validation.transform:DataValidatorTransform",
    capabilities=Capabilities(treats_kinds=KindTreatment.CARRIES),
    doc="Holds every row against rules. A null breaks no rule but NOT_NULL.",
    read_options=_options,
    options=OptionSet(
        (
            Option(
                "field_rules",
                Kind.JSON,
                required=True,
                doc="`[{field_name, rule_type, …}]` or `[{field_name, rules = [{rule_type, …}]}]`, "
                "each with a `custom_message` at will: `NOT_NULL`; `RANGE` of numbers with "
                "`min_value`, `max_value`, `min_inclusive = true`, `max_inclusive = true`; "
                "`LENGTH` of texts, arrays and maps with `min_length`, `max_length` or "
                "`exact_length`; `REGEX` (Java's, of the whole text) with `pattern`, "
                "`case_sensitive = true`; `UDF` with `function_name = EMAIL`.",
                reader=_check_rules,
            ),
            Option(
                "row_error_handle_way",
                Kind.STRING,
                "FAIL",
                choices=("FAIL", "SKIP", "ROUTE_TO_TABLE"),
                supported=("FAIL", "SKIP"),
                unsupported=_NOT_BUILT,
                doc="What becomes of a row that breaks a rule: the job fails, or goes on without "
                "it.",
            ),
            Option(
                "row_error_handle_way.error_table",
                Kind.STRING,
                supported=(),
                unsupported=_NOT_BUILT,
            ),
            *one_table_options(),
            *common_options("transform"),
        )
    ),
)
DESCRIPTORS = (DATA_VALIDATOR,)
