"""Rewrite bins: read their files with the deletes applied, write new ones, commit nothing.

Many bins are one Spark job: each is a scan of its own with a single split, and Spark writes the
union of them, so that a bin is one Spark task and its rows stay together, in the order the table
declares. Spark names a file by the place of its task, which tells the bin it came from; what is
known of a bin's rows is checked against it.
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
from headrace.formats.iceberg.catalogs import TableRef, load_table
from headrace.formats.iceberg.jvm import active, singleton
from headrace.formats.iceberg.process import ProcessAt
from headrace.formats.iceberg.records import Inputs, Rewritten, file_record, tasks_of

BINS_PER_JOB_MAX = 64
ROLL_SLACK = 1.5  # a bin of the target's size may come out larger; better so than a crumb of it
ONE_SPLIT_BYTES = 1 << 50
LONG_MAX = 2**63 - 1  # of Java; a target may be as large, to mean one file whatever its size
FAST_ZSTD_LEVEL = "1"  # a fifth less work than the default for files of the same size

_TABLE_CACHE = "org.apache.iceberg.spark.SparkTableCache"
_TASK_SETS = "org.apache.iceberg.spark.ScanTaskSetManager"
_COORDINATOR = "org.apache.iceberg.spark.FileRewriteCoordinator"
_DATA_PATH = "write.data.path"
_CASE_SENSITIVE = "spark.sql.caseSensitive"
_OWN_NAMES = "write.location-provider.impl"  # files may then be called in other ways
# `PLACE-TASK-UUID-…`, which object storage without partition paths puts behind a hash of digits.
_PLACE = re.compile(r"[/-](\d{5,})-\d+-[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}-[^/]*$")


@dataclass(frozen=True, slots=True)
class _Write:
    """Where and how one call of `rewrite` writes."""

    session: SparkSession
    # What is read: executors may load its metadata, to find a column that was dropped and that an
    # equality delete still speaks of. A transaction has no metadata file.
    table: Any
    staged: Any  # the table of an open transaction, with a folder of its own for data
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
    """Rewrite each bin into files of about `target_bytes`, staged under `at`. In the same order."""
    table = load_table(session, ref)
    for inputs in bins:
        check_same_table(table, ref, inputs)
    transaction = table.newTransaction()
    folder = at.folder(home_of(table)).rstrip("/")
    transaction.updateProperties().set(_DATA_PATH, folder).commit()
    properties = dict(table.properties())
    roll_bytes = min(int(target_bytes * ROLL_SLACK), LONG_MAX)
    options = {"target-file-size-bytes": str(roll_bytes)} | _level(properties)
    write = _Write(session, table, transaction.table(), at.execution, options)
    spec = int(table.spec().specId())
    made: dict[int, Rewritten] = {}
    most = 1 if _OWN_NAMES in properties else BINS_PER_JOB_MAX
    for moved in (False, True):  # to another spec than they were written in
        these = [inputs for inputs in bins if (inputs.spec != spec) is moved]
        for first in range(0, len(these), most):
            batch = these[first : first + most]
            made |= {one.number: one for one in _run(write, batch, moved=moved)}
    return [made[inputs.number] for inputs in bins]


def home_of(table: Any) -> str:
    """Below which processes stage: where the table wants its data, else where it lies itself."""
    return str(table.properties().get(_DATA_PATH) or table.location())


def check_same_table(table: Any, ref: TableRef, inputs: Inputs) -> None:
    if str(table.uuid()) != inputs.uuid:
        raise Refused(
            f"{ref} was dropped and made anew since bin {inputs.number} was planned; plan again"
        )


def _level(properties: Mapping[str, str]) -> dict[str, str]:
    """The table's own compression, where it has an opinion."""
    parquet = properties.get("write.format.default", "parquet").lower() == "parquet"
    zstd = properties.get("write.parquet.compression-codec", "zstd").lower() == "zstd"
    if not (parquet and zstd) or "write.parquet.compression-level" in properties:
        return {}
    return {"compression-level": FAST_ZSTD_LEVEL}


def _run(write: _Write, bins: Sequence[Inputs], *, moved: bool) -> list[Rewritten]:
    """One Spark job. `moved`: rows of a bin may belong to several partitions, and are sorted by
    them; otherwise a bin has one, and what need not be sorted is written as it is read."""
    options = {
        **write.options,
        "distribution-mode": "none",
        "fanout-enabled": str(not moved).lower(),
    }
    name = uuid.uuid4().hex
    coordinator = singleton(write.session, _COORDINATOR)
    with ExitStack() as stack:
        stack.enter_context(active(write.session))
        stack.enter_context(_names_as_they_are(write.session))
        frames = [stack.enter_context(_read(write, inputs)) for inputs in bins]
        stack.enter_context(_known(write.session, name, write.staged))
        stack.callback(coordinator.clearRewrite, write.staged, name)
        frame = reduce(DataFrame.unionAll, frames)
        frame.write.format("iceberg").options(**options).mode("append").save(name)
        files = coordinator.fetchNewFiles(write.staged, name).iterator()
        added: list[dict[str, Any]] = []
        while files.hasNext():
            added.append(file_record(write.session, write.staged, files.next()))
    return _dealt(bins, added, write.execution)


@contextmanager
def _names_as_they_are(session: SparkSession) -> Generator[None]:
    """Iceberg tells columns `id` and `ID` apart; without this Spark finds both ambiguous."""
    before = session.conf.get(_CASE_SENSITIVE)
    session.conf.set(_CASE_SENSITIVE, "true")
    try:
        yield
    finally:
        session.conf.set(_CASE_SENSITIVE, str(before))


@contextmanager
def _known(session: SparkSession, name: str, table: Any) -> Generator[None]:
    """The table is found by Spark under this name, which nobody else knows."""
    cache = singleton(session, _TABLE_CACHE)
    cache.add(name, table)
    try:
        yield
    finally:
        cache.remove(name)


@contextmanager
def _read(write: _Write, inputs: Inputs) -> Generator[DataFrame]:
    """The rows of one bin that are not deleted, in one split; for v3 with their lineage."""
    name = uuid.uuid4().hex
    sets = singleton(write.session, _TASK_SETS)
    tasks = tasks_of(write.session, write.table, inputs.tasks, inputs.deletes)
    with _known(write.session, name, write.table):
        sets.stageTasks(write.table, name, tasks)
        try:
            reader = write.session.read.format("iceberg").option("file-open-cost", "0")
            yield reader.option("split-size", str(ONE_SPLIT_BYTES)).load(name)
        finally:
            sets.removeTasks(write.table, name)


def _dealt(
    bins: Sequence[Inputs], added: Sequence[dict[str, Any]], execution: str
) -> list[Rewritten]:
    """Each new file to its bin."""
    files: list[list[dict[str, Any]]] = [[] for _ in bins]
    for file in sorted(added, key=lambda one: one["file-path"]):
        files[_place(file["file-path"]) if len(bins) > 1 else 0].append(file)
    return [_checked(inputs, mine, execution) for inputs, mine in zip(bins, files, strict=True)]


def _place(path: str) -> int:
    found = _PLACE.search(path)
    if found is None or int(found[1]) >= BINS_PER_JOB_MAX:
        raise HeadraceError(f"{path} does not tell which Spark task wrote it; nothing was replaced")
    return int(found[1])


def _checked(inputs: Inputs, files: list[dict[str, Any]], execution: str) -> Rewritten:
    rows = sum(int(file["record-count"]) for file in files)
    if rows > inputs.rows or (rows < inputs.rows and not inputs.deletes):
        raise HeadraceError(
            f"bin {inputs.number} of {inputs.table} has {inputs.rows} rows and "
            f"{len(inputs.deletes)} delete files, but {rows} rows were written; nothing is replaced"
        )
    size = sum(int(file["file-size-in-bytes"]) for file in files)
    return Rewritten(number=inputs.number, execution=execution, added=files, rows=rows, bytes=size)
