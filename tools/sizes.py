"""Fail when a Python file or a function has grown too long to be read in one go.

A file is one idea told to its end. Past the first limit a size is questioned, and printed; past
the second it fails. A limit that cuts an idea in two is worse than none.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tools.tree import ROOT, project_files

FILE_LINES_QUESTIONED = 300
FILE_LINES_MAX = 500
FUNCTION_LINES_QUESTIONED = 40
FUNCTION_LINES_MAX = 70


@dataclass(frozen=True, slots=True)
class Oversize:
    """A file or a function past a limit; `fails` when it is past the second one."""

    line: str
    fails: bool


def too_long(path: Path, text: str) -> Iterator[Oversize]:
    lines = text.count("\n")
    if lines > FILE_LINES_QUESTIONED:
        fails = lines > FILE_LINES_MAX
        yield Oversize(f"{path}: {lines} lines, at most {FILE_LINES_MAX}", fails=fails)
    for node in ast.walk(ast.parse(text, filename=str(path))):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            size = (node.end_lineno or node.lineno) - node.lineno + 1
            if size > FUNCTION_LINES_QUESTIONED:
                line = (
                    f"{path}:{node.lineno}: {node.name} has {size} lines, "
                    f"at most {FUNCTION_LINES_MAX}"
                )
                yield Oversize(line, fails=size > FUNCTION_LINES_MAX)


def main() -> int:
    found = [
        oversize
        for path in project_files("*.py")
        for oversize in too_long(path, (ROOT / path).read_text(encoding="utf-8"))
    ]
    for oversize in found:
        print(f"{'error' if oversize.fails else 'warning'}: {oversize.line}")
    failed = sum(oversize.fails for oversize in found)
    print(f"sizes: {failed} too long, {len(found) - failed} to be questioned")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
