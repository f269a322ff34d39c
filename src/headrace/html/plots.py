"""Plots as SVG inside a page: columns along a scale, and bars that are compared.

Made here because a plotting library would be the largest thing in the program, for two kinds of
rectangles. Colours are CSS classes of the page's style sheet, so that a plot is light or dark with
the page. A plot gives its numbers to a screen reader in its description, and the page has them as
a table.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from headrace.html import Markup, element, joined

WIDTH = 720.0
TOP, BOTTOM, LEFT, RIGHT = 34.0, 44.0, 56.0, 12.0
COLUMNS_HEIGHT = 280.0
BAR_HEIGHT, BAR_GAP = 11.0, 12.0
NAME_WIDTH, VALUE_WIDTH = 220.0, 64.0
NAME_CHARACTERS_MAX = 30
TICKS = 4
LEGEND_CHARACTER, LEGEND_GAP = 6.6, 34.0
_STEPS = (1.0, 2.0, 5.0, 10.0)


@dataclass(frozen=True, slots=True)
class Series:
    """One value for each label, drawn in one colour."""

    name: str
    cls: str  # CSS class
    values: Sequence[int]


@dataclass(frozen=True, slots=True)
class PlotMark:
    """A vertical line at a place among the columns: 2.5 is in the middle of the third."""

    at: float
    text: str


def columns(
    title: str,
    labels: Sequence[str],
    series: Sequence[Series],
    *,
    axis: str,
    stacked: bool,
    ticks: Sequence[str] | None = None,
    mark: PlotMark | None = None,
) -> Markup:
    """A column for each label, with its series stacked or side by side.

    `ticks` stand under the columns instead of the labels, where these are too long.
    """
    tops = [sum(each) if stacked else max(each) for each in zip(*_values(series), strict=True)]
    scale = _Scale(max(tops, default=0), TOP, COLUMNS_HEIGHT - BOTTOM)
    slot = (WIDTH - LEFT - RIGHT) / max(1, len(labels))
    drawn = [*_grid(scale), *_legend(series)]
    for place, label in enumerate(labels):
        x = LEFT + slot * place
        drawn += _column(x, slot, [(s, s.values[place]) for s in series], scale, label, stacked)
        tick = label if ticks is None else ticks[place]
        drawn.append(_text(tick, x + slot / 2, COLUMNS_HEIGHT - BOTTOM + 15, "tick", "middle"))
    drawn.append(
        _text(axis, LEFT + (WIDTH - LEFT - RIGHT) / 2, COLUMNS_HEIGHT - 8, "axis", "middle")
    )
    if mark is not None:
        drawn += _marked(mark, LEFT + slot * mark.at, scale)
    return _svg(title, _description(labels, series), COLUMNS_HEIGHT, drawn)


def bars(title: str, labels: Sequence[str], series: Sequence[Series]) -> Markup:
    """For each label one bar per series, one below the other, with their numbers."""
    most = max((value for each in series for value in each.values), default=0)
    room = WIDTH - NAME_WIDTH - VALUE_WIDTH
    row = BAR_HEIGHT * len(series) + BAR_GAP
    drawn: list[Markup] = [*_legend(series)]
    for place, label in enumerate(labels):
        y = TOP + row * place
        middle = y + BAR_HEIGHT * len(series) / 2 + 4
        name = element("title", label)
        drawn.append(_text(_short(label), NAME_WIDTH - 8, middle, "name", "end", name))
        for number, each in enumerate(series):
            value = each.values[place]
            width = max(1.0, room * value / most) if value else 0.0
            at = y + BAR_HEIGHT * number
            tooltip = f"{label}: {each.name} {value:,}"
            drawn.append(_rectangle(NAME_WIDTH, at, width, BAR_HEIGHT - 1.5, each.cls, tooltip))
            drawn.append(_text(f"{value:,}", NAME_WIDTH + width + 5, at + 9, "value", "start"))
    return _svg(title, _description(labels, series), TOP + row * len(labels), drawn)


class _Scale:
    """Maps a number to a height; the scale ends at a round number."""

    def __init__(self, most: int, top: float, bottom: float) -> None:
        rough = max(1.0, most / TICKS)
        power = 10.0 ** math.floor(math.log10(rough))
        self.step = next(s for s in _STEPS if s * power >= rough) * power
        self.ticks = max(1, math.ceil(most / self.step))
        self._top, self.bottom = top, bottom

    def y(self, value: float) -> float:
        return self.bottom - (self.bottom - self._top) * value / (self.step * self.ticks)


def _grid(scale: _Scale) -> list[Markup]:
    drawn: list[Markup] = []
    for number in range(scale.ticks + 1):
        y = scale.y(scale.step * number)
        drawn.append(_line(LEFT, y, WIDTH - RIGHT, y, "base" if number == 0 else "grid"))
        drawn.append(_text(f"{scale.step * number:,.0f}", LEFT - 6, y + 4, "tick", "end"))
    return drawn


def _column(
    x: float,
    slot: float,
    parts: Sequence[tuple[Series, int]],
    scale: _Scale,
    label: str,
    stacked: bool,  # noqa: FBT001 - private, passed on from its caller
) -> list[Markup]:
    drawn: list[Markup] = []
    gap = min(6.0, slot * 0.2)
    width = (slot - gap) / (1 if stacked else len(parts))
    below = 0
    for place, (series, value) in enumerate(parts):
        if value:
            left = x + gap / 2 + (0 if stacked else width * place)
            top, foot = scale.y(below + value), scale.y(below)
            height = max(1.5, foot - top)  # one in a million is still visible
            tooltip = f"{label}: {series.name} {value:,}"
            drawn.append(_rectangle(left, foot - height, width - 1, height, series.cls, tooltip))
        below += value if stacked else 0
    return drawn


def _marked(mark: PlotMark, x: float, scale: _Scale) -> list[Markup]:
    side, move = ("end", -5) if x > WIDTH / 2 else ("start", 5)
    return [
        _line(x, TOP - 6, x, scale.bottom, "mark"),
        _text(mark.text, x + move, TOP + 4, "marked", side),
    ]


def _legend(series: Sequence[Series]) -> list[Markup]:
    """The legend; a single series needs none, since the title says what it is."""
    drawn: list[Markup] = []
    if len(series) < 2:
        return drawn
    x = LEFT
    for each in series:
        drawn.append(_rectangle(x, 6, 12, 12, each.cls, each.name))
        drawn.append(_text(each.name, x + 17, 16, "legend", "start"))
        x += len(each.name) * LEGEND_CHARACTER + LEGEND_GAP
    return drawn


def _svg(title: str, description: str, height: float, drawn: Sequence[Markup]) -> Markup:
    attributes: dict[str, str | float] = {
        "viewBox": f"0 0 {WIDTH:g} {height:g}",
        "role": "img",
        "aria-label": f"{title}. {description}",
    }
    return element("svg", joined(*drawn), attributes=attributes)


def _description(labels: Sequence[str], series: Sequence[Series]) -> str:
    """All numbers that are not zero, for readers who can't see the picture."""
    parts = [
        f"{label}: {each.name} {each.values[place]:,}"
        for place, label in enumerate(labels)
        for each in series
        if each.values[place]
    ]
    return "; ".join(parts) or "Nothing to show"


def _rectangle(x: float, y: float, width: float, height: float, cls: str, tooltip: str) -> Markup:
    place = {"x": x, "y": y, "width": width, "height": height, "rx": 1.5}
    return element("rect", element("title", tooltip), attributes=_rounded(place), cls=cls)


def _line(x1: float, y1: float, x2: float, y2: float, cls: str) -> Markup:
    return element("line", attributes=_rounded({"x1": x1, "y1": y1, "x2": x2, "y2": y2}), cls=cls)


def _text(
    text: str, x: float, y: float, cls: str, anchor: str, title: Markup | None = None
) -> Markup:
    attributes = {**_rounded({"x": x, "y": y}), "text-anchor": anchor}
    return element("text", title or Markup(), text, attributes=attributes, cls=cls)


def _rounded(place: Mapping[str, float]) -> dict[str, str | float]:
    return {name: round(value, 1) for name, value in place.items()}


def _values(series: Sequence[Series]) -> list[Sequence[int]]:
    return [each.values for each in series]


def _short(name: str) -> str:
    """Cut at the beginning: the end is what distinguishes tables of one namespace."""
    if len(name) <= NAME_CHARACTERS_MAX:
        return name
    return f"…{name[1 - NAME_CHARACTERS_MAX :]}"
