"""Show that code was moved and renamed, and that nothing else was done to it.

`python -m tools.moved REVISION` compares src/ as it was with src/ as it is. Every function, class
frame and module-level statement of the one must be found in the other, at whatever place: the same
tree of syntax, the same constants, the same names. Names may differ in three ways only. A local
one may be called otherwise throughout its function. Others may be as tools/moved.toml says
(`names`). And a module's prefix may come or go, when what it stood for has moved nearer or further
away. Docstrings, comments and imports are not compared. What differs beyond that is listed in
`changed`, each with its reason; anything else fails.
"""

from __future__ import annotations

import argparse
import ast
import io
import subprocess
import sys
import tarfile
import tomllib
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import cast

from tools.tree import ROOT

SOURCE = "src"
REASONS = Path(__file__).with_suffix(".toml")
GIT_LIMIT_S = 60

Function = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(frozen=True, slots=True)
class Name:
    """An identifier at its place in a unit; a local one is free to be renamed."""

    text: str
    is_local: bool


@dataclass(frozen=True, slots=True)
class Unit:
    """A function with its body, a class without its methods, or a statement of a module."""

    where: str  # module:qualified name
    shape: str  # the tree, with every identifier left out
    names: tuple[Name, ...]


def units_of(texts: Mapping[str, str]) -> Iterator[Unit]:
    """`texts`: the text of each module, by its dotted name."""
    for module, text in texts.items():
        tree = ast.parse(text)
        prefixes = _imported_modules(tree, texts)
        for node in tree.body:
            yield from _units(node, module, "", prefixes)


def _imported_modules(tree: ast.AST, texts: Mapping[str, str]) -> frozenset[str]:
    """Names that stand for modules of ours: `jobs` in `jobs.get`."""
    return frozenset(
        alias.asname or alias.name
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
        if f"{node.module}.{alias.name}" in texts
    )


def _units(node: ast.stmt, module: str, scope: str, prefixes: frozenset[str]) -> Iterator[Unit]:
    if isinstance(node, ast.Import | ast.ImportFrom) or _is_docstring(node):
        return
    if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test):
        return
    if isinstance(node, ast.ClassDef):
        methods = [each for each in node.body if isinstance(each, Function | ast.ClassDef)]
        for each in methods:
            yield from _units(each, module, f"{scope}{node.name}.", prefixes)
        rest = [each for each in node.body if each not in methods and not _is_docstring(each)]
        node = ast.ClassDef(
            node.name, node.bases, node.keywords, rest, node.decorator_list, *_type_params(node)
        )
    name = getattr(node, "name", None) or _targets(node)
    shape, names = _Reader(prefixes, _locals_of(node)).read(node)
    yield Unit(f"{module}:{scope}{name}", shape, names)


def _type_params(node: ast.ClassDef) -> list[object]:
    found: object = getattr(node, "type_params", None)  # from Python 3.12 on
    return [] if found is None else [found]


def _targets(node: ast.stmt) -> str:
    return next((each.id for each in ast.walk(node) if isinstance(each, ast.Name)), "")


def _is_docstring(node: ast.AST) -> bool:
    return (
        isinstance(node, ast.Expr)
        and isinstance(node.value, ast.Constant)
        and isinstance(node.value.value, str)
    )


def _locals_of(node: ast.AST) -> frozenset[str]:
    """What a function binds itself: its arguments, its variables, its inner functions."""
    if not isinstance(node, Function):
        return frozenset()
    found: set[str] = set()
    for each in ast.walk(node):
        if each is node:
            continue
        if isinstance(each, ast.arg):
            found.add(each.arg)
        elif isinstance(each, ast.Name) and isinstance(each.ctx, ast.Store):
            found.add(each.id)
        elif isinstance(each, Function | ast.ExceptHandler | ast.MatchAs | ast.MatchStar):
            found.add(each.name or "")
    return frozenset(found)


class _Reader:
    """Takes a tree apart: what it looks like, and which names stand in it, in order."""

    def __init__(self, prefixes: frozenset[str], local: frozenset[str]) -> None:
        self._prefixes, self._local = prefixes - local, local
        self._names: list[Name] = []

    def read(self, node: ast.AST) -> tuple[str, tuple[Name, ...]]:
        return self._shape(node), tuple(self._names)

    def _shape(self, node: object) -> str:
        if isinstance(node, list):
            items = cast("list[object]", node)
            return f"[{','.join(self._shape(each) for each in items if not _is_skipped(each))}]"
        if not isinstance(node, ast.AST):
            return repr(node)
        if (
            isinstance(node, ast.Attribute)
            and isinstance(node.value, ast.Name)
            and node.value.id in self._prefixes
        ):
            node = ast.Name(node.attr, node.ctx)
        fields = (self._field(node, value) for _, value in ast.iter_fields(node))
        return f"{type(node).__name__}({','.join(fields)})"

    def _field(self, node: ast.AST, value: object) -> str:
        is_name = isinstance(value, str) and not isinstance(node, ast.Constant)
        if not is_name:
            return self._shape(value)
        assert isinstance(value, str)
        # Keyword arguments and attributes belong to somebody else, whatever is local here.
        local = value in self._local and not isinstance(node, ast.keyword | ast.Attribute)
        self._names.append(Name(value, local))
        return "_"


def _is_skipped(node: object) -> bool:
    """Docstrings, and imports inside of functions."""
    return isinstance(node, ast.AST) and (
        _is_docstring(node) or isinstance(node, ast.Import | ast.ImportFrom)
    )


def is_same(before: Unit, after: Unit, renamed: Mapping[str, frozenset[str]]) -> bool:
    """Of one shape, whether their names agree, or differ as they may."""
    forth: dict[str, str] = {}
    back: dict[str, str] = {}
    for old, new in zip(before.names, after.names, strict=True):
        if old.is_local != new.is_local:
            return False
        if old.is_local:
            if forth.setdefault(old.text, new.text) != new.text:
                return False
            if back.setdefault(new.text, old.text) != old.text:
                return False
        elif old.text != new.text and new.text not in renamed.get(old.text, ()):
            return False
    return True


@dataclass(frozen=True, slots=True)
class Difference:
    gone: list[str]  # stood there before, and nothing like it stands anywhere now
    new: list[str]


def compare(
    before: Mapping[str, str], after: Mapping[str, str], renamed: Mapping[str, frozenset[str]]
) -> Difference:
    left: defaultdict[str, list[Unit]] = defaultdict(list)
    for unit in units_of(after):
        left[unit.shape].append(unit)
    gone: list[str] = []
    waiting: list[Unit] = []
    for unit in units_of(before):
        # The very same names first, so that nobody takes another one's twin.
        if (twin := _pick(unit, left[unit.shape], {})) is not None:
            left[unit.shape].remove(twin)
        else:
            waiting.append(unit)
    met = {(unit.shape, unit.names) for unit in units_of(after)}
    for unit in waiting:
        if (twin := _pick(unit, left[unit.shape], renamed)) is not None:
            left[unit.shape].remove(twin)
        elif (unit.shape, unit.names) not in met:  # else modules that said the same became one
            gone.append(unit.where)
    return Difference(gone, [unit.where for units in left.values() for unit in units])


def _pick(unit: Unit, candidates: list[Unit], renamed: Mapping[str, frozenset[str]]) -> Unit | None:
    return next((each for each in candidates if is_same(unit, each, renamed)), None)


def tree_at(revision: str) -> dict[str, str]:
    """The modules below src/ as they were committed."""
    packed = subprocess.run(
        ["git", "archive", "--format=tar", revision, SOURCE],
        cwd=ROOT,
        check=True,
        capture_output=True,
        timeout=GIT_LIMIT_S,
    ).stdout
    found: dict[str, str] = {}
    with tarfile.open(fileobj=io.BytesIO(packed)) as archive:
        for member in archive:
            file = archive.extractfile(member) if member.name.endswith(".py") else None
            if file is not None:
                found[_module(Path(member.name))] = file.read().decode()
    return found


def tree_now() -> dict[str, str]:
    return {
        _module(path.relative_to(ROOT)): path.read_text(encoding="utf-8")
        for path in (ROOT / SOURCE).rglob("*.py")
    }


def _module(path: Path) -> str:
    parts = path.with_suffix("").parts[1:]
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("revision", help="the tree before")
    asked = parser.parse_args()
    reasons = tomllib.loads(REASONS.read_text(encoding="utf-8"))
    renamed = {old: frozenset(new) for old, new in reasons["names"].items()}
    before, after = tree_at(asked.revision), tree_now()
    found = compare(before, after, renamed)
    explained: Mapping[str, str] = reasons["changed"]
    unexplained = 0
    for sign, places in (("-", found.gone), ("+", found.new)):
        for where in sorted(places):
            reason = explained.get(where)
            unexplained += reason is None
            print(f"{sign} {where}  {reason or 'NOT EXPLAINED'}")
    units = sum(1 for _ in units_of(after))
    print(
        f"{len(before)} modules became {len(after)}; of {units} functions, class frames and "
        f"statements {len(found.new)} are new or changed, {unexplained} of them without a reason"
    )
    return 1 if unexplained else 0


if __name__ == "__main__":
    sys.exit(main())
