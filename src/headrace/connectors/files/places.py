"""Where the files of an epoch lie in a target folder, what they are called, and how it is opened.

All paths are relative to the target folder, so they stay valid when it is mounted elsewhere:

    _headrace/<incarnation>/<pipeline>/<sink>/<epoch>.json           the manifest: spends the token
    _headrace/<incarnation>/<pipeline>/<sink>/<epoch>/<execution>/   what one execution staged

Readers skip names that begin with an underscore, so nothing below `_headrace` is seen. A final name
holds the whole token or a hash of it: no two epochs ever give a file the same name, and none gives
a file the name of one that epoch 0 found there. Only a copy of a binary file keeps its own path:
that it is free is checked before the token is spent, and moving it never overwrites.

`Target` is the folder that a job's options mean (`path`, and `fs.defaultFS` of HdfsFile), on its
file system. It also puts the plugin's name on the file system's errors.
"""

from __future__ import annotations

import errno
import hashlib
import re
import tempfile
import uuid
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from urllib.parse import quote, urlsplit

from pyspark.sql import SparkSession

from headrace.connectors.files.options import FolderOptions
from headrace.errors import Refused, Unavailable
from headrace.model.jobs.epoch import CommitAt
from headrace.plugins.time_patterns import render_time
from headrace.spark.filesystem import FileSystem, HadoopFiles, LocalFiles, site_settings
from headrace.spark.jvm_bridge import JAVA_ERRORS, java_message, refused_or_unavailable

HIDDEN = "_headrace"
MANIFEST = ".json"
PARTITION_COLUMN = "headrace_partition_"
PARTITION_EXPRESSION = "${k0}=${v0}"  # SeaTunnel's default; it stands for all keys in this form
_VARIABLE = re.compile(r"\$\{(\w+)\}")
_PARTITION = re.compile(rf"{PARTITION_COLUMN}(\d+)=(.*)", re.DOTALL)
PROBE_BYTES = 4096
# File systems whose rename is atomic and refuses a target that exists.
_EXCLUSIVE = frozenset({"file", "hdfs", "webhdfs", "swebhdfs"})


@dataclass(frozen=True, slots=True)
class Places(CommitAt):
    """An epoch at one sink, and the paths that belong to it."""

    @property
    def epoch_folder(self) -> str:
        return f"{self.sink_folder}/{self.epoch}"

    @property
    def sink_folder(self) -> str:
        """The folder of all epochs of this sink."""
        at = self.epoch_at
        parts = (at.incarnation, str(at.pipeline), self.sink)
        return "/".join((HIDDEN, *(quote(part, safe="") for part in parts)))

    @property
    def manifest(self) -> str:
        return f"{self.epoch_folder}{MANIFEST}"

    @property
    def folder(self) -> str:
        return f"{self.epoch_folder}/{quote(self.execution, safe='')}"

    @property
    def transaction_id(self) -> str:
        """SeaTunnel's `${transactionId}`: unique for each epoch at each sink."""
        at = self.epoch_at
        return f"T_{at.incarnation}_{at.pipeline}_{quote(self.sink, safe='')}_{at.epoch}"


@dataclass(frozen=True, slots=True)
class FileNames:
    """The rules by which the files of one epoch get their final names."""

    expression: str
    now: datetime
    time_format: str
    extension: str  # with its dot and the codec's: ".csv.gz"
    partition_keys: Sequence[str] = ()
    partition_expression: str = PARTITION_EXPRESSION
    numbered: bool = True  # False: each folder gets one file, whose name needs no number

    def name(self, places: Places, staged: str, number: int) -> str:
        """The final path of a staged file; `staged` is its path below the execution's folder."""
        values = {
            "transactionId": places.transaction_id,
            "now": render_time(self.time_format, self.now),
            "uuid": str(uuid.uuid4()),
        }
        stem = _VARIABLE.sub(lambda match: values.get(match[1], match[0]), self.expression)
        if "${transactionId}" not in self.expression:
            stem += "_" + hashlib.blake2b(places.token.encode(), digest_size=8).hexdigest()
        if self.numbered:
            stem += f"_{number:05d}"
        return f"{self._folder(staged)}{_visible(stem)}{self.extension}"

    def _folder(self, staged: str) -> str:
        """The partition folders that Spark made, renamed as the user wants them."""
        values: dict[str, str] = {}
        for part in staged.split("/")[:-1]:
            if match := _PARTITION.fullmatch(part):
                values[f"v{match[1]}"] = match[2]
                values[f"k{match[1]}"] = quote(self.partition_keys[int(match[1])], safe=" -_.")
        if not values:
            return ""
        expression = self.partition_expression
        if expression == PARTITION_EXPRESSION:
            count = range(len(self.partition_keys))
            expression = "/".join(f"${{k{n}}}=${{v{n}}}" for n in count)
        written = _VARIABLE.sub(lambda match: values.get(match[1], match[0]), expression)
        parts = (_visible(part) for part in written.split("/") if part)
        return "".join(f"{part}/" for part in parts)


@dataclass(frozen=True, slots=True)
class Target:
    title: str  # shown to people: "sink LocalFile-1"
    root: str  # a URI, not percent-encoded; "/data" is "file:/data"
    site: str | None = None  # a file like hdfs-site.xml

    @classmethod
    def of(cls, title: str, folder: FolderOptions) -> Target:
        default = (folder.default_fs or "file:").rstrip("/")
        root = folder.path if urlsplit(folder.path).scheme else default + folder.path
        return cls(title, root.rstrip("/") or root, folder.site_path)

    @property
    def scheme(self) -> str:
        return urlsplit(self.root).scheme

    def settings(self, session: SparkSession) -> dict[str, str]:
        """Hadoop's settings for this file system."""
        return site_settings(session, self.site) if self.site else {}

    def open(self, session: SparkSession, *, exclusive: bool = False) -> FileSystem:
        """The file system at this folder.

        `exclusive`: it is refused unless it can create files exclusively.
        """
        if exclusive and self.scheme not in _EXCLUSIVE:
            raise Refused(
                f"{self.title}: on {self.scheme}:// a commit can't be made exclusive yet; "
                f"write to one of {', '.join(sorted(_EXCLUSIVE))}"
            )
        if self.scheme == "file":
            return LocalFiles("/" + self.root.removeprefix("file:").lstrip("/"))
        return HadoopFiles(session, self.root, self.settings(session))

    @contextmanager
    def translating_errors(self) -> Generator[None]:
        """Turn the file system's errors into ours, with the plugin's name in them.

        Not to be used around Spark jobs: the Java errors of those are about rows.
        """
        with self.translating_local_errors():
            try:
                yield
            except JAVA_ERRORS as error:
                message = f"{self.title}: {self.root}: {java_message(error)}"
                raise refused_or_unavailable(error, message) from error

    @contextmanager
    def translating_local_errors(self) -> Generator[None]:
        """As `translating_errors`, for Python's `OSError` only."""
        try:
            yield
        except OSError as error:
            message = f"{self.title}: {self.root}: {error.strerror or error}"
            wrong = isinstance(error, PermissionError | NotADirectoryError | IsADirectoryError)
            if wrong or error.errno == errno.EROFS:
                raise Refused(f"{message}; check 'path' and its owner") from error
            raise Unavailable(message) from error

    def check_writable(self) -> None:
        """Raise an error that says why a local folder can't be written to: Spark's says less.

        The probe leaves nothing behind, and makes no folder. Other file systems than the local one
        say by themselves why they refuse.
        """
        if self.scheme != "file":
            return
        with self.translating_local_errors():
            folder = Path("/" + self.root.removeprefix("file:").lstrip("/"))
            while not folder.exists():
                folder = folder.parent
            with tempfile.TemporaryFile(dir=folder) as probe:
                probe.write(b"\0" * PROBE_BYTES)
                probe.flush()


def _visible(name: str) -> str:
    """Escape a name that would hide a file from readers, or lead out of the folder."""
    hidden = name.startswith(".") or (name.startswith("_") and "=" not in name)
    return f"%{ord(name[0]):02X}{name[1:]}" if hidden else name
