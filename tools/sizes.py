"""Fail when a Python file or a function has grown too long to be read in one go."""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

from tools.tree import ROOT, project_files

FILE_LINES_MAX = 300
FUNCTION_LINES_MAX = 40


def too_long(path: Path, text: str) -> Iterator[str]:
    lines = text.count("\n")
    if lines > FILE_LINES_MAX:
        yield f"{path}: {lines} lines, at most {FILE_LINES_MAX}; split it by idea"
    for node in ast.walk(ast.parse(text, filename=str(path))):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            size = (node.end_lineno or node.lineno) - node.lineno + 1
            if size > FUNCTION_LINES_MAX:
                yield (
                    f"{path}:{node.lineno}: {node.name} has {size} lines, "
                    f"at most {FUNCTION_LINES_MAX}"
                )


def main() -> int:
    found = [
        line
        for path in project_files("*.py")
        for line in too_long(path, (ROOT / path).read_text(encoding="utf-8"))
    ]
    for line in found:
        print(line)
    print(f"sizes: {len(found)} too long")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
