"""Half of the tests run on each store, and none is lost between them."""

from __future__ import annotations

import subprocess
import sys
from collections import Counter

import pytest

from tests.turns import STORES, turn_of
from tools.tree import ROOT

MANY = 1000
OF_DECISIONS = "tests/coordinator/jobs/test_kept.py"
OF_DIALECTS = "tests/store/core/test_fence.py"
COLLECT = ("-m", "pytest", "--collect-only", "-q", "-p", "no:cacheprovider", "-p", "no:randomly")


def collected(*options: str) -> set[str]:
    done = subprocess.run(
        [sys.executable, *COLLECT, *options, OF_DECISIONS, OF_DIALECTS],
        check=True,
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    return {line for line in done.stdout.splitlines() if "::" in line}


def on(tests: set[str], store: str) -> set[str]:
    """Those of one store, by what they are called on both."""
    return {test.replace(f"[{store}", "[") for test in tests if f"[{store}" in test}


@pytest.mark.processes
def test_a_test_of_decisions_runs_on_one_store_and_one_of_dialects_on_both() -> None:
    every, usual = collected("--both-stores"), collected()

    both = on(every, STORES[0])
    assert both == on(every, STORES[1])
    assert any(test.startswith(OF_DECISIONS) for test in both)
    assert any(test.startswith(OF_DIALECTS) for test in both)
    here, there = (on(usual, store) for store in STORES)
    assert here | there == both, "none is lost"
    assert here & there == {test for test in both if test.startswith(OF_DIALECTS)}


def test_each_store_has_about_half_of_the_turns() -> None:
    turns = Counter(turn_of(f"tests/test_a.py::test_{number}[]") for number in range(MANY))

    assert min(turns[store] for store in STORES) > 0.4 * MANY
