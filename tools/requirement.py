"""The requirements, the list of those not built yet, and the mutations, as they stand in files."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tools.tree import ROOT

PAGE = ROOT / "docs" / "requirements.md"
NOT_BUILT = ROOT / "tests" / "not_built.txt"
MUTATIONS = ROOT / "tests" / "mutations"

_ID = re.compile(r"[A-Z]\d+")
_HEADING = re.compile(rf"^### ({_ID.pattern})\b", re.MULTILINE)


class BadFile(Exception):
    """One of the files read here does not have the form it must have."""


def requirement_ids() -> frozenset[str]:
    """Every id that has a heading of its own on the requirements page."""
    found = Counter(_HEADING.findall(PAGE.read_text(encoding="utf-8")))
    if twice := sorted(name for name, times in found.items() if times > 1):
        raise BadFile(f"{PAGE.name}: {', '.join(twice)} has more than one heading")
    return frozenset(found)


def not_built() -> dict[str, str]:
    """Ids that are not built yet, each with its reason."""
    reasons: dict[str, str] = {}
    for number, line in enumerate(NOT_BUILT.read_text(encoding="utf-8").splitlines(), start=1):
        if not line.strip() or line.startswith("#"):
            continue
        name, _, reason = line.partition(" ")
        if not _ID.fullmatch(name) or not reason.strip() or name in reasons:
            raise BadFile(
                f"{NOT_BUILT.name}:{number}: expected an id that stands here once, a space and "
                f"a reason, found {line!r}"
            )
        reasons[name] = reason.strip()
    return reasons


@dataclass(frozen=True, slots=True)
class Mutation:
    """A patch that removes the guard of one requirement."""

    requirement: str
    path: Path
    guard: str  # what it removes, for people
    tests: tuple[str, ...]  # node ids to narrow to; all tests of the requirement when empty

    @property
    def name(self) -> str:
        return self.path.stem


def read_mutation(path: Path) -> Mutation:
    """Read `# ID`, `# guard`, then any number of `# tests: node …`; the diff follows."""
    comments: list[str] = []
    for line in path.read_text(encoding="utf-8").splitlines():
        if not line.startswith("#"):
            break
        comments.append(line.removeprefix("#").strip())
    if len(comments) < 2 or not path.name.startswith(f"{comments[0]}-"):
        raise BadFile(
            f"{path.name}: expected `# ID` as the file name says it, then `# the guard it "
            "removes`, before the diff"
        )
    tests = [node for line in comments if line.startswith("tests:") for node in line.split()[1:]]
    return Mutation(comments[0], path, comments[1], tuple(tests))


def mutations() -> Iterator[Mutation]:
    for path in sorted(MUTATIONS.glob("*.patch")):
        yield read_mutation(path)
