"""Stage rows for a table: write durable files that no snapshot refers to.

A transaction that is never committed moves `write.data.path` to the execution's folder of the
epoch; its table is handed to Spark through SparkTableCache under a name that nobody else knows. The
files written are listed in a manifest beside them, and the *handle* points to that manifest, so
that neither the store nor the coordinator carries a list of files.
"""

from __future__ import annotations

import base64
import zlib
from collections.abc import Mapping
from typing import Any
from uuid import uuid4

from pydantic import BaseModel, ConfigDict
from pyspark.sql import DataFrame, SparkSession

from headrace.errors import Refused
from headrace.lake.catalog import TableRef
from headrace.lake.iceberg.catalogs import load_table
from headrace.lake.iceberg.creation import Creation
from headrace.lake.iceberg.token import TableCommitAt
from headrace.seams import seam
from headrace.spark.jvm_bridge import active, get_each, jvm, singleton

_TABLE_CACHE = "org.apache.iceberg.spark.SparkTableCache"
_COORDINATOR = "org.apache.iceberg.spark.FileRewriteCoordinator"
_FILE_SIZE = ("org.apache.iceberg.ContentFile", "fileSizeInBytes")
_MANIFEST_VERSION_MIN = 2  # version 1 can't leave the snapshot id open
_SNAPSHOT_ID = "added_snapshot_id"
_ANY_LONG = 1 << 40  # placeholder for the unknown snapshot id: the encoder can't write null


class StagedFilesHandle(BaseModel):
    """All that any process needs to commit what was staged."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    table: str  # for people
    uuid: str | None  # of the table, another after a drop and re-creation; None: no table existed
    execution: str
    files: int
    rows: int
    bytes: int | None = None  # of these files; None: staged by a version that did not count them
    manifest: str | None = None  # its location; None when there are no rows
    manifest_bytes: int = 0
    creation: Creation | None = None  # of the table, when it did not exist
    is_first: bool = True  # its sink had committed nothing when this was staged
    pointer: str = ""  # Iceberg's encoded record of the manifest, compressed, in base64
    location: str = ""  # of the table, for people


def stage(
    session: SparkSession,
    frame: DataFrame,
    ref: TableRef,
    at: TableCommitAt,
    *,
    table: Any = None,
    planned: tuple[Any, Creation] | None = None,
    is_first: bool = True,
    properties: Mapping[str, str] | None = None,
) -> StagedFilesHandle:
    """Write the rows of `frame` where only `at` will look for them. Nothing becomes visible.

    `table`: as it was loaded just before. `planned`: the table does not exist, and the commit of
    these rows creates it (creation.py). `is_first`: its sink has committed nothing before.
    `properties`: table properties for this one write; they are never committed.
    """
    seam("before stage")
    if planned is not None:
        transaction, creation = planned
        uuid, location = None, creation.location
    else:
        table = table or load_table(session, ref)
        transaction, creation = table.newTransaction(), None
        uuid, location = str(table.uuid()), str(table.location())
    folder = at.folder(location)
    update = transaction.updateProperties()
    for key, value in {**(properties or {}), "write.data.path": folder.rstrip("/")}.items():
        update = update.set(key, value)
    update.commit()
    staged = transaction.table()
    files = _write(session, frame, staged)
    handle = StagedFilesHandle(
        table=str(ref),
        uuid=uuid,
        execution=at.execution,
        files=0,
        rows=0,
        creation=creation,
        is_first=is_first,
        location=location,
    )
    if files.size() > 0:
        handle = handle.model_copy(update=_write_manifest(session, staged, files, folder))
    seam("staged")
    return handle


def manifest_of(session: SparkSession, table: Any, handle: StagedFilesHandle) -> Any:
    """The staged manifest, ready to be appended; `Refused` when it is gone or cut short.

    An append does not read a manifest: without this check Iceberg would accept a commit of deleted
    files, and leave a table that nobody can read.
    """
    file = table.io().newInputFile(handle.manifest)
    if not file.exists() or int(file.getLength()) != handle.manifest_bytes:
        raise Refused(
            f"what execution {handle.execution} staged for {handle.table} is gone or damaged "
            f"({handle.manifest}); run the epoch again"
        )
    encoded = zlib.decompress(base64.b64decode(handle.pointer))
    manifest = jvm(session).org.apache.iceberg.ManifestFiles.decode(encoded)
    manifest.put(_snapshot_id_position(manifest), None)
    return manifest


def _write(session: SparkSession, frame: DataFrame, staged: Any) -> Any:
    """Let Spark write to the table of the open transaction; returns the new data files."""
    name = uuid4().hex
    cache, coordinator = singleton(session, _TABLE_CACHE), singleton(session, _COORDINATOR)
    cache.add(name, staged)
    try:
        with active(frame.sparkSession):
            frame.write.format("iceberg").mode("append").save(name)
        return coordinator.fetchNewFiles(staged, name)
    finally:
        cache.remove(name)
        coordinator.clearRewrite(staged, name)


def _write_manifest(session: SparkSession, staged: Any, files: Any, folder: str) -> dict[str, Any]:
    """Write the manifest of the new files, in a constant number of JVM calls. Returns the fields of
    the handle that describe it."""
    manifests = jvm(session).org.apache.iceberg.ManifestFiles
    version = max(_MANIFEST_VERSION_MIN, staged.operations().current().formatVersion())
    output = staged.io().newOutputFile(f"{folder}files-{uuid4().hex}-m0.avro")
    writer = manifests.write(version, staged.spec(), output, None)
    try:
        writer.addAll(files)
    finally:
        writer.close()
    manifest = writer.toManifestFile()
    sizes = get_each(session, jvm(session).java.util.ArrayList(files), _FILE_SIZE)
    manifest.put(_snapshot_id_position(manifest), _ANY_LONG)
    pointer = base64.b64encode(zlib.compress(bytes(manifests.encode(manifest)))).decode()
    return {
        "files": int(manifest.addedFilesCount()),
        "rows": int(manifest.addedRowsCount()),
        "bytes": sum(sizes),
        "manifest": str(manifest.path()),
        "manifest_bytes": int(manifest.length()),
        "pointer": pointer,
    }


def _snapshot_id_position(manifest: Any) -> int:
    return int(manifest.getSchema().getField(_SNAPSHOT_ID).pos())
