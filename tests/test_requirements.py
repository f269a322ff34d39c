"""No requirement can be forgotten: each one is proved, and guarded, or said to be not built yet."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.req_plugin import FULL, PROVED
from tools.requirement import BadFile, mutations, not_built, read_mutation, requirement_ids
from tools.tree import ROOT

FAMILIES = {"T": 8, "R": 8, "C": 8, "D": 6, "K": 7, "L": 4, "E": 6, "M": 3}
GIT_LIMIT_S = 30


@pytest.fixture
def proved(pytestconfig: pytest.Config) -> frozenset[str]:
    if not pytestconfig.stash[FULL]:
        pytest.skip("only a full run collects every test: no paths, -k, -m or --req")
    return pytestconfig.stash[PROVED]


def test_the_requirements_page_carries_every_id() -> None:
    expected = {f"{family}{n + 1}" for family, count in FAMILIES.items() for n in range(count)}

    assert requirement_ids() == expected


def test_every_requirement_is_proved_or_said_to_be_not_built(proved: frozenset[str]) -> None:
    forgotten = requirement_ids() - proved - not_built().keys()

    assert not forgotten, (
        f"nothing proves {_listed(forgotten)}: mark a test with @pytest.mark.req, "
        "or say in tests/not_built.txt why it is not built yet"
    )


def test_no_requirement_is_both_proved_and_said_to_be_not_built(proved: frozenset[str]) -> None:
    both = proved & not_built().keys()

    assert not both, f"{_listed(both)}: take it out of tests/not_built.txt, or unmark its tests"


def test_only_known_requirements_are_named(proved: frozenset[str]) -> None:
    known = requirement_ids()

    assert not proved - known, f"a marker names {_listed(proved - known)}, which is not on the page"
    assert not_built().keys() <= known
    assert {mutation.requirement for mutation in mutations()} <= known


def test_every_proved_requirement_has_a_mutation(proved: frozenset[str]) -> None:
    unguarded = proved - {mutation.requirement for mutation in mutations()}

    assert not unguarded, (
        f"no patch in tests/mutations removes the guard of {_listed(unguarded)}, "
        "so nothing shows that its tests can fail; it counts as not built"
    )


def test_every_mutation_applies() -> None:
    broken = {mutation.name: why for mutation in mutations() if (why := _refusal(mutation.path))}

    assert not broken


def test_a_mutation_without_its_two_lines_is_refused(tmp_path: Path) -> None:
    patch = tmp_path / "L1-no-fence.patch"
    patch.write_text("# L2\n# the fence\ndiff --git a/x b/x\n")

    with pytest.raises(BadFile, match="as the file name says it"):
        read_mutation(patch)


def test_a_mutation_says_its_guard_and_its_tests(tmp_path: Path) -> None:
    patch = tmp_path / "L1-no-fence.patch"
    patch.write_text("# L1\n# the fence\n# tests: tests/a.py::b tests/c.py\ndiff --git a/x b/x\n")

    mutation = read_mutation(patch)

    assert (mutation.requirement, mutation.guard) == ("L1", "the fence")
    assert mutation.tests == ("tests/a.py::b", "tests/c.py")


def _refusal(patch: Path) -> str:
    """What git says against the patch; empty when it applies."""
    tried = subprocess.run(
        ["git", "apply", "--check", str(patch)],
        check=False,
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=GIT_LIMIT_S,
    )
    return "" if tried.returncode == 0 else tried.stderr.strip() or "git refused it"


def _listed(names: frozenset[str] | set[str]) -> str:
    return ", ".join(sorted(names))
