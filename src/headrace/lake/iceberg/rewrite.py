"""Rewrite bins (compaction): read files with their deletes applied, write new ones, don't commit.

Many bins share one Spark job. Each bin is a scan of its own with a single split, and Spark writes
the union of them, so a bin is one Spark task and its rows stay together, in the order that the
table declares. Spark puts the index of its task into the name of a file, which tells the bin that
the file came from; the number of rows written is checked against the bin's.
"""

from __future__ import annotations

import re
import uuid
from collections.abc import Generator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import reduce
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from headrace.errors import HeadraceError, Refused
from headrace.lake.catalog import TableRef
from headrace.lake.iceberg.catalogs import load_table
from headrace.lake.iceberg.file_records import Inputs, Rewritten, file_record, tasks_of
from headrace.lake.iceberg.token import ProcessAt
from headrace.spark.jvm_bridge import active, singleton

BINS_PER_JOB_MAX = 64
ROLL_SLACK = 1.5  # a bin may come out larger than the target; better so than a tiny second file
ONE_SPLIT_BYTES = 1 << 50
LONG_MAX = 2**63 - 1  # Java's; a target as large means one file, whatever its size
FAST_ZSTD_LEVEL = "1"  # a fifth less work than the default level, for files of the same size

_TABLE_CACHE = "org.apache.iceberg.spark.SparkTableCache"
_TASK_SETS = "org.apache.iceberg.spark.ScanTaskSetManager"
_COORDINATOR = "org.apache.iceberg.spark.FileRewriteCoordinator"
_DATA_PATH = "write.data.path"
_CASE_SENSITIVE = "spark.sql.caseSensitive"
_OWN_NAMES = "write.location-provider.impl"  # then files may have other names than _PLACE expects
# `PLACE-TASK-UUID-…`; object storage without partition paths puts a hash of digits before it.
_PLACE = re.compile(r"[/-](\d{5,})-\d+-[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}-[^/]*$")


@dataclass(frozen=True, slots=True)
class _Write:
    """Where and how one call of `rewrite` writes."""

    session: SparkSession
    # The table to read from, not `staged`: executors may load its metadata file, to find a dropped
    # column that an equality delete still refers to. A transaction has no metadata file.
    table: Any
    staged: Any  # the table of an open transaction, whose data folder is the execution's own
    execution: str
    options: Mapping[str, str]


def rewrite(
    session: SparkSession,
    ref: TableRef,
    bins: Sequence[Inputs],
    at: ProcessAt,
    *,
    target_bytes: int,
) -> list[Rewritten]:
    """Rewrite each bin into files of about `target_bytes`, staged under `at`. The results are in
    the order of the bins."""
    table = load_table(session, ref)
    for inputs in bins:
        check_same_table(table, ref, inputs)
    transaction = table.newTransaction()
    folder = at.folder(home_of(table)).rstrip("/")
    transaction.updateProperties().set(_DATA_PATH, folder).commit()
    properties = dict(table.properties())
    roll_bytes = min(int(target_bytes * ROLL_SLACK), LONG_MAX)
    options = {"target-file-size-bytes": str(roll_bytes)} | _compression_level(properties)
    write = _Write(session, table, transaction.table(), at.execution, options)
    spec = int(table.spec().specId())
    rewritten: dict[int, Rewritten] = {}
    batch_size = 1 if _OWN_NAMES in properties else BINS_PER_JOB_MAX
    for moved in (False, True):  # whether they were written in another partition spec
        pending = [inputs for inputs in bins if (inputs.spec != spec) is moved]
        for first in range(0, len(pending), batch_size):
            batch = pending[first : first + batch_size]
            rewritten |= {one.number: one for one in _run(write, batch, moved=moved)}
    return [rewritten[inputs.number] for inputs in bins]


def home_of(table: Any) -> str:
    """The folder below which processes stage: the table's own data path if it has one, else its
    location."""
    return str(table.properties().get(_DATA_PATH) or table.location())


def check_same_table(table: Any, ref: TableRef, inputs: Inputs) -> None:
    """Refuse a table that was dropped and created again since the bin was planned."""
    if str(table.uuid()) != inputs.uuid:
        raise Refused(
            f"{ref} was dropped and made anew since bin {inputs.number} was planned; plan again"
        )


def _compression_level(properties: Mapping[str, str]) -> dict[str, str]:
    """The write option for fast compression; none where the table sets a level or another codec."""
    parquet = properties.get("write.format.default", "parquet").lower() == "parquet"
    zstd = properties.get("write.parquet.compression-codec", "zstd").lower() == "zstd"
    if not (parquet and zstd) or "write.parquet.compression-level" in properties:
        return {}
    return {"compression-level": FAST_ZSTD_LEVEL}


def _run(write: _Write, bins: Sequence[Inputs], *, moved: bool) -> list[Rewritten]:
    """Rewrite these bins in one Spark job. `moved`: the rows of a bin may belong to several
    partitions, and are sorted by them. Otherwise a bin has one partition, and is written as it is
    read unless the table declares an order."""
    options = {
        **write.options,
        "distribution-mode": "none",
        "fanout-enabled": str(not moved).lower(),
    }
    name = uuid.uuid4().hex
    coordinator = singleton(write.session, _COORDINATOR)
    with ExitStack() as stack:
        stack.enter_context(active(write.session))
        stack.enter_context(_case_sensitive_columns(write.session))
        frames = [stack.enter_context(_read(write, inputs)) for inputs in bins]
        stack.enter_context(_cached_table(write.session, name, write.staged))
        stack.callback(coordinator.clearRewrite, write.staged, name)
        frame = reduce(DataFrame.unionAll, frames)
        frame.write.format("iceberg").options(**options).mode("append").save(name)
        files = coordinator.fetchNewFiles(write.staged, name).iterator()
        added: list[dict[str, Any]] = []
        while files.hasNext():
            added.append(file_record(write.session, write.staged, files.next()))
    return _split_by_bin(bins, added, write.execution)


@contextmanager
def _case_sensitive_columns(session: SparkSession) -> Generator[None]:
    """Iceberg tells columns `id` and `ID` apart; without this Spark would find both ambiguous."""
    before = session.conf.get(_CASE_SENSITIVE)
    session.conf.set(_CASE_SENSITIVE, "true")
    try:
        yield
    finally:
        session.conf.set(_CASE_SENSITIVE, str(before))


@contextmanager
def _cached_table(session: SparkSession, name: str, table: Any) -> Generator[None]:
    """Let Spark find the table under this name, which nobody else knows."""
    cache = singleton(session, _TABLE_CACHE)
    cache.add(name, table)
    try:
        yield
    finally:
        cache.remove(name)


@contextmanager
def _read(write: _Write, inputs: Inputs) -> Generator[DataFrame]:
    """The rows of one bin that are not deleted, in one split; with their row lineage in format
    version 3."""
    name = uuid.uuid4().hex
    sets = singleton(write.session, _TASK_SETS)
    tasks = tasks_of(write.session, write.table, inputs.tasks, inputs.deletes)
    with _cached_table(write.session, name, write.table):
        sets.stageTasks(write.table, name, tasks)
        try:
            reader = write.session.read.format("iceberg").option("file-open-cost", "0")
            yield reader.option("split-size", str(ONE_SPLIT_BYTES)).load(name)
        finally:
            sets.removeTasks(write.table, name)


def _split_by_bin(
    bins: Sequence[Inputs], added: Sequence[dict[str, Any]], execution: str
) -> list[Rewritten]:
    """Assign each new file to the bin that it was written from."""
    files: list[list[dict[str, Any]]] = [[] for _ in bins]
    for file in sorted(added, key=lambda one: one["file-path"]):
        files[_task_place(file["file-path"]) if len(bins) > 1 else 0].append(file)
    return [_checked_bin(inputs, mine, execution) for inputs, mine in zip(bins, files, strict=True)]


def _task_place(path: str) -> int:
    """The index of the Spark task that wrote a file, which is the index of its bin."""
    match = _PLACE.search(path)
    if match is None or int(match[1]) >= BINS_PER_JOB_MAX:
        raise HeadraceError(f"{path} does not tell which Spark task wrote it; nothing was replaced")
    return int(match[1])


def _checked_bin(inputs: Inputs, files: list[dict[str, Any]], execution: str) -> Rewritten:
    """The result of a bin, after a check that no row came or went other than by its deletes."""
    rows = sum(int(file["record-count"]) for file in files)
    if rows > inputs.rows or (rows < inputs.rows and not inputs.deletes):
        raise HeadraceError(
            f"bin {inputs.number} of {inputs.table} has {inputs.rows} rows and "
            f"{len(inputs.deletes)} delete files, but {rows} rows were written; nothing is replaced"
        )
    size = sum(int(file["file-size-in-bytes"]) for file in files)
    return Rewritten(number=inputs.number, execution=execution, added=files, rows=rows, bytes=size)
