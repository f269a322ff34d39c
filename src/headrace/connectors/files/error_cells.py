"""Cells of an excel sheet that hold an error, like #N/A or #DIV/0!.

The reader of excel files gives them as empty, and so they would become null without a word. Here
they are looked for in the sheet itself, of .xlsx and .xlsm files; older formats are passed over.
"""

from __future__ import annotations

import re
import zipfile
from collections.abc import Iterator
from typing import IO
from xml.etree import ElementTree

READ_BYTES = 1 << 20  # of a sheet at a time
_BOOK, _PARTS = "xl/workbook.xml", "xl/_rels/workbook.xml.rels"
_CELL = re.compile(rb"<(?:\w+:)?c\s(?=[^>]*\bt=[\"']e[\"'])[^>]*\br=[\"']([A-Z]+)([0-9]+)[\"']")


def error_cell(book: IO[bytes], sheet: str, *, skip: int, width: int) -> str | None:
    """The first cell with an error, as `B7`, below `skip` rows and in the first `width` columns.

    A width of 0 means all columns.
    """
    if not zipfile.is_zipfile(book):
        return None
    with zipfile.ZipFile(book) as opened:
        part = _part_of(opened, sheet)
        if part is None:
            return None
        with opened.open(part) as rows:
            for letters, row in _error_cells(rows):
                if row > skip and (not width or _column(letters) <= width):
                    return f"{letters}{row}"
    return None


def _part_of(opened: zipfile.ZipFile, sheet: str) -> str | None:
    """The file of a sheet inside of the book; None where it is no such book."""
    names = set(opened.namelist())
    if not names >= {_BOOK, _PARTS}:
        return None
    targets = {
        one.get("Id"): one.get("Target", "")
        for one in ElementTree.fromstring(opened.read(_PARTS))  # noqa: S314 - as in records.py
    }
    for one in ElementTree.fromstring(opened.read(_BOOK)).iter():  # noqa: S314 - as above
        if one.tag.endswith("}sheet") and one.get("name") == sheet:
            ids = (value for key, value in one.attrib.items() if key.endswith("}id"))
            target = targets.get(next(ids, None), "")
            part = target.lstrip("/") if target.startswith("/") else f"xl/{target}"
            return part if part in names else None
    return None


def _error_cells(rows: IO[bytes]) -> Iterator[tuple[str, int]]:
    rest = b""
    while block := rows.read(READ_BYTES):
        text = rest + block
        cut = text.rfind(b"<")  # a tag that goes on in the next block
        for found in _CELL.finditer(text, 0, cut):
            yield found[1].decode(), int(found[2])
        rest = text[cut:]


def _column(letters: str) -> int:
    """1 for A, 27 for AA."""
    number = 0
    for letter in letters:
        number = number * 26 + ord(letter) - ord("A") + 1
    return number
