"""The Assert sink's descriptor and its rules: how many rows must come, and what fields must hold.

Assert keeps no rows, and fails the job when they are not as expected. As with a schema, the raw
block of rules travels in the plugin's options, and is parsed into `Rules` when the sink is made.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from pydantic import JsonValue

from headrace.errors import Refused
from headrace.model.text import hint
from headrace.plugins.descriptor import Capabilities, Descriptor, Guarantee
from headrace.plugins.options import Kind, Option, OptionSet, common_options
from headrace.plugins.resolved_options import ResolvedOptions
from headrace.plugins.row_kinds import ALL_KINDS
from headrace.plugins.schema import ColumnType, holds_vector, read_type
from headrace.plugins.syntax_tree import (
    Array,
    Node,
    Note,
    Object,
    Problem,
    Scalar,
    describe,
    from_json,
    ignore_note,
    to_json,
)

ROW_RULES = ("MAX_ROW", "MIN_ROW")
VALUE_RULES = ("NULL", "NOT_NULL", "MIN", "MAX", "MIN_LENGTH", "MAX_LENGTH")
_WITHOUT_VALUE = ("NULL", "NOT_NULL")
_NOT_BUILT = {
    "catalog_table_rule": "only rows are looked at here; say types in field_rules",
    "table-names": "a sink gets the rows of its inputs as one table",
    "tables_configs": "write an Assert block for each table",
}
_KEYS = ("row_rules", "field_rules", *_NOT_BUILT)
_RULE_KEYS = ("rule_type", "rule_value")
_VALUE_KEYS = (*_RULE_KEYS, "equals_to")
_FIELD_KEYS = ("field_name", "field_type", "field_value")


@dataclass(frozen=True, slots=True)
class AssertRule:
    kind: str
    value: float = 0.0  # has no meaning for NULL and NOT_NULL

    def __str__(self) -> str:
        return self.kind if self.kind in _WITHOUT_VALUE else f"{self.kind} {self.value:.15g}"


@dataclass(frozen=True, slots=True)
class Equals:
    value: JsonValue

    def __str__(self) -> str:
        return f"equals_to {self.value!r}"


@dataclass(frozen=True, slots=True)
class FieldRule:
    name: str
    type: ColumnType | None
    rules: tuple[AssertRule | Equals, ...]


@dataclass(frozen=True, slots=True)
class Rules:
    rows: tuple[AssertRule, ...]
    fields: tuple[FieldRule, ...]


@dataclass(frozen=True, slots=True)
class AssertOptions:
    rules: Rules


def parse_rules(value: JsonValue) -> Rules:
    """The rules in a block that came as JSON. Raises `Refused`."""
    try:
        return read_rules(from_json(value))
    except Problem as problem:
        raise Refused(f"rules: {problem.text}") from None


def read_rules(node: Node, note: Note = ignore_note) -> Rules:
    """The rules in a block of a job file. Raises `Problem` with its place.

    SeaTunnel ignores unknown keys, and its own jobs have some: they are accepted with a warning.
    """
    block = _object(node, "rules", _KEYS, note)
    for key, place, _ in block.walk():
        if key in _NOT_BUILT:
            what = f"{key!r} in the rules of Assert"
            raise Problem(place, f"{what} is not built: {_NOT_BUILT[key]}", lacks=what)
    rules = Rules(
        rows=tuple(_row_rule(item, note) for item in _list(block, "row_rules")),
        fields=tuple(_field_rule(item, note) for item in _list(block, "field_rules")),
    )
    if not rules.rows and not rules.fields:
        raise Problem(node.place, "Assert has no rules; give row_rules or field_rules")
    return rules


def _row_rule(node: Node, note: Note) -> AssertRule:
    block = _object(node, "a rule in row_rules", _RULE_KEYS, note)
    _need(block, "rule_type", "a rule in row_rules")
    return _rule(block, ROW_RULES)


def _field_rule(node: Node, note: Note) -> FieldRule:
    what = "a rule in field_rules"
    block = _object(node, what, _FIELD_KEYS, note)
    _need(block, "field_name", what)
    rule = FieldRule(
        name=_scalar(block.members["field_name"]).text,
        type=_type(block.members["field_type"]) if "field_type" in block.members else None,
        rules=tuple(
            each for item in _list(block, "field_value") for each in _value_rules(item, note)
        ),
    )
    if rule.type is None and not rule.rules:
        raise Problem(block.place, f"{what} must have 'field_type' or 'field_value'")
    return rule


def _type(node: Node) -> ColumnType:
    column_type = read_type(node)
    if holds_vector(column_type):
        raise Problem(
            node.place, "vectors are not built yet", lacks="vectors in the rules of Assert"
        )
    return column_type


def _value_rules(node: Node, note: Note) -> list[AssertRule | Equals]:
    """One entry of field_value: a rule, a value to equal, or both."""
    what = "a rule in field_value"
    block = _object(node, what, _VALUE_KEYS, note)
    rules: list[AssertRule | Equals] = []
    if "rule_type" in block.members:
        rules.append(_rule(block, VALUE_RULES))
    wanted = block.members.get("equals_to")
    if wanted is not None and (value := to_json(wanted)) is not None:
        rules.append(Equals(value))
    if not rules:
        raise Problem(
            block.place, f"{what} must have 'rule_type' or 'equals_to'; for null write NULL there"
        )
    return rules


def _rule(block: Object, kinds: tuple[str, ...]) -> AssertRule:
    node = _scalar(block.members["rule_type"])
    kind = node.text.upper()
    if kind not in kinds:
        known = hint(kind, kinds, noun="types")
        raise Problem(node.place, f"unknown rule_type {node.text!r} here; {known}")
    if kind in _WITHOUT_VALUE:
        return AssertRule(kind)
    _need(block, "rule_value", f"a rule of type {kind}")
    return AssertRule(kind, _number(_scalar(block.members["rule_value"])))


def _number(node: Scalar) -> float:
    wrong = Problem(node.place, f"rule_value must be a number, and is {describe(node)}")
    try:
        number = float("nan" if isinstance(node.value, bool) else node.text)
    except ValueError:
        raise wrong from None
    if not math.isfinite(number):
        raise wrong
    return number


def _need(block: Object, key: str, what: str) -> None:
    if key not in block.members:
        raise Problem(block.place, f"{what} must have {key!r}")


def _scalar(node: Node) -> Scalar:
    if isinstance(node, Scalar) and node.value is not None:
        return node
    raise Problem(node.place, f"a single value was expected here, and not {describe(node)}")


def _object(node: Node, what: str, keys: tuple[str, ...], note: Note) -> Object:
    if not isinstance(node, Object):
        raise Problem(node.place, f"{what} must be an object, and is {describe(node)}")
    for key, place, _ in node.walk():
        if key not in keys:
            known = hint(key, keys, noun="keys")
            note(place, f"key {key!r} of {what} is unknown and has no effect; {known}")
    return node


def _list(block: Object, key: str) -> tuple[Node, ...]:
    node = block.members.get(key)
    if node is None or (isinstance(node, Scalar) and node.value is None):
        return ()
    if isinstance(node, Array):
        return node.items
    raise Problem(node.place, f"{key} must be a list, and is {describe(node)}")


def _sink_options(options: ResolvedOptions) -> AssertOptions:
    return AssertOptions(parse_rules(options.value("rules")))


ASSERT = Descriptor(
    name="Assert",
    role="sink",
    make="headrace.connectors.assertion.sink:AssertSink",
    read_options=_sink_options,
    capabilities=Capabilities(
        guarantee=Guarantee.NONE,
        row_kinds=ALL_KINDS,
        how="for judging: nothing is written. Fields are judged when an epoch is staged, so a "
        "broken rule stops the epoch before any sink of the pipeline commits it, and the job "
        "fails: without a retry in its first epoch, later as `job.retry.times` allows; earlier "
        "epochs stay. `MIN_ROW` and `MAX_ROW` are judged by the rows committed when every source "
        "has read everything",
    ),
    doc="Keeps no rows, and fails the job when they break a rule. Fields are judged in each epoch, "
    "before it is committed; rows are counted at the end, so `MIN_ROW` judges no streaming job. "
    "Rows of every kind are judged and counted, a `DELETE` like an `INSERT`, as in SeaTunnel. "
    "A null is of every type, too: `NOT_NULL` refuses it. `timestamp` is a timestamp "
    "with or without a time zone.",
    options=OptionSet(
        (
            Option(
                "rules",
                Kind.JSON,
                required=True,
                reader=read_rules,
                doc="`row_rules = [{rule_type = MAX_ROW or MIN_ROW, rule_value}]` and `field_rules "
                "= [{field_name, field_type, field_value = [{rule_type, rule_value, equals_to}]}]` "
                "with the types NULL, NOT_NULL, MIN, MAX, MIN_LENGTH and MAX_LENGTH. "
                "`catalog_table_rule`, `table-names` and `tables_configs` are *not built*.",
            ),
            *common_options("sink"),
        )
    ),
)
DESCRIPTORS = (ASSERT,)
