"""HTML kit: escaped markup and accessible tables for web pages; `plots` draws into them.

No name can break a page: a text is escaped unless it is `Markup` already. A table can be scrolled
sideways, also by keyboard, and is labelled for screen readers.
"""

from __future__ import annotations

import html
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field


class Markup(str):
    """Text that is safe as HTML: made by `element`, or a constant of ours."""

    __slots__ = ()


def escaped(text: str) -> Markup:
    """The text with everything escaped that HTML or SVG would interpret; markup as it is."""
    if isinstance(text, Markup):
        return text
    # Control characters are allowed in the name of a table, but not in a page.
    printable = (each if each.isprintable() else "\N{REPLACEMENT CHARACTER}" for each in text)
    return Markup(html.escape("".join(printable), quote=True))


def element(
    name: str, *children: str, attributes: dict[str, str | float] | None = None, cls: str = ""
) -> Markup:
    """`<name …>children</name>`; `cls` is its CSS class."""
    all_attributes = {**({"class": cls} if cls else {}), **(attributes or {})}
    rendered = "".join(
        f' {key}="{escaped(_value(value))}"' for key, value in all_attributes.items()
    )
    return Markup(f"<{name}{rendered}>{joined(*children)}</{name}>")


def joined(*parts: str) -> Markup:
    return Markup("".join(escaped(part) for part in parts))


def _value(value: str | float) -> str:
    return value if isinstance(value, str) else f"{value:.6g}"


@dataclass(frozen=True, slots=True)
class Grid:
    """The layout of a table: its title and its columns."""

    title: str
    columns: Sequence[str]
    numbers: frozenset[int] = frozenset()  # columns that are aligned to the right
    classes: Mapping[int, str] = field(default_factory=dict[int, str])  # CSS classes by column


def grid(layout: Grid, rows: Sequence[Sequence[str]], *, of: int) -> Markup:
    """A table with these rows; the first cell of each is its header.

    `of` is how many rows there are in all, of which `rows` may be the first.
    """
    if not rows:
        return element("p", "None.", cls="soft")
    heads = [
        element("th", name, attributes={"scope": "col"}, cls=_class(layout, place))
        for place, name in enumerate(layout.columns)
    ]
    table = element(
        "table",
        element("thead", element("tr", *heads)),
        element("tbody", *(_row(layout, row) for row in rows)),
    )
    around: dict[str, str | float] = {"role": "region", "aria-label": layout.title, "tabindex": "0"}
    text = f"{len(rows):,} of {of:,} rows; `headrace inspect --output json` has all."
    more = element("p", text, cls="soft") if of > len(rows) else Markup()
    return joined(element("div", table, attributes=around, cls="wide"), more)


def _row(layout: Grid, row: Sequence[str]) -> Markup:
    name = element("th", row[0], attributes={"scope": "row"}, cls=_class(layout, 0))
    cells = (
        element("td", cell, cls=_class(layout, place))
        for place, cell in enumerate(row[1:], start=1)
    )
    return element("tr", name, *cells)


def _class(layout: Grid, place: int) -> str:
    return layout.classes.get(place, "number" if place in layout.numbers else "")
