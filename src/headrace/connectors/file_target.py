"""Which folder of which file system a job means: `path`, and `fs.defaultFS` of HdfsFile."""

from __future__ import annotations

import errno
import tempfile
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from pyspark import SparkContext
from pyspark.sql import SparkSession

from headrace.errors import Refused, Unavailable
from headrace.formats.files.filesystem import FileSystem, LocalFiles
from headrace.formats.files.hadoop import HadoopFiles, site_settings
from headrace.formats.iceberg.jvm import JAVA_ERRORS, java_message, not_granted

PROBE_BYTES = 4096
# File systems whose rename is one step that refuses a target which exists.
_EXCLUSIVE = frozenset({"file", "hdfs", "webhdfs", "swebhdfs"})


@dataclass(frozen=True, slots=True)
class Target:
    title: str  # "sink LocalFile-1", for people
    root: str  # a URI, not percent-encoded; "/data" is "file:/data"
    site: str | None = None  # a file like hdfs-site.xml

    @classmethod
    def of(cls, title: str, options: Mapping[str, Any]) -> Target:
        path = str(options["path"])
        default = str(options.get("fs.defaultFS") or "file:").rstrip("/")
        root = path if urlsplit(path).scheme else default + path
        return cls(title, root.rstrip("/") or root, options.get("hdfs_site_path"))

    @property
    def scheme(self) -> str:
        return urlsplit(self.root).scheme

    def settings(self, session: SparkSession) -> dict[str, str]:
        """Of Hadoop, for this file system."""
        return site_settings(session, self.site) if self.site else {}

    def open(self, session: SparkSession | None = None, *, exclusive: bool = False) -> FileSystem:
        """`exclusive`: it must be able to refuse a file of the same name."""
        if exclusive and self.scheme not in _EXCLUSIVE:
            raise Refused(
                f"{self.title}: on {self.scheme}:// a commit can't be made exclusive yet; "
                f"write to one of {', '.join(sorted(_EXCLUSIVE))}"
            )
        if self.scheme == "file":
            return LocalFiles("/" + self.root.removeprefix("file:").lstrip("/"))
        session = session or _running(self.title)
        return HadoopFiles(session, self.root, self.settings(session))

    @contextmanager
    def told(self) -> Generator[None]:
        """What the file system refuses, with the plugin's name on it.

        Not for what runs rows through Spark: its Java errors are about rows.
        """
        with self.local_told():
            try:
                yield
            except JAVA_ERRORS as error:
                said = f"{self.title}: {self.root}: {java_message(error)}"
                raise not_granted(error, said) from error

    @contextmanager
    def local_told(self) -> Generator[None]:
        try:
            yield
        except OSError as error:
            said = f"{self.title}: {self.root}: {error.strerror or error}"
            wrong = isinstance(error, PermissionError | NotADirectoryError | IsADirectoryError)
            if wrong or error.errno == errno.EROFS:
                raise Refused(f"{said}; check 'path' and its owner") from error
            raise Unavailable(said) from error

    def check_writable(self) -> None:
        """Raises in our words when nothing can be made here at all: Spark says less of it.

        Nothing is left behind, and no folder is made. Other file systems say by themselves why
        they refuse.
        """
        if self.scheme != "file":
            return
        with self.local_told():
            there = Path("/" + self.root.removeprefix("file:").lstrip("/"))
            while not there.exists():
                there = there.parent
            with tempfile.TemporaryFile(dir=there) as probe:
                probe.write(b"\0" * PROBE_BYTES)
                probe.flush()


def _running(title: str) -> SparkSession:
    """A session of this process; planning is not given one, and needs its JVM only."""
    if SparkContext._active_spark_context is None:  # noqa: SLF001  # pyright: ignore
        raise Unavailable(f"{title}: Spark is not running, and the file system is asked through it")
    return SparkSession.builder.getOrCreate()
