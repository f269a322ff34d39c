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
FAST_ZSTD_LEVEL = "1"  # a fifth less work than the default for files of the same size

_TABLE_CACHE = "org.apache.iceberg.spark.SparkTableCache"
_TASK_SETS = "org.apache.iceberg.spark.ScanTaskSetManager"
_COORDINATOR = "org.apache.iceberg.spark.FileRewriteCoordinator"
_OWN_NAMES = "write.location-provider.impl"  # files may then be called in other ways
_PLACE = re.compile(r"/(\d{5,})-\d+-[^/]*$")


@dataclass(frozen=True, slots=True)
class _Write:
    """Where and how one call of `rewrite` writes."""

    session: SparkSession
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
    folder = at.folder(str(table.location())).rstrip("/")
    transaction.updateProperties().set("write.data.path", folder).commit()
    properties = dict(table.properties())
    options = {"target-file-size-bytes": str(int(target_bytes * ROLL_SLACK))} | _level(properties)
    write = _Write(session, transaction.table(), at.execution, options)
    spec = int(table.spec().specId())
    made: dict[int, Rewritten] = {}
    most = 1 if _OWN_NAMES in properties else BINS_PER_JOB_MAX
    for moved in (False, True):  # to another spec than they were written in
        these = [inputs for inputs in bins if (inputs.spec != spec) is moved]
        for first in range(0, len(these), most):
            batch = these[first : first + most]
            made |= {one.number: one for one in _run(write, batch, moved=moved)}
    return [made[inputs.number] for inputs in bins]


def check_same_table(table: Any, ref: TableRef, inputs: Inputs) -> None:
    if str(table.uuid()) != inputs.uuid:
        raise Refused(
            f"{ref} was dropped and made anew since bin {inputs.number} was planned; plan again"
        )


def _level(properties: Mapping[str, str]) -> dict[str, str]:
    """The table's own compression, where it has an opinion."""
    said = properties.get("write.parquet.compression-codec", "zstd").lower() != "zstd"
    if said or "write.parquet.compression-level" in properties:
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
        frames = [stack.enter_context(_read(write, inputs)) for inputs in bins]
        stack.enter_context(_known(write, name))
        stack.callback(coordinator.clearRewrite, write.staged, name)
        frame = reduce(DataFrame.unionAll, frames)
        frame.write.format("iceberg").options(**options).mode("append").save(name)
        files = coordinator.fetchNewFiles(write.staged, name).iterator()
        added: list[dict[str, Any]] = []
        while files.hasNext():
            added.append(file_record(write.session, write.staged, files.next()))
    return _dealt(bins, added, write.execution)


@contextmanager
def _known(write: _Write, name: str) -> Generator[None]:
    """The staged table is found by Spark under this name, which nobody else knows."""
    cache = singleton(write.session, _TABLE_CACHE)
    cache.add(name, write.staged)
    try:
        yield
    finally:
        cache.remove(name)


@contextmanager
def _read(write: _Write, inputs: Inputs) -> Generator[DataFrame]:
    """The rows of one bin that are not deleted, in one split; for v3 with their lineage."""
    name = uuid.uuid4().hex
    sets = singleton(write.session, _TASK_SETS)
    tasks = tasks_of(write.session, write.staged, inputs.tasks, inputs.deletes)
    with _known(write, name):
        sets.stageTasks(write.staged, name, tasks)
        try:
            reader = write.session.read.format("iceberg").option("file-open-cost", "0")
            yield reader.option("split-size", str(ONE_SPLIT_BYTES)).load(name)
        finally:
            sets.removeTasks(write.staged, name)


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
    if found is None:
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
