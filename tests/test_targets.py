"""The targets that test something are listed for contributors, and CI stays within its hour."""

from __future__ import annotations

import re

from tools.tree import ROOT

CI_MAX_MINUTES = 60
TARGET = re.compile(r"^([a-z]+):.*## .*\n((?:\t.*\n)+)", re.MULTILINE)
RUNS_TESTS = re.compile(r"/pytest |-m tests\.|-m tools\.mutants")
LIMIT = re.compile(r"^within (\d+) make (\w+)", re.MULTILINE)


def read(name: str) -> str:
    return (ROOT / name).read_text(encoding="utf-8")


def test_every_target_that_tests_is_in_the_table_of_contributors() -> None:
    targets = {
        name for name, recipe in TARGET.findall(read("Makefile")) if RUNS_TESTS.search(recipe)
    }

    assert {"quick", "test", "crash", "chaos", "simulate", "mutants"} <= targets
    rows = set(re.findall(r"^\| `make (\w+)`", read("CONTRIBUTING.md"), re.MULTILINE))
    assert targets <= rows


def test_the_limits_of_ci_are_less_than_an_hour_together() -> None:
    limits = {target: int(minutes) for minutes, target in LIMIT.findall(read(".ci/run"))}

    assert {"check", "test"} <= limits.keys()
    assert sum(limits.values()) < CI_MAX_MINUTES
