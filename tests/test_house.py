"""The house: how src is laid out, so that a newcomer finds his way by `ls` and by grep."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import pytest

import headrace

PACKAGE = Path(headrace.__file__).parent
# Without migrations: each schema change adds one for ever, none can be glued to another, and nobody
# has to know them to find something. A connector is a package with a descriptor of its own, which
# is read without its code (ADR 32).
FILES_MAX = 380
FILES_PER_ROOM_MAX = 25
# Migrations are numbered on purpose: they are run in that order.
NUMBERED = PACKAGE / "store" / "migrations" / "versions"
ENDINGS = ("ations", "ation", "ings", "ing", "ers", "er", "ies", "ed", "es", "s", "e")


def modules() -> Iterator[Path]:
    return (path for path in PACKAGE.rglob("*.py") if not path.is_relative_to(NUMBERED))


def rooms() -> dict[Path, list[Path]]:
    found: defaultdict[Path, list[Path]] = defaultdict(list)
    for path in modules():
        found[path.parent].append(path)
    return found


def stem_of(name: str) -> str:
    """`evaluating`, `evaluations` and `evaluate` are one stem: nobody keeps them apart."""
    bare = re.sub(r"_?\d+$", "", name)
    ending = next(
        (each for each in ENDINGS if bare.endswith(each) and len(bare) > len(each) + 3), ""
    )
    return bare.removesuffix(ending)


def test_no_public_class_name_is_defined_twice() -> None:
    places: defaultdict[str, list[str]] = defaultdict(list)
    for path in modules():
        for node in ast.parse(path.read_text()).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                places[node.name].append(path.relative_to(PACKAGE).as_posix())
    assert {name: where for name, where in places.items() if len(where) > 1} == {}


def test_there_are_few_enough_files_to_be_known() -> None:
    """Migrations don't count: each is written once and never opened again, and they only grow."""
    files = [
        path
        for path in PACKAGE.rglob("*")
        if path.is_file() and not {"__pycache__", "versions"} & {*path.parts}
    ]
    assert len(files) <= FILES_MAX
    crowded = {
        room: len(paths) for room, paths in rooms().items() if len(paths) > FILES_PER_ROOM_MAX
    }
    assert crowded == {}


def test_no_two_modules_of_a_room_differ_only_by_an_ending_or_a_number() -> None:
    for paths in rooms().values():
        by_stem: defaultdict[str, list[str]] = defaultdict(list)
        for path in paths:
            by_stem[stem_of(path.stem)].append(path.name)
        assert {stem: names for stem, names in by_stem.items() if len(names) > 1} == {}


def test_modules_are_named_by_nouns() -> None:
    named = {path.stem for path in modules() if path.stem.endswith(("ing", "ly"))}
    assert named - {"keyring"} == set()


def test_every_room_and_every_module_says_what_it_is_for() -> None:
    silent = [path for path in modules() if ast.get_docstring(ast.parse(path.read_text())) is None]
    assert silent == []


# Each would be felt: together they take ten times as long to import as all of `headrace --help`.
HEAVY = (
    *("pyspark", "py4j", "pyarrow"),
    *("sqlalchemy", "alembic", "psycopg", "cryptography"),
    *("fastapi", "uvicorn", "httpx2", "pydantic", "pydantic_settings"),
    *("lark", "psutil", "rich", "yaml"),
)


@pytest.mark.parametrize("argument", ["--help", "--version"])
def test_help_loads_nothing_heavy(argument: str) -> None:
    code = (
        "import sys, atexit\n"
        f"atexit.register(lambda: print([m for m in {HEAVY!r} if m in sys.modules]))\n"
        f"sys.argv = ['headrace', {argument!r}]\n"
        "import headrace.__main__"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], check=True, capture_output=True, text=True, timeout=300
    )
    assert done.stdout.splitlines()[-1] == "[]"
