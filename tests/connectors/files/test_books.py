"""Excel files as tasks write them: one for each folder, with values that come back as they were."""

from __future__ import annotations

import importlib
from datetime import date, datetime
from pathlib import Path
from typing import Any

import pytest

from headrace.connectors.files.executor_write import BookForm, write_part_books
from headrace.connectors.files.records import RecordForm, records

arrow: Any = importlib.import_module("pyarrow")


def written(folder: Path, columns: Any, *keys: str) -> list[dict[str, Any]]:
    form = BookForm(
        folder=str(folder),
        keys=keys,
        columns=("v",),
        rows_max=0,
        sheet="s",
        sheet_rows_max=100,
        keep_empty=False,
    )
    batches = write_part_books(form, [arrow.RecordBatch.from_pydict(columns)])
    return [row for batch in batches for row in batch.to_pylist()]


def test_null_empty_and_nan_keys_make_one_book_for_each_folder(tmp_path: Path) -> None:
    numbers = [1.0, 1.0, float("nan"), float("nan")]
    columns = {"k": [None, "", "a", "a"], "n": numbers, "v": [1, 2, 3, 4]}
    assert [row["rows"] for row in written(tmp_path, columns, "k", "n")] == [2, 2]


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (datetime(1900, 1, 1), "1900-01-01 00:00:00"),  # noqa: DTZ001  excel has no zones
        (datetime(1900, 1, 1, 12), "1900-01-01 12:00:00"),  # noqa: DTZ001
        (datetime(1900, 1, 2, 12), "1900-01-02 12:00:00"),  # noqa: DTZ001
        (date(1900, 1, 1), "1900-01-01"),
        (date(1899, 12, 31), "1899-12-31"),
    ],
)
def test_the_first_days_of_excel_are_read_back(tmp_path: Path, value: date, text: str) -> None:
    [row] = written(tmp_path, {"v": [value]})
    with (tmp_path / row["path"]).open("rb") as file:
        _, found = records(file, RecordForm(format="excel"))
    assert list(found.cells) == [text]
