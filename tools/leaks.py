"""Fail when a file of the project says where it was written.

Two things must never be committed: the host of a package registry or mirror, since a clone
elsewhere would try to reach it, and an absolute path of somebody's machine. The checkout's own
path and the home folder of whoever runs this are looked for as well, whatever they are.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path

from tools.tree import ROOT, project_files

LEAKS = {
    "a package registry": re.compile(
        r"(index-url|find-links|trusted-host)\s*[=: ]\s*\S*[./]"
        r"|https?://[\w.-]*(artifactory|nexus|registry|pythonhosted|pypi)[\w.-]*[:/]",
        re.IGNORECASE,
    ),
    "a credential in an address": re.compile(r"https?://[^\s/:@\"'{}<>]+:[^\s/@\"'{}<>]+@"),
    "a path of a developer's machine": re.compile(
        r"(?<![\w.~-])(/home/\w[\w.-]*/|/Users/\w[\w.-]*/|/root/|[A-Z]:\\Users\\)"
    ),
}
A_LOCK_HOLDS_NO_ADDRESS = re.compile(r"\w+://")


def here() -> Iterator[str]:
    """Paths of this very machine that are telling enough to be searched for."""
    for path in (ROOT, Path.home()):
        if len(path.parts) > 2:  # "/" and "/app" stand in many an honest file
            yield str(path)


def leaks_of(path: Path) -> Iterator[str]:
    try:
        text = (ROOT / path).read_text(encoding="utf-8")
    except UnicodeDecodeError:
        return  # not text
    yield from leaks_in(path, text)


def leaks_in(path: Path, text: str) -> Iterator[str]:
    paths = tuple(here())
    for number, line in enumerate(text.splitlines(), start=1):
        kinds = [kind for kind, pattern in LEAKS.items() if pattern.search(line)]
        kinds += [f"the path {found}" for found in paths if found in line]
        if path.suffix == ".lock" and A_LOCK_HOLDS_NO_ADDRESS.search(line):
            kinds.append("an address in a lock file")
        for kind in kinds:
            yield f"{path}:{number}: {kind}: {line.strip()[:100]}"


def main() -> int:
    myself = Path(__file__).resolve().relative_to(ROOT)
    found = [leak for path in project_files() if path != myself for leak in leaks_of(path)]
    for line in found:
        print(line)
    print(f"leaks: {len(found)} found")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
