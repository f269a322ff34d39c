"""The checks of our own find what they are there to find.

What must not stand in a file is put together here from pieces, since this file is checked too.
"""

from __future__ import annotations

from pathlib import Path
from xml.sax.saxutils import quoteattr

import pytest

from tools import moved
from tools.leaks import leaks_in
from tools.mutants import verdict
from tools.sizes import FILE_LINES_MAX, FILE_LINES_QUESTIONED, FUNCTION_LINES_MAX, too_long
from tools.tree import ROOT

PAGE = Path("docs/page.md")


@pytest.mark.parametrize(
    "line",
    [
        "see /" + "home/ann/project",
        "see /" + "Users/ann/project",
        f"see {ROOT}/src",
        "index-" + "url = mirror.example/simple",
        "https://" + "pypi.mirror.example/simple/",
        "https://" + "ann:hunter2@example.org/",
    ],
)
def test_a_line_that_tells_where_it_was_written_is_found(line: str) -> None:
    assert len(list(leaks_in(PAGE, f"fine\n{line}\n"))) >= 1


@pytest.mark.parametrize(
    "line", ["/v1/worker/sync", "postgresql://headrace@db/headrace", "https://example.org/docs"]
)
def test_an_honest_line_is_left_alone(line: str) -> None:
    assert not list(leaks_in(PAGE, line))


def test_an_address_in_a_lock_file_is_found() -> None:
    assert list(leaks_in(Path("requirements.lock"), "a @ https://" + "example.org/a.whl\n"))


def test_long_files_and_functions_are_found() -> None:
    function = "def f() -> None:\n" + "    pass\n" * FUNCTION_LINES_MAX

    (long,) = too_long(PAGE, function)
    assert long.line == (
        f"docs/page.md:1: f has {FUNCTION_LINES_MAX + 1} lines, at most {FUNCTION_LINES_MAX}"
    )
    assert long.fails
    assert [o.fails for o in too_long(PAGE, "\n" * FILE_LINES_MAX)] == [False]
    assert [o.fails for o in too_long(PAGE, "\n" * (FILE_LINES_MAX + 1))] == [True]
    assert list(too_long(PAGE, "\n" * FILE_LINES_QUESTIONED)) == []


@pytest.mark.parametrize(
    ("exit_code", "failures", "expected"),
    [(0, 0, "passed"), (1, 1, "failed"), (1, 0, "broken"), (2, 0, "broken"), (5, 0, "broken")],
)
def test_only_a_failed_test_kills_a_mutant(
    tmp_path: Path, exit_code: int, failures: int, expected: str
) -> None:
    results = tmp_path / "results.xml"
    results.write_text(f"<testsuites><testsuite failures={quoteattr(str(failures))}/></testsuites>")

    assert verdict(exit_code, results) == expected


MOVED = {
    "headrace.old": '''
from headrace import words
LIMIT = 3


def told(found: int, *, most: int = LIMIT) -> str:
    """As it was."""
    said = words.text(found - most)
    return f"{said} left"
'''
}
WORDS = {"headrace.words": "def text(number: int) -> str:\n    return str(number)\n"}


def renamed_to(old: str, new: str, text: str = MOVED["headrace.old"]) -> moved.Difference:
    assert old in text
    after = {"headrace.new": text.replace(old, new), **WORDS}
    return moved.compare({**MOVED, **WORDS}, after, {"told": frozenset({"message"})})


def test_what_is_moved_and_renamed_as_listed_is_the_same() -> None:
    assert renamed_to("def told", "def message") == moved.Difference([], [])


def test_local_names_docstrings_and_prefixes_of_modules_are_free() -> None:
    text = MOVED["headrace.old"].replace("said", "result").replace("As it was", "As it is")
    text = text.replace("from headrace import words", "from headrace.words import text")
    assert renamed_to("words.text(", "text(", text) == moved.Difference([], [])


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("found - most", "most - found"),
        ("LIMIT = 3", "LIMIT = 4"),
        ("left", "remaining"),
        ("def told", "def reported"),
        ("most: int", "limit: int"),
        ("words.text", "words.number"),
    ],
)
def test_anything_else_is_noticed(old: str, new: str) -> None:
    found = renamed_to(old, new)
    assert found.gone
    assert found.new


def test_what_is_gone_or_added_is_noticed() -> None:
    added = {**MOVED, "headrace.more": "def more() -> int:\n    return 2\n"}
    assert moved.compare(MOVED, added, {}).new == ["headrace.more:more"]
    assert moved.compare(added, MOVED, {}).gone == ["headrace.more:more"]
