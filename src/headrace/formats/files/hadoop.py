"""A file system that Hadoop knows, e.g. hdfs://, through Spark's JVM.

`FileContext.rename` without its overwrite option is the fence: the name node refuses a target that
exists, in the same step in which it renames. Object stores have no such step.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from pyspark.sql import SparkSession

from headrace.errors import Refused
from headrace.formats.files.filesystem import FileInfo, in_the_way, is_hidden
from headrace.formats.iceberg.jvm import JAVA_ERRORS, hadoop_configuration, java_classes, jvm


class HadoopFiles:
    def __init__(self, session: SparkSession, root: str, settings: Mapping[str, str]) -> None:
        self._java = jvm(session)
        self._root = root.rstrip("/")
        configuration = hadoop_configuration(session, settings)
        uri = self._path("").toUri()
        self._system: Any = self._java.org.apache.hadoop.fs.FileSystem.get(uri, configuration)
        contexts = self._java.org.apache.hadoop.fs.FileContext
        self._context: Any = contexts.getFileContext(uri, configuration)
        self._no_options: Any = session.sparkContext._gateway.new_array(  # noqa: SLF001  # pyright: ignore
            self._java.org.apache.hadoop.fs.Options.Rename, 0
        )

    @property
    def root(self) -> str:
        return self._root

    def _path(self, path: str) -> Any:
        return self._java.org.apache.hadoop.fs.Path(f"{self._root}/{path}" if path else self._root)

    def create(self, path: str, data: bytes, *, scratch: str) -> bool:
        target = self._path(path)
        temporary = self._path(f"{scratch}/.{uuid.uuid4().hex}.tmp")
        self._system.mkdirs(target.getParent())
        stream = self._system.create(temporary, False)  # noqa: FBT003 - Java's overwrite
        try:
            stream.write(data)
            stream.hsync()
        finally:
            stream.close()
        try:
            self._context.rename(temporary, target, self._no_options)
        except JAVA_ERRORS:
            if not self.exists(path):
                raise
            return False
        finally:
            self._system.delete(temporary, False)  # noqa: FBT003 - Java's recursive
        return True

    def read(self, path: str) -> bytes | None:
        try:
            stream = self._system.open(self._path(path))
        except JAVA_ERRORS as error:
            if "FileNotFoundException" not in java_classes(error):
                raise
            return None
        try:
            io = self._java.org.apache.commons.io.IOUtils
            return bytes(io.toByteArray(stream))
        finally:
            stream.close()

    def move(self, source: str, target: str) -> bool:
        self._system.mkdirs(self._path(target).getParent())
        try:
            self._context.rename(self._path(source), self._path(target), self._no_options)
        except JAVA_ERRORS as error:
            if not self.exists(source):
                return False
            if "FileAlreadyExistsException" in java_classes(error):
                raise in_the_way(self._root, target) from error
            raise
        return True

    def files(self, folder: str = "", *, hidden: bool = False) -> Iterator[FileInfo]:
        top = self._path(folder)
        if not self._system.exists(top):
            return
        base = str(self._system.makeQualified(self._path("")).toString())
        found = self._system.listFiles(top, True)  # noqa: FBT003 - Java's recursive
        while found.hasNext():
            status = found.next()
            name = str(status.getPath().toString()).removeprefix(base).lstrip("/")
            if hidden or not any(is_hidden(part) for part in name.split("/")):
                yield FileInfo(name, int(status.getLen()), int(status.getModificationTime()))

    def entries(self, folder: str) -> Sequence[FileInfo]:
        try:
            found = list(self._system.listStatus(self._path(folder)))
        except JAVA_ERRORS as error:
            if "FileNotFoundException" not in java_classes(error):
                raise
            return []
        return [
            FileInfo(
                f"{folder}/{status.getPath().getName()}",
                int(status.getLen()),
                int(status.getModificationTime()),
            )
            for status in found
        ]

    def exists(self, path: str) -> bool:
        return bool(self._system.exists(self._path(path)))

    def sync(self, paths: Iterable[str]) -> None:
        """HDFS keeps what was closed on several machines; more can't be asked for afterwards."""

    def remove(self, file: FileInfo) -> None:
        if next(self.files(file.path, hidden=True), None) == file:
            self._system.delete(self._path(file.path), False)  # noqa: FBT003 - Java's recursive

    def delete(self, folder: str) -> None:
        self._system.delete(self._path(folder), True)  # noqa: FBT003 - Java's recursive

    def prune(self, folder: str) -> None:
        try:
            self._system.delete(self._path(folder), False)  # noqa: FBT003 - Java's recursive
        except JAVA_ERRORS:
            if not self.entries(folder):
                raise


def site_settings(session: SparkSession, path: str) -> dict[str, str]:
    """The settings in a file like hdfs-site.xml."""
    java = jvm(session)
    configuration = java.org.apache.hadoop.conf.Configuration(False)  # noqa: FBT003 - no defaults
    configuration.addResource(java.org.apache.hadoop.fs.Path(path))
    try:
        entries = configuration.iterator()
    except JAVA_ERRORS as error:
        raise Refused(
            f"hdfs_site_path {path!r} can't be read; name a file of the worker"
        ) from error
    found: dict[str, str] = {}
    while entries.hasNext():
        entry = entries.next()
        found[str(entry.getKey())] = str(entry.getValue())
    return found
