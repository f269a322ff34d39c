"""A report as people see it: in a terminal, and as a page that no name can break."""

from __future__ import annotations

import io
import re
from html.parser import HTMLParser

from rich.console import Console

from headrace.html.plots import PlotMark, Series, bars, columns
from headrace.inspection.page import ROWS_MAX, page
from headrace.inspection.report import CatalogReport, Unread
from headrace.inspection.text import renderables
from tests.inspection.samples import report, table

EVIL = "<script>alert('1')</script>\"&amp;"
LEGEND_HEIGHT = 12
VOID = {"meta", "br"}


class Reader(HTMLParser):
    """What a browser would make of a page, and whether every element is closed."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.names: list[str] = []
        self.attributes: list[tuple[str, str | None]] = []
        self.texts: list[str] = []
        self._open: list[str] = []
        self.feed(text)
        self.close()
        assert self._open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.names.append(tag)
        self.attributes += attrs
        if tag not in VOID:
            self._open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.texts.append(data)


def text_of(made: CatalogReport, *, most: int = 10) -> str:
    console = Console(file=io.StringIO(), width=200)
    for part in renderables(made, most=most):
        console.print(part)
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def test_the_text_goes_from_the_whole_to_what_is_most_in_need() -> None:
    made = report(
        table("sales.orders", small=400, deletes=1, snapshot_days=(40, 0)),
        table("sales.customers", full=3),
        unread=[Unread("web.broken", "Failed to read file", "restore it")],
    )

    text = text_of(made)

    assert re.search(r"tables +2; 1 could not be read", text)
    assert re.search(r"small files +400, which is 99 % of all data files", text)
    assert "Optimizing 1 table would turn 400 data files into" in text
    order = ["Tables most in need", "Partitions most in need", "Most snapshots", "Could not be"]
    assert sorted(order, key=text.index) == order
    assert "sales.customers" not in text[: text.index("Most snapshots")]
    assert "restore it" in text


def test_no_more_rows_are_shown_than_asked_for_and_the_rest_is_counted() -> None:
    made = report(*(table(f"t{number}", small=20 + number) for number in range(5)))

    text = text_of(made, most=2)

    assert "Tables most in need (2 of 5 rows)" in text
    assert "t4" in text
    assert "t2 " not in text


def test_a_catalog_in_good_health_is_told_so() -> None:
    assert "Nothing to gain" in text_of(report(table(full=3)))
    assert "Nothing to gain" in text_of(report())


def test_a_name_can_not_move_the_cursor() -> None:
    text = text_of(report(table("evil\x1b[2J\r\nname", small=20)))

    assert "\x1b[2J" not in text
    assert "evil\N{REPLACEMENT CHARACTER}[2J" in text


def test_a_page_is_whole_and_fetches_and_runs_nothing() -> None:
    made = report(
        table("sales.orders", small=400, deletes=2, partitions=2),
        table("sales.customers", full=3),
        unread=[Unread("web.broken", "Failed to read file", "restore it")],
        properties={"uri": "https://catalog.example"},
    )

    found = Reader(page(made))

    assert "script" not in found.names
    assert not {"link", "img", "iframe", "object"} & set(found.names)
    assert not [name for name, _ in found.attributes if name in {"src", "href", "style"}]
    assert found.names.count("svg") == 4
    assert dict(found.attributes)["lang"] == "en"
    told = " ".join(found.texts)
    for part in ("sales.orders", "Failed to read file", "restore it", "https://catalog.example"):
        assert part in told
    assert "prefers-color-scheme: dark" in told


def test_every_plot_tells_its_numbers_to_who_can_not_see_it() -> None:
    found = Reader(page(report(table("sales.orders", small=400))))

    labels = [value or "" for name, value in found.attributes if name == "aria-label"]
    plots = [label for label in labels if ". " in label]
    assert len(plots) == 4
    assert "up to 1 MiB: fragments 400" in plots[0]
    assert "sales.orders: now 400; sales.orders: after 4" in plots[1]


def test_what_a_catalog_says_is_text_on_the_page_and_nothing_else() -> None:
    made = report(
        table(EVIL, small=30, properties={"self-optimizing.target-size": EVIL}),
        unread=[Unread(EVIL, EVIL, EVIL)],
        properties={EVIL: EVIL},
        catalog=EVIL,
    )

    text = page(made)

    assert "<script" not in text
    found = Reader(text)
    assert "script" not in found.names
    assert f"Catalog {EVIL}" in found.texts


def test_a_page_of_a_catalog_without_tables_has_no_plots() -> None:
    found = Reader(page(report()))

    assert "svg" not in found.names
    assert any("Nothing to gain" in text for text in found.texts)


def test_a_page_has_so_many_rows_and_no_more() -> None:
    one = report(*(table(f"t{number:04d}", full=1) for number in range(ROWS_MAX + 1)))

    text = page(one)

    assert f"{ROWS_MAX} of {ROWS_MAX + 1} rows" in text


def test_the_scale_of_a_plot_ends_at_a_round_number_above_the_largest() -> None:
    made = columns("t", ["a", "b"], [Series("s", "blue", [7, 90])], axis="x", stacked=False)

    assert re.findall(r'class="tick"[^>]*>([\d,]+)<', made) == ["0", "50", "100"]


def test_stacked_columns_stand_on_each_other_and_a_mark_between_them() -> None:
    series = [Series("low", "orange", [10]), Series("high", "blue", [10])]
    made = columns("t", ["a"], series, axis="x", stacked=True, mark=PlotMark(0.5, "here"))

    drawn = re.findall(r' y="([\d.]+)" width="[\d.]+" height="([\d.]+)"', made)
    (low_y, _), (high_y, high) = [each for each in drawn if float(each[1]) > LEGEND_HEIGHT]
    assert float(high_y) + float(high) == float(low_y)
    assert "here" in made


def test_nothing_to_plot_is_a_plot_that_says_so() -> None:
    assert "Nothing to show" in bars("t", [], [Series("now", "orange", [])])
    assert "Nothing to show" in columns(
        "t", ["a"], [Series("s", "blue", [0])], axis="", stacked=True
    )
