"""What docs/explanation/architecture.md says of rooms, files and functions is so."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Sequence
from functools import cache

import pytest

from tools.tree import ROOT

SOURCE = ROOT / "src" / "headrace"
PAGE = (ROOT / "docs" / "explanation" / "architecture.md").read_text(encoding="utf-8")
FORMS = PAGE.partition("\n## The forms of a job\n")[2].partition("\n## ")[0]
TWICE = PAGE.partition("\n## Types that stand twice, and why\n")[2].partition("\n## ")[0]
WALKS = PAGE.partition("\n## Three walks\n")[2].partition("\n## ")[0].split("\n### ")[1:]
TREE = re.compile(r"^```\nsrc/headrace/\n(.*?)^```", re.MULTILINE | re.DOTALL)
BRANCH = re.compile(r"^(?P<depth>(?:│   |    )*)[├└]── (?P<names>\S+(?: \S+)*)")
ENTRY = re.compile(r"`((?:\w+/)*\w+\.py): ([\w.]+)`")
COUNTS = re.compile(r"^(\d+) functions in (\d+) files \(before the re-cut: \d+ files\)\.$")

Function = ast.FunctionDef | ast.AsyncFunctionDef


def rooms() -> Iterator[str]:
    """The rooms of the tree at the top of the page, and its modules, by their paths."""
    tree = TREE.search(PAGE)
    assert tree is not None
    above: list[str] = []
    for branch in filter(None, map(BRANCH.match, tree[1].splitlines())):
        names = branch["names"].split()
        del above[len(branch["depth"]) // 4 :]
        yield from ("/".join([*above, name.rstrip("/")]) for name in names)
        above.append(names[0].rstrip("/"))


def title(walk: str) -> str:
    return walk.partition("\n")[0]


def entries(walk: str) -> Sequence[tuple[str, str]]:
    """The functions that a walk visits, each with its file."""
    return ENTRY.findall(walk)


@cache
def functions_of(file: str) -> frozenset[str]:
    """The functions and methods that a file defines, by their qualified names."""
    body = ast.parse((SOURCE / file).read_text(encoding="utf-8")).body
    methods = {
        f"{each.name}.{method.name}"
        for each in body
        if isinstance(each, ast.ClassDef)
        for method in each.body
        if isinstance(method, Function)
    }
    return frozenset(methods | {each.name for each in body if isinstance(each, Function)})


@pytest.mark.parametrize("room", sorted(rooms()))
def test_a_room_of_the_tree_exists(room: str) -> None:
    assert (SOURCE / room).is_dir() or (SOURCE / f"{room}.py").is_file()


def test_every_room_is_in_the_tree() -> None:
    there = {each.parent.name for each in SOURCE.glob("*/__init__.py")}

    assert there <= set(rooms())


def test_there_are_three_walks() -> None:
    assert len(WALKS) == 3


@pytest.mark.parametrize("walk", WALKS, ids=title)
def test_a_function_of_a_walk_is_where_the_walk_says(walk: str) -> None:
    gone = [file for file, _ in entries(walk) if not (SOURCE / file).is_file()]
    assert not gone

    assert not [f"{file}: {name}" for file, name in entries(walk) if name not in functions_of(file)]


@pytest.mark.parametrize("walk", WALKS, ids=title)
def test_a_walk_counts_its_functions_and_files(walk: str) -> None:
    stated = COUNTS.match(walk.strip().splitlines()[-1])
    visited = set(entries(walk))

    assert stated is not None
    assert (int(stated[1]), int(stated[2])) == (len(visited), len({file for file, _ in visited}))


@pytest.mark.parametrize("walk", WALKS, ids=title)
def test_every_step_of_a_walk_names_functions(walk: str) -> None:
    steps = re.split(r"^\d+\. ", walk, flags=re.MULTILINE)[1:]

    assert 12 <= len(steps) <= 25
    assert not [step for step in steps if not entries(step)]


@pytest.mark.parametrize("table", [FORMS, TWICE], ids=["forms of a job", "types that stand twice"])
def test_every_class_of_a_table_is_where_the_page_says(table: str) -> None:
    named = entries(table)
    assert len(named) > 10
    for file, name in named:
        body = ast.parse((SOURCE / file).read_text(encoding="utf-8")).body
        assert name in {each.name for each in body if isinstance(each, ast.ClassDef)}, file
