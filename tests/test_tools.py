"""The checks of our own find what they are there to find.

What must not stand in a file is put together here from pieces, since this file is checked too.
"""

from __future__ import annotations

from pathlib import Path
from xml.sax.saxutils import quoteattr

import pytest

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
