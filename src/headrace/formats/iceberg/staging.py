"""Stage rows: durable files of the table that no snapshot refers to.

A transaction that is never committed moves `write.data.path` to the epoch's own folder; its table
is handed to Spark through SparkTableCache under a name nobody knows. What was written is then
listed in a manifest beside it, and the *handle* points to that manifest, so that neither the
store nor the coordinator carries a list of files.
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
from headrace.formats.iceberg.bulk import ask_each
from headrace.formats.iceberg.catalogs import TableRef, load_table
from headrace.formats.iceberg.create import Creation
from headrace.formats.iceberg.jvm import active, jvm, singleton
from headrace.formats.iceberg.token import CommitAt
from headrace.seams import seam

_TABLE_CACHE = "org.apache.iceberg.spark.SparkTableCache"
_COORDINATOR = "org.apache.iceberg.spark.FileRewriteCoordinator"
_FILE_SIZE = ("org.apache.iceberg.ContentFile", "fileSizeInBytes")
_MANIFEST_VERSION_MIN = 2  # version 1 can not leave the snapshot id open
_SNAPSHOT_ID = "added_snapshot_id"
_ANY_LONG = 1 << 40  # stands where no snapshot id is known yet: the encoder can't write null


class Handle(BaseModel):
    """All that a stranger needs in order to commit what was staged."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    table: str  # for people
    uuid: str | None  # of the table: one dropped and made anew is another one; None: none was there
    execution: str
    files: int
    rows: int
    bytes: int | None = None  # of these files; None: written by a program that did not count them
    manifest: str | None = None  # its location; None when there are no rows
    manifest_bytes: int = 0
    creation: Creation | None = None  # of the table, when there was none
    is_first: bool = True  # nothing was committed by its sink when this was staged
    pointer: str = ""  # Iceberg's own record of the manifest: encoded, compressed, base64
    location: str = ""  # of the table, for people


def stage(
    session: SparkSession,
    frame: DataFrame,
    ref: TableRef,
    at: CommitAt,
    *,
    table: Any = None,
    planned: tuple[Any, Creation] | None = None,
    is_first: bool = True,
    properties: Mapping[str, str] | None = None,
) -> Handle:
    """Write the rows of `frame` where only `at` will look for them. Nothing becomes visible.

    `table`: as it was loaded just before. `planned`: there is none, and the commit of these rows
    makes it (create.py). `is_first`: its sink has committed nothing before. `properties` are the
    table's for this one write; they are never committed.
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
    handle = Handle(
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
        handle = handle.model_copy(update=_list_files(session, staged, files, folder))
    seam("staged")
    return handle


def _write(session: SparkSession, frame: DataFrame, staged: Any) -> Any:
    """Spark writes to the table of the open transaction; returns the new data files."""
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


def _list_files(session: SparkSession, staged: Any, files: Any, folder: str) -> dict[str, Any]:
    """Write the manifest of the new files, in a number of JVM calls that does not grow."""
    manifests = jvm(session).org.apache.iceberg.ManifestFiles
    version = max(_MANIFEST_VERSION_MIN, staged.operations().current().formatVersion())
    output = staged.io().newOutputFile(f"{folder}files-{uuid4().hex}-m0.avro")
    writer = manifests.write(version, staged.spec(), output, None)
    try:
        writer.addAll(files)
    finally:
        writer.close()
    manifest = writer.toManifestFile()
    sizes = ask_each(session, jvm(session).java.util.ArrayList(files), _FILE_SIZE)
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


def manifest_of(session: SparkSession, table: Any, handle: Handle) -> Any:
    """The staged manifest, ready to be appended; refused when it is not whole.

    An append does not read a manifest: without this look a commit of something deleted would be
    accepted, and leave a table that nobody can read.
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


def _snapshot_id_position(manifest: Any) -> int:
    return int(manifest.getSchema().getField(_SNAPSHOT_ID).pos())
