"""Assert: fails the job when its rows are not as expected, and keeps none of them.

Fields are judged when an epoch is staged, so that a broken rule stops it before any sink commits
it; how many rows came is judged at the completed point. Nothing is written, so there is no token
to spend, and to judge an epoch twice does no harm.
"""

from __future__ import annotations

from typing import cast

from pydantic import BaseModel, JsonValue
from pyspark.sql import DataFrame, SparkSession

from headrace.clock import Clock, SystemClock
from headrace.connectors.assertion.judge import checks, judge
from headrace.connectors.connector import Committed, Setting, Staged
from headrace.connectors.targetless import Targetless
from headrace.errors import Refused
from headrace.jobfile.rules import Rule, parse_rules
from headrace.model.epoch import EpochAt


class _Judged(BaseModel):
    rows: int


class AssertSink(Targetless):
    def __init__(self, name: str, setting: Setting, clock: Clock | None = None) -> None:
        self.name, self._clock = name, clock or SystemClock()
        self._rules = parse_rules(cast("JsonValue", setting.options.get("rules")))

    def stage(self, session: SparkSession, frame: DataFrame, at: EpochAt) -> Staged:  # noqa: ARG002
        try:
            found = judge(frame, [*checks(self._rules.fields, frame, now_ms=self._clock.wall_ms())])
        except Refused as refused:
            raise Refused(f"sink {self.name}: {refused}") from refused
        if found.broken is not None:
            raise Refused(f"sink {self.name}: {found.broken}")
        # More will not become fewer; whether there are enough, only the end can tell.
        self._judge_rows(found.rows, "MAX_ROW")
        return Staged(_Judged(rows=found.rows).model_dump(), found.rows)

    def commit(self, session: SparkSession, handle: JsonValue, at: EpochAt) -> Committed:  # noqa: ARG002
        return Committed(already=False, facts={"rows": _Judged.model_validate(handle).rows})

    def close(self, rows: int) -> None:
        self._judge_rows(rows, "MAX_ROW", "MIN_ROW")

    def _judge_rows(self, rows: int, *kinds: str) -> None:
        for rule in self._rules.rows:
            if rule.kind in kinds and _breaks(rows, rule):
                raise Refused(f"sink {self.name}: {rows} rows break the rule {rule}")


def _breaks(rows: int, rule: Rule) -> bool:
    return rows > rule.value if rule.kind == "MAX_ROW" else rows < rule.value
