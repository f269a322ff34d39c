"""What is asked of a file system, and the local one. Paths are relative to one root folder.

`create` is the fence: of all who call it for one path, one gets True, and the file is never seen
with half of its content. Locally that is a hard link to a file written and synced before.
"""

from __future__ import annotations

import errno
import os
import shutil
import uuid
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Protocol

from headrace.errors import Refused

MAKE_TRIES_MAX = 3  # of a folder that somebody else deletes as empty
NOTHING_TO_PRUNE = frozenset({errno.ENOENT, errno.ENOTEMPTY, errno.EEXIST, errno.ENOTDIR})
_NO_LINKS = frozenset({errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK})


@dataclass(frozen=True, slots=True)
class FileInfo:
    path: str
    bytes: int
    modified_ms: int


class FileSystem(Protocol):
    @property
    def root(self) -> str:
        """As Spark takes it: not percent-encoded."""
        ...

    def create(self, path: str, data: bytes, *, scratch: str) -> bool:
        """Make a whole file, atomically; False when there is one of that name.

        `scratch` is a folder for what is half made; a sweep that deletes it loses nothing.
        """
        ...

    def read(self, path: str) -> bytes | None:
        """None when there is no such file."""
        ...

    def move(self, source: str, target: str) -> bool:
        """Rename a file, atomically; False when the source is gone. Never overwrites."""
        ...

    def files(self, folder: str = "", *, hidden: bool = False) -> Iterator[FileInfo]:
        """All files below a folder, or the file itself; none when it is not there."""
        ...

    def entries(self, folder: str) -> Sequence[FileInfo]:
        """Files and folders that lie right in a folder; none when it is not there."""
        ...

    def exists(self, path: str) -> bool: ...

    def sync(self, paths: Iterable[str]) -> None:
        """Make what was written survive a loss of power, where that can be asked for."""
        ...

    def remove(self, file: FileInfo) -> None:
        """Delete a file; nothing happens when it is gone, or was changed since."""
        ...

    def delete(self, folder: str) -> None:
        """With all that is in it; nothing happens when it is not there."""
        ...

    def prune(self, folder: str) -> None:
        """Delete a folder if nothing is in it; nothing happens when it is not there."""
        ...


def is_hidden(name: str) -> bool:
    """As Spark's and Hadoop's readers see it."""
    return name.startswith(".") or (name.startswith("_") and "=" not in name)


class LocalFiles:
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
            self.prune(scratch)  # it may have been swept before, and made again for this file
        _sync(target.parent)
        return made

    def _link(self, temporary: Path, target: Path) -> bool:
        try:
            os.link(temporary, target)
        except FileExistsError:
            return False
        except OSError as error:
            if isinstance(error, FileNotFoundError) and target.exists():
                return False  # its maker has swept the scratch folder since
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
        # A rename would overwrite, but nobody else makes files of that name; a link and an
        # unlink in its place would not be atomic, and could show a file twice.
        # The target is asked first: a rename between the two questions must not look like both.
        if self.exists(target) and self.exists(source):
            raise in_the_way(self.root, target)
        (self._root / target).parent.mkdir(parents=True, exist_ok=True)
        try:
            (self._root / source).rename(self._root / target)
        except FileNotFoundError:
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
                    yield from self._still(Path(parent) / name)

    def _still(self, file: Path) -> Iterator[FileInfo]:
        try:
            info = self._info(file)
        except FileNotFoundError:
            return  # moved away since it was listed
        yield info

    def _info(self, file: Path) -> FileInfo:
        told = file.stat()
        name = "" if file == self._root else file.relative_to(self._root).as_posix()
        return FileInfo(name, told.st_size, told.st_mtime_ns // 1_000_000)

    def entries(self, folder: str) -> Sequence[FileInfo]:
        try:
            found = sorted((self._root / folder).iterdir())
        except (FileNotFoundError, NotADirectoryError):
            return []
        return [info for file in found for info in self._still(file)]

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
        path = self._root / file.path
        with suppress(FileNotFoundError):
            if self._info(path) == file:
                path.unlink()

    def delete(self, folder: str) -> None:
        try:
            shutil.rmtree(self._root / folder)
        except FileNotFoundError:
            if self.exists(folder):  # somebody else deletes in it, too
                shutil.rmtree(self._root / folder, ignore_errors=True)

    def prune(self, folder: str) -> None:
        try:
            (self._root / folder).rmdir()
        except OSError as error:
            if error.errno not in NOTHING_TO_PRUNE:
                raise


def _opened(file: Path, *folders: Path) -> BinaryIO:
    """A new file. Its folders may be pruned by somebody else right after they were made."""
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


def in_the_way(root: str, target: str) -> Refused:
    return Refused(
        f"{root}/{target} is in the way of a committed file of that name, and is not overwritten; "
        "move it elsewhere, then run the job again"
    )
