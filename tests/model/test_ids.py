"""New ids are never the same, and a name that somebody chose is fit to be part of a path."""

from __future__ import annotations

import re

import pytest

from headrace.errors import BadSetting
from headrace.model.ids import RandomIds, check_name
from headrace.model.task import Claim


def test_new_ids_differ_and_are_what_a_prefix_is_looked_up_in() -> None:
    ids = RandomIds()
    made = {ids.new() for _ in range(100)}

    assert len(made) == 100
    assert all(re.fullmatch(r"[0-9a-f]{32}", each) for each in made)


@pytest.mark.parametrize("name", ["default", "g1", "A.b_c-d", "9", "x" * 100])
def test_a_plain_name_is_accepted(name: str) -> None:
    check_name("--group", name)


@pytest.mark.parametrize("name", ["", "..", ".hidden", "-x", "a/b", "a b", "ä", "x" * 101])
def test_a_name_that_could_not_be_part_of_a_path_is_refused(name: str) -> None:
    with pytest.raises(BadSetting, match=r"^--group .* can't be used; take up to 100 letters"):
        check_name("--group", name)


def test_an_execution_is_named_by_its_task_and_its_attempt() -> None:
    assert Claim("t1", 2).execution == "t1.2"
    assert Claim("t1", 2) > Claim("t1", 1)
