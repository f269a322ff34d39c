"""Carries row kinds and table ids through what a transform does with its rows.

A transform is given its inputs without the reserved columns, so that a `SELECT *` does not see
them and no name has to be listed. What it makes of them is a plan of Spark's that is analyzed and
not run yet. From the inputs up, the columns are added to each projection of that plan. This is
possible where a row of the result is made of one row, and only there: projections, filters, UNION
ALL, and what makes several rows of one. Anything else merges rows, orders them or chooses among
them, and is refused by name: a DELETE in a sum or beside a LIMIT would count as one more row.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, cast

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from headrace.errors import Refused
from headrace.plugins.row_kinds import (
    KIND_COLUMN,
    RESERVED_PREFIX,
    TABLE_COLUMN,
    RowKind,
    is_reserved,
)
from headrace.spark.jvm_bridge import jvm

# Nodes whose rows are those of their only child, or some of these; all of its columns pass.
_PASS = frozenset({"Filter", "SubqueryAlias", "View", "PipeOperator", "Generate"})
_MERGE = {  # what is refused, as a user wrote it
    "Aggregate": "an aggregate function, GROUP BY or DISTINCT",
    "Deduplicate": "a choice of one row among equal ones",
    "Distinct": "DISTINCT, or UNION without ALL",
    "Except": "EXCEPT",
    "Expand": "UNPIVOT, or GROUP BY with several groupings",
    "GlobalLimit": "LIMIT",
    "Intersect": "INTERSECT",
    "Join": "JOIN",
    "LocalLimit": "LIMIT",
    "Offset": "OFFSET",
    "Repartition": "a hint that moves rows about",
    "RepartitionByExpression": "DISTRIBUTE BY, or a hint that moves rows about",
    "RebalancePartitions": "a hint that moves rows about",
    "Sample": "TABLESAMPLE",
    "Sort": "ORDER BY or SORT BY",
    "Tail": "a choice of the last rows",
    "Window": "a window function",
}
_WHY = (
    "rows of its inputs are updated and deleted, too, or are of several tables. Leave that out, or "
    "put it behind a RowKindExtractor, which writes the kind into a field, or behind a "
    f"FilterRowKind that leaves only {RowKind.INSERT.name}"
)


class SparkRowCarrier:
    """The reserved columns of frames: whether they are there, hidden, carried, leveled."""

    def __init__(self) -> None:
        # Hidden columns have names that no query can hold, or one that makes up a column of a
        # reserved name, inside, would be taken for an input.
        self._suffix = f"_{uuid.uuid4().hex}"

    def fresh(self) -> SparkRowCarrier:
        """A carrier for one call of a transform, which finds what it hid itself and nothing that
        was hidden from an earlier transform and lies beneath: a RowKindExtractor between them may
        have ended those kinds."""
        return SparkRowCarrier()

    def check(self, frame: DataFrame, columns: Sequence[str], *, title: str) -> None:
        """Raise `Refused` unless these are the reserved columns of the frame. `title`: whose it
        is."""
        found = [name for name in frame.columns if is_reserved(name)]
        for name in found:
            if name not in columns:
                raise Refused(
                    f"{title} gives a column {name!r}, whose beginning {RESERVED_PREFIX!r} is "
                    "reserved; give the column another name"
                )
        for name in columns:
            if found.count(name) != 1:
                raise Refused(
                    f"{title} gives rows whose kind or table is not said: column {name!r} is "
                    "missing, or there twice; ask whoever wrote it"
                )

    def keep(self, frame: DataFrame, columns: Sequence[str]) -> DataFrame:
        """The frame with these of its reserved columns, and no other."""
        dropped = [name for name in frame.columns if is_reserved(name) and name not in columns]
        return frame.drop(*dropped) if dropped else frame

    def level(self, frame: DataFrame, columns: Sequence[str], *, table: str) -> DataFrame:
        """The frame with all of these columns: rows of which nothing was said are inserted, into
        the table of this name."""
        said = _unsaid(table)
        for name in columns:
            if name not in frame.columns:
                frame = frame.withColumn(name, f.lit(said[name]))
        return frame

    def hide(self, frame: DataFrame) -> DataFrame:
        """The frame without its reserved columns, which `carry` finds beneath."""
        renamed = {name: name + self._suffix for name in frame.columns if is_reserved(name)}
        return frame.withColumnsRenamed(renamed).drop(*renamed.values()) if renamed else frame

    def carry(
        self, made: DataFrame, columns: Sequence[str], *, title: str, table: str
    ) -> DataFrame:
        """What a transform made of hidden inputs, with these reserved columns of theirs as its last
        ones. Rows of inputs that say nothing are inserted, into the table of this name. Raises
        `Refused` for a plan that merges rows. `title`: of the transform."""
        self.check(made, (), title=title)
        unsaid = {name + self._suffix: value for name, value in _unsaid(table).items()}
        hidden = [name + self._suffix for name in columns]
        frame = _PlanCarrier(made.sparkSession, hidden, unsaid, title).frame(made)
        return frame.withColumnsRenamed(dict(zip(hidden, columns, strict=True)))


def _unsaid(table: str) -> Mapping[str, str]:
    return {KIND_COLUMN: RowKind.INSERT.value, TABLE_COLUMN: table}


class _PlanCarrier:
    """Adds the reserved columns to one analyzed plan."""

    def __init__(
        self, session: SparkSession, columns: Sequence[str], unsaid: Mapping[str, str], title: str
    ) -> None:
        self._session, self._columns, self._unsaid = session, columns, unsaid
        self._title, self._jvm = title, jvm(session)

    def frame(self, made: DataFrame) -> DataFrame:
        inline = self._jvm.org.apache.spark.sql.catalyst.optimizer.InlineCTE(True, False)  # noqa: FBT003
        plan = inline.apply(_analyzed(made))
        return self._frame_of(self._ordered(self._carried(plan) or self._leveled(plan)))

    def _carried(self, plan: Any) -> Any | None:
        """The plan with all of the columns in its output; None when it reads no input that has
        one, and may do what it likes."""
        if self._has_any(plan):
            return self._leveled(plan)
        self._check_subqueries(plan)
        below = [*_each(plan.children())]
        carried = [self._carried(child) for child in below]
        if all(each is None for each in carried):
            return None
        name = _class(plan)
        if name == "Project":
            return self._projected(plan.projectList(), carried[0])
        if name == "Union":
            parts = zip(below, carried, strict=True)
            ordered = [self._ordered(each or self._leveled(part)) for part, each in parts]
            return plan.withNewChildren(self._seq(ordered))
        if name in _PASS:
            return plan.withNewChildren(self._seq(carried))
        raise self._refused(f"it has {_MERGE.get(name, f'what Spark calls {name}')}, and {_WHY}")

    def _projected(self, listed: Any, child: Any) -> Any:
        for column in self._columns:
            listed = listed.appended(child.output().apply(self._index(child, column)))
        return self._jvm.org.apache.spark.sql.catalyst.plans.logical.Project(listed, child)

    def _ordered(self, plan: Any) -> Any:
        """The plan with the columns at the end of its output, in their order."""
        names = frozenset(self._columns)
        listed = [each for each in _each(plan.output()) if str(each.name()) not in names]
        return self._projected(self._seq(listed), plan)

    def _leveled(self, plan: Any) -> Any:
        missing = [column for column in self._columns if self._index(plan, column) is None]
        if not missing:
            return plan
        frame = self._frame_of(plan)
        for column in missing:
            frame = frame.withColumn(column, f.lit(self._unsaid[column]))
        return _analyzed(frame)

    def _check_subqueries(self, plan: Any) -> None:
        if any(self._reads_input(subquery) for subquery in _each(plan.subqueries())):
            raise self._refused(f"a subquery in it reads such a table, and {_WHY}")

    def _reads_input(self, plan: Any) -> bool:
        inner = (each for part in (plan.children(), plan.subqueries()) for each in _each(part))
        return self._has_any(plan) or any(self._reads_input(each) for each in inner)

    def _has_any(self, plan: Any) -> bool:
        """Whether the node gives one of the columns. It is an input then, since nothing above one
        does."""
        return any(self._index(plan, column) is not None for column in self._columns)

    def _index(self, plan: Any, column: str) -> int | None:
        found = plan.schema().getFieldIndex(column)
        return int(found.get()) if found.isDefined() else None

    def _seq(self, items: Sequence[Any]) -> Any:
        return self._jvm.org.apache.spark.api.python.PythonUtils.toSeq([*items])

    def _frame_of(self, plan: Any) -> DataFrame:
        inner = self._session._jsparkSession  # noqa: SLF001  # pyright: ignore
        made = self._jvm.org.apache.spark.sql.classic.Dataset.ofRows(inner, plan)
        return DataFrame(made, self._session)

    def _refused(self, why: str) -> Refused:
        return Refused(f"{self._title} would lose the kind or the table of rows: {why}")


def _analyzed(frame: DataFrame) -> Any:
    plan: Any = frame._jdf.queryExecution().analyzed()  # noqa: SLF001  # pyright: ignore
    return cast("Any", plan)


def _each(sequence: Any) -> Iterator[Any]:
    items = sequence.iterator()
    while items.hasNext():
        yield items.next()


def _class(plan: Any) -> str:
    return str(plan.getClass().getSimpleName())
