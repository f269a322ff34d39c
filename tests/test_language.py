"""What the product is written in."""

from __future__ import annotations

from pathlib import Path

import pytest

import headrace

DATA = {".typed", ".properties", ".html", ".css"}  # beside the code, none of it runs


@pytest.mark.req("M2")
def test_the_product_is_written_in_python() -> None:
    package = Path(headrace.__file__).parent
    files = [
        path for path in package.rglob("*") if path.is_file() and "__pycache__" not in path.parts
    ]
    others = {path.suffix or path.name for path in files} - {".py", "py.typed"} - DATA
    assert others == set()
    assert sum(path.suffix == ".py" for path in files) > 100
