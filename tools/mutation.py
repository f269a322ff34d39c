"""A mutation: the guard that is taken away, as data that survives a move of the code.

A file of tests/mutations (or tests/simulation/mutations) is TOML. Each change names a module and a
function, both found by ast, and the lines there that become others. Lines are compared without
the indentation that they share, and must stand in the function exactly once. Whoever moves the
function changes its address here, and nothing else; `make check` says so when it was forgotten.
"""

from __future__ import annotations

import ast
import re
import tomllib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from textwrap import dedent

from pydantic import BaseModel, ConfigDict, ValidationError

from tools.tree import ROOT

SOURCE = "src"
MUTATIONS = ROOT / "tests" / "mutations"
OF_THE_SIMULATION = ROOT / "tests" / "simulation" / "mutations"

_ID = re.compile(r"[A-Z]\d+")


class BadMutation(Exception):
    """A mutation that can't be read, or that does not apply to the tree."""


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Change(_Strict):
    """Lines of a function that become others. An empty `function` stands for the whole module."""

    module: str
    function: str = ""
    old: str
    new: str


class NewFile(_Strict):
    path: str
    text: str


class _Written(_Strict):
    id: str | None = None
    guard: str
    tests: tuple[str, ...] = ()
    each: bool = False
    simulation: str | None = None
    change: tuple[Change, ...] = ()
    file: tuple[NewFile, ...] = ()


@dataclass(frozen=True, slots=True)
class Mutation:
    name: str
    requirement: str | None  # none: it only serves the simulation
    guard: str  # what goes, for people
    tests: tuple[str, ...]  # node ids to narrow to; all tests of the requirement when empty
    each: bool  # whether each of the tests must fail, and not only one of them
    simulation: str | None  # the invariant that catches it, and the histories in which it does
    changes: Sequence[Change]
    files: Sequence[NewFile]

    def apply(self, tree: Path) -> None:
        """Change the copy of the project at `tree`. BadMutation: it does not fit it."""
        for change in self.changes:
            path = _path_of(tree, change.module)
            if not path.is_file():
                raise BadMutation(f"{self.name}: there is no module {change.module}")
            try:
                path.write_text(changed(path.read_text(encoding="utf-8"), change))
            except BadMutation as error:
                raise BadMutation(f"{self.name}: {change.module}: {error}") from None
        for new in self.files:
            path = tree / new.path
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(new.text)

    def refusal(self) -> str | None:
        """Why it does not apply to this tree; None when it does, and the outcome compiles."""
        texts: dict[str, str] = {}
        for change in self.changes:
            path = _path_of(ROOT, change.module)
            if not path.is_file():
                return f"there is no module {change.module}"
            before = texts.get(change.module) or path.read_text(encoding="utf-8")
            try:
                texts[change.module] = changed(before, change)
                ast.parse(texts[change.module])
            except BadMutation as error:
                return f"{change.module}: {error}"
            except SyntaxError as error:
                return f"{change.module} can't be imported any more: {error}"
        return None if self.changes or self.files else "it changes nothing"


def changed(text: str, change: Change) -> str:
    """The module's text after the change. BadMutation: the lines are not there exactly once."""
    lines = text.splitlines(keepends=True)
    first, last = _span(text, change.function)
    old = dedent(change.old).strip("\n").splitlines()
    if not old:
        raise BadMutation("it names no old lines")
    found = [
        start
        for start in range(first, last - len(old) + 1)
        if dedent("".join(lines[start : start + len(old)])).rstrip("\n").splitlines() == old
    ]
    if len(found) != 1:
        where = change.function or "the module"
        raise BadMutation(f"its old lines stand {len(found)} times in {where}, expected once")
    (start,) = found
    by = _margin(lines[start]) - _margin(change.old.strip("\n"))
    new = [_shifted(line, by) for line in change.new.splitlines(keepends=True)]
    return "".join([*lines[:start], *new, *lines[start + len(old) :]])


def _margin(line: str) -> int:
    return len(line) - len(line.lstrip(" "))


def _shifted(line: str, by: int) -> str:
    """A line as deep as the place it goes to: the function may have moved into a class."""
    if not line.strip():
        return line
    return " " * by + line if by >= 0 else line[-by:]


def _span(text: str, function: str) -> tuple[int, int]:
    """Where the lines of a function or class are: from the first to the one behind the last."""
    if not function:
        return 0, len(text.splitlines())
    scope: ast.AST = ast.parse(text)
    for name in function.split("."):
        inner = [
            node
            for node in ast.walk(scope)
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef)
            and node.name == name
        ]
        if not inner:
            raise BadMutation(f"there is no {function}")
        scope = inner[0]
    assert isinstance(scope, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef)
    first = min([scope.lineno, *(each.lineno for each in scope.decorator_list)])
    return first - 1, scope.end_lineno or first


def _path_of(tree: Path, module: str) -> Path:
    path = tree.joinpath(SOURCE, *module.split("."))
    return path / "__init__.py" if path.is_dir() else path.with_suffix(".py")


def read_mutation(path: Path) -> Mutation:
    try:
        written = _Written.model_validate(tomllib.loads(path.read_text(encoding="utf-8")))
    except (tomllib.TOMLDecodeError, ValidationError) as error:
        raise BadMutation(f"{path.name}: {error}") from None
    if written.id is not None and not (
        _ID.fullmatch(written.id) and path.name.startswith(f"{written.id}-")
    ):
        raise BadMutation(f"{path.name}: expected the id at the beginning of the file's name")
    if written.each and not written.tests:
        raise BadMutation(f"{path.name}: 'each' needs 'tests'")
    return Mutation(
        path.stem,
        written.id,
        written.guard,
        written.tests,
        written.each,
        written.simulation,
        written.change,
        written.file,
    )


def mutations() -> Iterator[Mutation]:
    """Those of requirements."""
    for path in sorted(MUTATIONS.glob("*.toml")):
        yield read_mutation(path)


def simulated_mutations() -> Iterator[Mutation]:
    """Those that histories of the simulation must catch."""
    for path in sorted([*MUTATIONS.glob("*.toml"), *OF_THE_SIMULATION.glob("*.toml")]):
        if (mutation := read_mutation(path)).simulation is not None:
            yield mutation


def every_mutation() -> Iterator[Mutation]:
    for folder in (MUTATIONS, OF_THE_SIMULATION):
        for path in sorted(folder.glob("*.toml")):
            yield read_mutation(path)
