"""No requirement can be forgotten: each one is proved, and guarded, or said to be not built yet."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.req_plugin import FULL, PROVED
from tools.mutation import BadMutation, Change, changed, every_mutation, mutations, read_mutation
from tools.requirement import not_built, requirement_ids

FAMILIES = {"T": 8, "R": 8, "C": 8, "D": 6, "K": 8, "L": 6, "E": 8, "S": 1, "M": 3}


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
        f"no mutation in tests/mutations removes the guard of {_listed(unguarded)}, "
        "so nothing shows that its tests can fail; it counts as not built"
    )


def test_every_mutation_applies() -> None:
    assert {each.name: why for each in every_mutation() if (why := each.refusal())} == {}


def test_a_mutation_whose_file_does_not_begin_with_its_id_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "L1-no-fence.toml"
    path.write_text('id = "L2"\nguard = "the fence"\n')

    with pytest.raises(BadMutation, match="the id at the beginning of the file's name"):
        read_mutation(path)


def test_a_mutation_with_an_unknown_field_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "L1-no-fence.toml"
    path.write_text('id = "L1"\nguard = "the fence"\ntest = []\n')

    with pytest.raises(BadMutation, match="test"):
        read_mutation(path)


MODULE = """\
def outer() -> int:
    if a:
        return 1
    return 2


class Fence:
    def check(self) -> int:
        if a:
            return 1
        return 2
"""


def test_a_mutation_finds_its_function_however_deep_it_stands() -> None:
    change = Change(module="m", function="check", old="if a:\n    return 1\n", new="")

    assert changed(MODULE, change) == MODULE.replace("        if a:\n            return 1\n", "")


def test_what_a_mutation_writes_is_as_deep_as_what_it_replaces() -> None:
    change = Change(module="m", function="Fence.check", old="return 1\n", new="if b:\n    pass\n")

    assert "        if a:\n            if b:\n                pass\n" in changed(MODULE, change)


@pytest.mark.parametrize(
    ("function", "old", "reason"),
    [
        ("Fence.check", "return 3\n", "stand 0 times in Fence.check"),
        ("", "if a:\n", "stand 2 times in the module"),
        ("Fence.opened", "return 1\n", "there is no Fence.opened"),
        ("outer", "", "names no old lines"),
    ],
)
def test_a_mutation_that_no_longer_applies_says_why(function: str, old: str, reason: str) -> None:
    with pytest.raises(BadMutation, match=reason):
        changed(MODULE, Change(module="m", function=function, old=old, new=""))


def _listed(names: frozenset[str] | set[str]) -> str:
    return ", ".join(sorted(names))
