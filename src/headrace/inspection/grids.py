"""Tables of a page: each can be scrolled sideways, also by keyboard, and says what it holds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from headrace.inspection.markup import Markup, element, joined


@dataclass(frozen=True, slots=True)
class Grid:
    title: str
    columns: Sequence[str]
    numbers: frozenset[int] = frozenset()  # columns that are set to the right
    classes: Mapping[int, str] = field(default_factory=dict[int, str])  # of the style sheet


def grid(made: Grid, rows: Sequence[Sequence[str]], *, of: int) -> Markup:
    """`of`: how many rows there are, when not all are given. The first column names its row."""
    if not rows:
        return element("p", "None.", cls="soft")
    heads = [
        element("th", name, attributes={"scope": "col"}, cls=_class(made, place))
        for place, name in enumerate(made.columns)
    ]
    table = element(
        "table",
        element("thead", element("tr", *heads)),
        element("tbody", *(_row(made, row) for row in rows)),
    )
    around: dict[str, str | float] = {"role": "region", "aria-label": made.title, "tabindex": "0"}
    told = f"{len(rows):,} of {of:,} rows; `headrace inspect --output json` has all."
    more = element("p", told, cls="soft") if of > len(rows) else Markup()
    return joined(element("div", table, attributes=around, cls="wide"), more)


def _row(made: Grid, row: Sequence[str]) -> Markup:
    name = element("th", row[0], attributes={"scope": "row"}, cls=_class(made, 0))
    cells = (
        element("td", cell, cls=_class(made, place)) for place, cell in enumerate(row[1:], start=1)
    )
    return element("tr", name, *cells)


def _class(made: Grid, place: int) -> str:
    return made.classes.get(place, "number" if place in made.numbers else "")
