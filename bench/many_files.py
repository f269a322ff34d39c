"""Make a table of a hundred thousand files that were never written: for a plan they need not be.

    python -m bench.many_files FOLDER FILES

In a process of its own, so that what planning takes of memory is not hidden by what this took.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from bench.lake import lake, sql, warehouse_of
from headrace.lake.catalog import TableRef
from headrace.lake.iceberg.catalogs import embedded_catalog, load_table
from headrace.lake.iceberg.file_records import data_files
from headrace.spark.jvm_bridge import jvm

NAMESPACE, NAME = "bench", "many"
COLUMNS = "id bigint, part int, customer bigint, amount double, channel string, note string"
COLUMN_IDS = range(1, 7)
PARTITIONS = 100
FULL_EVERY = 10  # one file of so many has its full size
SMALL_BYTES, FULL_BYTES = 600_000, 130_000_000
ROWS = 13_500
PAGE_FILES = 20_000


def ref_in(folder: Path) -> TableRef:
    return TableRef(embedded_catalog(warehouse_of(folder)), (NAMESPACE,), NAME)


def make(folder: Path, files: int) -> None:
    with lake(folder) as warm:
        sql(warm, f"CREATE NAMESPACE headrace.{NAMESPACE}")
        sql(
            warm,
            f"CREATE TABLE headrace.{NAMESPACE}.{NAME} ({COLUMNS}) USING iceberg "
            "PARTITIONED BY (part)",
        )
        session = warm.session
        table = load_table(session, ref_in(folder))
        whole = {**_record(str(table.location()), files), "record-count": ROWS * files}
        first = data_files(session, table, [whole])
        table.newAppend().appendFile(first.iterator().next()).commit()
        # Only a rewrite takes many files in one call; so the first one is rewritten to all.
        table = load_table(session, ref_in(folder))
        update, replaced = table.newRewrite(), first
        for begin in range(0, files, PAGE_FILES):
            numbers = range(begin, min(files, begin + PAGE_FILES))
            records = [_record(str(table.location()), number) for number in numbers]
            nothing = jvm(session).java.util.HashSet()
            added = data_files(session, table, records)
            update.rewriteFiles(replaced, nothing, added, nothing)
            replaced = nothing
        update.commit()


def _record(location: str, number: int) -> dict[str, Any]:
    part = number % PARTITIONS
    size = FULL_BYTES if number % FULL_EVERY == 0 else SMALL_BYTES
    counted = {"keys": list(COLUMN_IDS), "values": [ROWS] * len(COLUMN_IDS)}
    return {
        "spec-id": 0,
        "content": "data",
        "file-path": f"{location}/data/part={part}/00000-{number}-made-up-{number:08d}.parquet",
        "file-format": "parquet",
        "partition": [part],
        "file-size-in-bytes": size + number % 1000,
        "record-count": ROWS,
        "column-sizes": counted,
        "value-counts": counted,
    }


if __name__ == "__main__":
    make(Path(sys.argv[1]), int(sys.argv[2]))
