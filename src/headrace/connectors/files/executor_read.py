"""Frames of records that Python reads in executors (records.py).

Each file is a task of its own, for which the executor opens it: a file of a worker's machine
directly, so that it is read as it goes; one from elsewhere by Spark, as a whole, since Python has
no way to HDFS. Such a file must be smaller than 2 GB.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Mapping, Sequence

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as f

from headrace.connectors.files.records import RecordForm, folder_pairs, read_records
from headrace.errors import Refused
from headrace.spark.executors import check_executors, map_in_arrow

TASKS_MAX = 1_000  # for the files of one slice
TEXTS = "file string, line bigint, cells array<string>, folders array<string>, problem string"
CHUNKS = "data binary, relativePath string, partIndex bigint, problem string"
_GLOB = re.compile(r"[\\*?\[\]{}]")
_LOCAL = "file:"
_MODULES = ("headrace", "pyarrow")


def record_frame(
    session: SparkSession,
    paths: Sequence[str],
    form: RecordForm,
    hadoop: Mapping[str, str],
    *,
    needed_by: str,
) -> DataFrame:
    """The records with the columns of `TEXTS`, or of `CHUNKS` for binary.

    A file that can't be read fails the frame, with its name and the reason.
    """
    modules = (*_MODULES, "python_calamine") if form.format == "excel" else _MODULES
    check_executors(session, modules, needed_by=needed_by)
    function = functools.partial(read_records, tuple(paths), form)
    schema = CHUNKS if form.format == "binary" else TEXTS
    frame = map_in_arrow(_files(session, paths, hadoop), function, schema)
    failure = f.when(f.col("problem").isNotNull(), f.raise_error(f.col("problem")).cast("boolean"))
    return frame.where(f.coalesce(failure, f.lit(True))).drop("problem")  # noqa: FBT003


def literal(path: str) -> str:
    """The path for Spark, which takes what it is given for a glob. Its option against that reads a
    file twice whose name looks like a pattern."""
    return _GLOB.sub(r"\\\g<0>", path)


def _files(session: SparkSession, paths: Sequence[str], hadoop: Mapping[str, str]) -> DataFrame:
    if all(path.startswith(_LOCAL) for path in paths):
        return session.range(0, len(paths), 1, min(len(paths), TASKS_MAX))
    reader = session.read.format("binaryFile").options(**hadoop)
    return reader.load([literal(path) for path in paths]).select("path", "content")


def folder_columns(
    paths: Sequence[str], base: str | None, taken: Sequence[str]
) -> Sequence[Column]:
    """The columns that `k=v` folders add, but for those that are `taken` by the schema."""
    keys = [key for key, _ in folder_pairs(paths[0], base)]
    for path in paths:
        others = [key for key, _ in folder_pairs(path, base)]
        if others != keys:
            raise Refused(
                f"{paths[0]} lies in folders of {keys or 'no keys'}, and {path} of "
                f"{others or 'none'}; read them by sources of their own, or set "
                "parse_partition_from_path = false"
            )
    held = {name.lower() for name in taken}
    return [
        f.get("folders", f.lit(number)).alias(key)
        for number, key in enumerate(keys)
        if key.lower() not in held
    ]
