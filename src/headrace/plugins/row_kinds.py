"""Row kinds and table ids: what a row says of its table, and of which table.

Rows of most sources are only ever inserted, into one table, and their frames carry nothing beside
the user's columns. Where a source may give other kinds, or rows of several tables, its frames have
a reserved column for each of the two; `RowFlow` says which, without looking at a frame. A transform
whose `KindTreatment` is CARRIES never sees these columns: the engine carries them around it.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum

RESERVED_PREFIX = "__headrace_"  # no column of a user begins with it, whatever its case
KIND_COLUMN = f"{RESERVED_PREFIX}kind"  # a text, never null: the value of a `RowKind`
TABLE_COLUMN = f"{RESERVED_PREFIX}table"  # a text, never null: the table's path, such as `db.users`


class RowKind(StrEnum):
    """What a row says of its table."""

    INSERT = "+I"
    UPDATE_BEFORE = "-U"
    UPDATE_AFTER = "+U"
    DELETE = "-D"


INSERT_ONLY = frozenset({RowKind.INSERT})
ALL_KINDS = frozenset(RowKind)


class KindTreatment(StrEnum):
    """What a transform does with frames that carry row kinds or table ids."""

    REFUSES = "refuses them"
    # Each row of the result is made of one row, or of none. The engine hides the reserved columns,
    # and adds them to the result by its plan; a plan that merges rows is refused.
    CARRIES = "carries them"
    READS = "reads them"  # it is given the reserved columns, and keeps those that its flow has


@dataclass(frozen=True, slots=True)
class RowFlow:
    """What may come with a table of a job: the kinds of its rows, and whether they are of several
    tables."""

    kinds: frozenset[RowKind] = INSERT_ONLY
    several_tables: bool = False

    @property
    def columns(self) -> tuple[str, ...]:
        """The reserved columns of its frames."""
        kind = () if self.kinds <= INSERT_ONLY else (KIND_COLUMN,)
        return (*kind, TABLE_COLUMN) if self.several_tables else kind

    @property
    def is_plain(self) -> bool:
        return not self.columns


PLAIN = RowFlow()


def joined(flows: Iterable[RowFlow]) -> RowFlow:
    """The flow of all rows of several tables together."""
    each = tuple(flows)
    kinds = frozenset[RowKind]().union(*(flow.kinds for flow in each))
    return RowFlow(kinds, any(flow.several_tables for flow in each))


def kind_names(kinds: Iterable[RowKind]) -> str:
    """The names of kinds for people, in the order of `RowKind`."""
    given = frozenset(kinds)
    return ", ".join(kind.name for kind in RowKind if kind in given)


def is_reserved(column: str) -> bool:
    return column.lower().startswith(RESERVED_PREFIX)
