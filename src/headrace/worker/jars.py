"""The jars that Spark does not bring itself, fetched once into the cache and checked.

Each has a pinned version and a pinned SHA-256. The Ivy inside pyspark fetches them, so that no
repository's address stands here and a user's own Ivy settings hold. A jar is complete when its
`.ok` marker is there with its size: marker and jar are renamed into place, never written there.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import subprocess
import tempfile
import threading
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pyspark

from headrace.clock import Clock, SystemClock
from headrace.errors import JarsUnavailable
from headrace.worker.java import Java

FETCH_TIMEOUT_S = 300
LOCK_TIMEOUT_S = 330  # somebody else's fetch, and a little
LOCK_POLL_S = 0.2
REASON_LINES_MAX = 3
_CHUNK_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class Jar:
    group: str
    artifact: str
    version: str
    sha256: str

    @property
    def coordinate(self) -> str:
        return f"{self.group}:{self.artifact}:{self.version}"

    @property
    def file_name(self) -> str:
        return f"{self.artifact}-{self.version}.jar"


JARS = (
    Jar(
        "org.apache.iceberg",
        "iceberg-spark-runtime-4.1_2.13",
        "1.12.0",
        "3123c3798af642dd537230923548e013ef41cc28b6626e5225808cf5670a0f82",
    ),
    Jar(
        "org.xerial",
        "sqlite-jdbc",
        "3.50.3.0",
        "a3f53a2aa15ae9425a9e793bbe9c8e5288febeb4b65ef5c1a4e80d4c2045cf08",
    ),
    Jar(
        "org.postgresql",
        "postgresql",
        "42.7.14",
        "73914527305a40cce504b0d3d90b23caf565136912d607ae8ae7c5895512332c",
    ),
)


def resolve(
    cache_dir: Path,
    *,
    java: Java,
    say: Callable[[str], None],
    jars: tuple[Jar, ...] = JARS,
    clock: Clock | None = None,
) -> tuple[Path, ...]:
    """Paths of all jars, fetching what is missing. `say` gets one line for each fetch."""
    folder = (cache_dir / "jars").absolute()
    folder.mkdir(parents=True, exist_ok=True)
    missing = [jar for jar in jars if not _complete(folder, jar)]
    if missing:
        with _locked(folder, clock or SystemClock()):
            for jar in missing:
                if not _adopt(folder, jar):  # perhaps another start has fetched it by now
                    say(f"fetching {jar.coordinate} (once, into {folder})")
                    _fetch(folder, jar, java)
    return tuple(folder / jar.file_name for jar in jars)


def missing_jars(cache_dir: Path) -> tuple[str, ...]:
    """Coordinates that a start would have to fetch (for `headrace doctor`)."""
    folder = cache_dir / "jars"
    return tuple(jar.coordinate for jar in JARS if not _complete(folder, jar))


def _marker(folder: Path, jar: Jar) -> Path:
    return folder / f"{jar.file_name}.ok"


def _complete(folder: Path, jar: Jar) -> bool:
    """Cheap, since every start asks: the marker holds the checksum and size that were verified."""
    path, marker = folder / jar.file_name, _marker(folder, jar)
    if not (path.is_file() and marker.is_file()):
        return False
    return marker.read_text() == _verified(jar, path)


def _verified(jar: Jar, path: Path) -> str:
    return f"{jar.sha256} {path.stat().st_size}\n"


def _adopt(folder: Path, jar: Jar) -> bool:
    """Take a jar that lies there without a marker, e.g. one a user put there by hand."""
    path = folder / jar.file_name
    if not path.is_file() or _sha256(path) != jar.sha256:
        return False
    _mark(folder, jar)
    return True


def _mark(folder: Path, jar: Jar) -> None:
    marker = _marker(folder, jar)
    written = marker.with_suffix(f".{os.getpid()}.tmp")
    written.write_text(_verified(jar, folder / jar.file_name))
    written.replace(marker)


def _fetch(folder: Path, jar: Jar, java: Java) -> None:
    with tempfile.TemporaryDirectory(prefix=".fetch-", dir=folder) as scratch:
        said = _run_ivy(Path(scratch), jar, java, folder)
        got = Path(scratch) / "got" / jar.file_name
        if not got.is_file():
            raise _unavailable(folder, jar, _last_lines(said))
        found = _sha256(got)
        if found != jar.sha256:
            raise _unavailable(
                folder, jar, f"its SHA-256 is {found}, expected {jar.sha256}; it was thrown away"
            )
        got.replace(folder / jar.file_name)
    _mark(folder, jar)


def _run_ivy(scratch: Path, jar: Jar, java: Java, folder: Path) -> str:
    ivy = next((Path(pyspark.__file__).parent / "jars").glob("ivy-*.jar"), None)
    if ivy is None:
        raise _unavailable(folder, jar, "pyspark's own ivy jar is not there; reinstall pyspark")
    command = [str(java.executable), "-jar", str(ivy), "-cache", str(scratch / "ivy")]
    command += ["-dependency", jar.group, jar.artifact, jar.version, "-notransitive"]
    command += ["-types", "jar", "-retrieve", str(scratch / "got" / "[artifact]-[revision].[ext]")]
    try:
        done = subprocess.run(  # noqa: S603 - Java was checked, the rest is ours
            command,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=FETCH_TIMEOUT_S,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise _unavailable(folder, jar, f"nothing came in {FETCH_TIMEOUT_S} s") from error
    return done.stdout + done.stderr


def _last_lines(said: str) -> str:
    """Ivy's own words for what went wrong, without its rulers and boxes."""
    lines = [line.strip(" \t:|-") for line in said.splitlines()]
    telling = [line for line in lines if line and ("not found" in line or "rror" in line)]
    return "; ".join((telling or [line for line in lines if line])[-REASON_LINES_MAX:])


def _unavailable(folder: Path, jar: Jar, reason: str) -> JarsUnavailable:
    return JarsUnavailable(
        f"{jar.coordinate} could not be fetched: {reason}; check the network and any proxy, "
        f"or put the jar yourself at {folder / jar.file_name}"
    )


def _sha256(path: Path) -> str:
    digest = hashlib.sha256()
    with path.open("rb") as stream:
        while chunk := stream.read(_CHUNK_BYTES):
            digest.update(chunk)
    return digest.hexdigest()


@contextmanager
def _locked(folder: Path, clock: Clock) -> Generator[None]:
    """One fetch at a time on this cache; the lock goes with the process that holds it."""
    path = folder / ".lock"
    deadline_s = clock.monotonic_s() + LOCK_TIMEOUT_S
    with path.open("w") as stream:
        while not _try_lock(stream.fileno()):
            if clock.monotonic_s() > deadline_s:
                raise JarsUnavailable(
                    f"another start has held {path} for {LOCK_TIMEOUT_S} s; end it and try again"
                )
            threading.Event().wait(LOCK_POLL_S)
        yield


def _try_lock(fileno: int) -> bool:
    try:
        fcntl.flock(fileno, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
