"""Assert: a sink that keeps no rows, and fails the job when they are not as expected."""

from __future__ import annotations

from headrace.jobfile.options import Kind, Option, Options, PluginDecl, common_options
from headrace.jobfile.rules import read_rules

ASSERT = PluginDecl(
    name="Assert",
    role="sink",
    doc="Keeps no rows, and fails the job when they break a rule. Fields are judged in each epoch, "
    "before it is committed; rows are counted at the end, so `MIN_ROW` judges no streaming job. "
    "A null is of every type, as in SeaTunnel: `NOT_NULL` refuses it. `timestamp` is a timestamp "
    "with or without a time zone.",
    options=Options(
        (
            Option(
                "rules",
                Kind.JSON,
                required=True,
                reads=read_rules,
                doc="`row_rules = [{rule_type = MAX_ROW or MIN_ROW, rule_value}]` and `field_rules "
                "= [{field_name, field_type, field_value = [{rule_type, rule_value, equals_to}]}]` "
                "with the types NULL, NOT_NULL, MIN, MAX, MIN_LENGTH and MAX_LENGTH. "
                "`catalog_table_rule`, `table-names` and `tables_configs` are *not built*.",
            ),
            *common_options("sink"),
        )
    ),
)
