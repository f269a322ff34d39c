"""File systems as connectors use them: the Protocol, the local one, and those of Hadoop.

Paths are relative to one root folder. `create` is the fence: of all who call it for one path
exactly one gets True, and the file is never seen half written.

- Locally `create` is a hard link to a file that was written and synced before.
- On Hadoop's file systems, e.g. hdfs://, it is `FileContext.rename` without the overwrite option,
  through Spark's JVM: the name node refuses an existing target in the same step in which it
  renames. Object stores have no such step.
"""

from __future__ import annotations

import ctypes
import errno
import os
import shutil
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, Protocol

from pyspark.sql import SparkSession

from headrace.errors import Refused
from headrace.spark.jvm_bridge import JAVA_ERRORS, hadoop_configuration, java_classes, jvm

MAKE_TRIES_MAX = 3  # to make a folder that somebody else prunes as empty
NOTHING_TO_PRUNE = frozenset({errno.ENOENT, errno.ENOTEMPTY, errno.EEXIST, errno.ENOTDIR})
_NO_EXCLUSIVE_RENAME = frozenset({errno.EINVAL, errno.ENOSYS, errno.EOPNOTSUPP})
_AT_CWD, _RENAME_NOREPLACE = -100, 1  # of Linux: fcntl.h and linux/fs.h
_NO_LINKS = frozenset({errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK})


@dataclass(frozen=True, slots=True)
class FileInfo:
    """A file or folder, as it was listed."""

    path: str
    bytes: int
    modified_ms: int


class FileSystem(Protocol):
    """What connectors need of a file system."""

    @property
    def root(self) -> str:
        """The root as Spark takes it: not percent-encoded."""
        ...

    def create(self, path: str, data: bytes, *, scratch: str) -> bool:
        """Create a whole file atomically; False when a file of that name exists.

        `scratch` is a folder for half-written files; a sweep that deletes it loses nothing.
        """
        ...

    def read(self, path: str) -> bytes | None:
        """The content; None when there is no such file."""
        ...

    def move(self, source: str, target: str) -> bool:
        """Rename a file, atomically; False when the source is gone. Never overwrites."""
        ...

    def files(self, folder: str = "", *, hidden: bool = False) -> Iterator[FileInfo]:
        """All files below a folder, or the file itself; none when it does not exist."""
        ...

    def entries(self, folder: str) -> Sequence[FileInfo]:
        """Files and folders directly in a folder; none when it does not exist."""
        ...

    def exists(self, path: str) -> bool: ...

    def sync(self, paths: Iterable[str]) -> None:
        """Make these files survive a loss of power, where the file system offers that."""
        ...

    def remove(self, file: FileInfo) -> None:
        """Delete a file; nothing happens when it is gone, or was changed since it was listed."""
        ...

    def delete(self, folder: str) -> None:
        """Delete a folder with all that is in it; nothing happens when it does not exist."""
        ...

    def prune(self, folder: str) -> None:
        """Delete a folder if it is empty; nothing happens when it does not exist."""
        ...


class LocalFiles:
    """The local file system."""

    def __init__(self, root: str) -> None:
        self._root = Path(root)

    @property
    def root(self) -> str:
        return f"file:{self._root}"

    def create(self, path: str, data: bytes, *, scratch: str) -> bool:
        target = self._root / path
        temporary = self._root / scratch / f".{uuid.uuid4().hex}.tmp"
        try:
            with _opened(temporary, target.parent) as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            made = self._link(temporary, target)
        finally:
            temporary.unlink(missing_ok=True)
        if not made:
            self.prune(scratch)  # a sweep may have deleted it before, and this file re-created it
        _sync(target.parent)
        return made

    def _link(self, temporary: Path, target: Path) -> bool:
        try:
            os.link(temporary, target)
        except FileExistsError:
            return False
        except OSError as error:
            if isinstance(error, FileNotFoundError) and target.exists():
                return False  # whoever created it has swept the scratch folder since
            if error.errno not in _NO_LINKS:
                raise
            raise Refused(
                f"{self._root} is on a file system without hard links, which make a commit "
                "exclusive; write to another one"
            ) from error
        return True

    def read(self, path: str) -> bytes | None:
        try:
            return (self._root / path).read_bytes()
        except FileNotFoundError:
            return None

    def move(self, source: str, target: str) -> bool:
        # A link and an unlink would not be atomic: a file could be shown again that a reader has
        # taken away in between.
        # The target is checked first: a rename between the two checks must not look like both.
        if self.exists(target) and self.exists(source):
            raise target_exists_error(self.root, target)
        if not self.exists(source):
            return False
        try:
            (self._root / target).parent.mkdir(parents=True, exist_ok=True)
            _rename(self._root / source, self._root / target)
        except (FileExistsError, NotADirectoryError) as error:
            if not self.exists(source):
                return False
            raise target_exists_error(self.root, target) from error
        except FileNotFoundError:
            if self.exists(source):
                raise  # somebody deleted the folder of the target meanwhile
            return False
        return True

    def files(self, folder: str = "", *, hidden: bool = False) -> Iterator[FileInfo]:
        top = self._root / folder
        if top.is_file():
            yield self._info(top)
        for parent, folders, names in os.walk(top):
            folders[:] = sorted(name for name in folders if hidden or not is_hidden(name))
            for name in sorted(names):
                if hidden or not is_hidden(name):
                    yield from self._info_if_there(Path(parent) / name)

    def _info_if_there(self, file: Path) -> Iterator[FileInfo]:
        """The file, or nothing when it is gone by now."""
        try:
            info = self._info(file)
        except FileNotFoundError:
            return  # moved since it was listed
        yield info

    def _info(self, file: Path) -> FileInfo:
        status = file.stat()
        name = "" if file == self._root else file.relative_to(self._root).as_posix()
        return FileInfo(name, status.st_size, status.st_mtime_ns // 1_000_000)

    def entries(self, folder: str) -> Sequence[FileInfo]:
        try:
            paths = sorted((self._root / folder).iterdir())
        except (FileNotFoundError, NotADirectoryError):
            return []
        return [info for file in paths for info in self._info_if_there(file)]

    def exists(self, path: str) -> bool:
        return os.path.lexists(self._root / path)

    def sync(self, paths: Iterable[str]) -> None:
        parents: set[Path] = set()
        for path in paths:
            _sync(self._root / path)
            parents.add((self._root / path).parent)
        for parent in parents:
            _sync(parent)

    def remove(self, file: FileInfo) -> None:
        # No one step checks and deletes. A file that takes this name in between is lost, which only
        # copies can do: all other names hold the token of their epoch.
        path = self._root / file.path
        with suppress(FileNotFoundError):
            if self._info(path) == file:
                path.unlink()

    def delete(self, folder: str) -> None:
        try:
            shutil.rmtree(self._root / folder)
        except FileNotFoundError:
            if self.exists(folder):  # somebody else is deleting in it, too
                shutil.rmtree(self._root / folder, ignore_errors=True)

    def prune(self, folder: str) -> None:
        try:
            (self._root / folder).rmdir()
        except OSError as error:
            if error.errno not in NOTHING_TO_PRUNE:
                raise


class HadoopFiles:
    """A file system that Hadoop knows, through Spark's JVM."""

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
                raise target_exists_error(self._root, target) from error
            raise
        return True

    def files(self, folder: str = "", *, hidden: bool = False) -> Iterator[FileInfo]:
        top = self._path(folder)
        if not self._system.exists(top):
            return
        base = str(self._system.makeQualified(self._path("")).toString())
        listing = self._system.listFiles(top, True)  # noqa: FBT003 - Java's recursive
        while listing.hasNext():
            status = listing.next()
            name = str(status.getPath().toString()).removeprefix(base).lstrip("/")
            if hidden or not any(is_hidden(part) for part in name.split("/")):
                yield FileInfo(name, int(status.getLen()), int(status.getModificationTime()))

    def entries(self, folder: str) -> Sequence[FileInfo]:
        try:
            statuses = list(self._system.listStatus(self._path(folder)))
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
            for status in statuses
        ]

    def exists(self, path: str) -> bool:
        return bool(self._system.exists(self._path(path)))

    def sync(self, paths: Iterable[str]) -> None:
        """Nothing to do: HDFS keeps closed files on several machines, and offers no more
        afterwards."""

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
    settings: dict[str, str] = {}
    while entries.hasNext():
        entry = entries.next()
        settings[str(entry.getKey())] = str(entry.getValue())
    return settings


def is_hidden(name: str) -> bool:
    """Whether Spark's and Hadoop's readers skip a file or folder of this name."""
    return name.startswith(".") or (name.startswith("_") and "=" not in name)


def target_exists_error(root: str, target: str) -> Refused:
    """The error for a `move` whose target exists."""
    return Refused(
        f"{root}/{target} is in the way of a committed file of that name, and is not overwritten; "
        "move it elsewhere, then run the job again"
    )


def _rename(source: Path, target: Path) -> None:
    """Rename a file; `FileExistsError` when the target exists.

    Linux does that in one step. Where the file system can't, as NFS, or where there is no such
    call, the rename overwrites a target that was made after the caller looked for one.
    """
    call: Any = getattr(ctypes.CDLL(None, use_errno=True), "renameat2", None)
    if call is not None:
        paths = os.fsencode(source), os.fsencode(target)
        if call(_AT_CWD, paths[0], _AT_CWD, paths[1], _RENAME_NOREPLACE) == 0:
            return
        number = ctypes.get_errno()
        if number not in _NO_EXCLUSIVE_RENAME:
            raise OSError(number, os.strerror(number), str(source), None, str(target))
    source.rename(target)


def _opened(file: Path, *folders: Path) -> BinaryIO:
    """Open a new file. Retries, because somebody else may prune its folders right after they were
    made."""
    for left in reversed(range(MAKE_TRIES_MAX)):
        for folder in (*folders, file.parent):
            folder.mkdir(parents=True, exist_ok=True)
        try:
            return file.open("xb")
        except FileNotFoundError:
            if left == 0:
                raise
    raise AssertionError("the last try returns or raises")


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
