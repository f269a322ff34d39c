"""The class-data archive: Java's own snapshot of loaded classes, which halves a cold start.

The first JVM of a kind writes one when it exits; later ones map it. It fits one Java and one
class path only, so its name is a hash of both. It is a convenience: whatever is wrong with it, a
start goes on without it.
"""

from __future__ import annotations

import hashlib
import logging
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import psutil
import pyspark

from headrace.worker.java import Java

log = logging.getLogger(__name__)

KEY_CHARACTERS = 16


@dataclass(frozen=True, slots=True)
class Archive:
    path: Path  # the archive, when it is there
    writing: Path | None  # where the JVM that is started now will leave one at its exit

    def java_options(self) -> list[str]:
        # Java says on stdout when an archive does not fit; nobody needs to read that.
        quiet = ["-Xshare:auto", "-Xlog:disable", "-Xlog:all=error:stderr"]
        if self.writing is not None:
            return [f"-XX:ArchiveClassesAtExit={self.writing}", *quiet]
        return [f"-XX:SharedArchiveFile={self.path}", *quiet]

    def keep(self) -> None:
        """Put the archive that an exited JVM left into its place."""
        if self.writing is not None and self.writing.is_file():
            self.writing.replace(self.path)

    def drop(self) -> None:
        """Forget it: a JVM did not start with it, or was killed while writing it."""
        (self.writing or self.path).unlink(missing_ok=True)


def archive_for(cache_dir: Path, *, java: Java, class_path: Sequence[Path]) -> Archive | None:
    """The archive to use or to write; None when there can't be one."""
    folder = (cache_dir / "archives").absolute()
    try:
        folder.mkdir(parents=True, exist_ok=True)
        _remove_abandoned(folder)
    except OSError as error:
        log.info("no class-data archive", extra={"reason": str(error)})
        return None
    path = folder / f"{_key(java, class_path)}.jsa"
    if path.is_file():
        return Archive(path, writing=None)
    return Archive(path, writing=path.with_suffix(f".{os.getpid()}.tmp"))


def _key(java: Java, class_path: Sequence[Path]) -> str:
    told = [str(java.executable.resolve()), java.version, pyspark.__version__, pyspark.__file__]
    told += [f"{path} {path.stat().st_size}" for path in class_path]
    return hashlib.sha256("\n".join(told).encode()).hexdigest()[:KEY_CHARACTERS]


def _remove_abandoned(folder: Path) -> None:
    """What a process left that was killed before its JVM had written the whole of it."""
    for path in folder.glob("*.tmp"):
        owner = path.name.split(".")[-2]
        if not (owner.isdigit() and psutil.pid_exists(int(owner))):
            path.unlink(missing_ok=True)
