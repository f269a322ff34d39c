"""What Spark needs on this machine: pyspark, Java, extra jars, and a class-data archive (CDS).

pyspark is looked for and not imported: that takes long, and a coordinator's machine has none.

Java is the one of JAVA_HOME, or else the first one on the PATH. Spark's own launcher chooses in
this order, so the Java that is checked here is the one that will run.

Jars that Spark does not bring itself are fetched once into the cache and checked. Each has a pinned
version and a pinned SHA-256. The Ivy inside pyspark fetches them, so that no repository's address
stands here and a user's own Ivy settings hold. A jar is complete when its `.ok` marker exists with
its size: marker and jar are renamed into place, never written there.

The class-data archive is Java's own snapshot of loaded classes, which halves a cold start. The
first JVM of a kind writes one when it exits; later ones map it. It fits one Java and one class path
only, so its name is a hash of both. It is a convenience: whatever is wrong with it, a start goes on
without it.
"""

from __future__ import annotations

import fcntl
import hashlib
import logging
import os
import re
import shutil
import subprocess
import tempfile
import threading
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

import psutil

from headrace import config
from headrace.clock import Clock, SystemClock
from headrace.errors import ExtraMissing, JarsUnavailable, JavaMissing

log = logging.getLogger(__name__)

JAVA_VERSIONS_ACCEPTED = (17, 21)  # the releases Spark 4.1 is tested on
JAVA_VERSION_TIMEOUT_S = 30
FETCH_TIMEOUT_S = 300
LOCK_TIMEOUT_S = 330  # a fetch by somebody else, and some slack
LOCK_POLL_S = 0.2
REASON_LINES_MAX = 3  # of Ivy's output
FETCH_PREFIX = ".fetch-"  # of folders that a fetch works in
KEY_CHARACTERS = 16  # of the hash in an archive's name

_WAY_OUT = "install a JDK or JRE 17 or 21, and set JAVA_HOME to it or put its bin folder on PATH"
_VERSION = re.compile(r'version "(?P<text>(?:1\.)?(?P<major>\d+)[^"]*)"')
_CHUNK_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class JavaInstallation:
    """A Java that Spark can run on."""

    executable: Path
    version: str  # "17.0.15"
    major: int


@dataclass(frozen=True, slots=True)
class Jar:
    """A jar by its Maven coordinates and its checksum."""

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


@dataclass(frozen=True, slots=True)
class ClassDataArchive:
    """An archive to use, or to be written by the JVM that is started now."""

    path: Path  # of the archive, whether it exists yet or not
    writing: (
        Path | None
    )  # where the JVM that is started now writes one at its exit; None: it exists

    def java_options(self) -> list[str]:
        # Java complains on stdout when an archive does not fit; nobody needs to read that.
        quiet = ["-Xshare:auto", "-Xlog:disable", "-Xlog:all=error:stderr"]
        if self.writing is not None:
            return [f"-XX:ArchiveClassesAtExit={self.writing}", *quiet]
        return [f"-XX:SharedArchiveFile={self.path}", *quiet]

    def keep(self) -> None:
        """Rename the archive that an exited JVM has written into its place."""
        if self.writing is not None and self.writing.is_file():
            self.writing.replace(self.path)

    def drop(self) -> None:
        """Delete it: a JVM did not start with it, or was killed while writing it."""
        (self.writing or self.path).unlink(missing_ok=True)


def find_spark(needed_for: str = "a worker needs Spark") -> Path:
    """The folder of the installed pyspark, or `ExtraMissing` with how to install it."""
    spec = find_spec("pyspark")
    if spec is None or spec.origin is None:
        raise ExtraMissing("worker", needed_for)
    return Path(spec.origin).parent


def spark_version() -> str:
    """The version of pyspark, which is imported for it: a Spark that was put on the path of Python
    by hand has no metadata to ask."""
    return import_module("pyspark").__version__


def find_java(java_home: Path | None = None) -> JavaInstallation:
    """The Java to use, or `JavaMissing` with what was found, where, and what to do."""
    home = java_home or config.java_home()
    if home is not None:
        executable = home / "bin" / "java"
        if not executable.is_file():
            raise JavaMissing(f"JAVA_HOME is {home}, but {executable} does not exist; {_WAY_OUT}")
        return _checked_java(executable, f"JAVA_HOME={home}")
    on_path = shutil.which("java")
    if on_path is None:
        raise JavaMissing(
            f"Spark needs Java 17 or 21; JAVA_HOME is not set and there is no java on PATH; "
            f"{_WAY_OUT}"
        )
    return _checked_java(Path(on_path), "PATH")


def resolve_jars(
    cache_dir: Path,
    *,
    java: JavaInstallation,
    say: Callable[[str], None],
    jars: tuple[Jar, ...] = JARS,
    ivy_settings: Path | None = None,
    clock: Clock | None = None,
) -> tuple[Path, ...]:
    """Paths of all jars, fetching what is missing. `say` is called with one line for each fetch."""
    folder = (cache_dir / "jars").absolute()
    folder.mkdir(parents=True, exist_ok=True)
    missing = [jar for jar in jars if not _is_complete(folder, jar)]
    if missing:
        with fetch_lock(folder, clock or SystemClock()):
            for jar in missing:
                if not _adopt(folder, jar):  # another start may have fetched it by now
                    say(f"fetching {jar.coordinate} (once, into {folder})")
                    _fetch(folder, jar, java, ivy_settings)
    return tuple(folder / jar.file_name for jar in jars)


def missing_jars(cache_dir: Path) -> tuple[str, ...]:
    """Coordinates of the jars that a start would have to fetch (for `headrace doctor`)."""
    folder = cache_dir / "jars"
    return tuple(jar.coordinate for jar in JARS if not _is_complete(folder, jar))


def archive_for(
    cache_dir: Path, *, java: JavaInstallation, class_path: Sequence[Path]
) -> ClassDataArchive | None:
    """The archive to use or to write; None when the cache can't hold one."""
    folder = (cache_dir / "archives").absolute()
    try:
        folder.mkdir(parents=True, exist_ok=True)
        _remove_abandoned(folder)
    except OSError as error:
        log.info("no class-data archive", extra={"reason": str(error)})
        return None
    path = folder / f"{_archive_key(java, class_path)}.jsa"
    if path.is_file():
        return ClassDataArchive(path, writing=None)
    return ClassDataArchive(path, writing=path.with_suffix(f".{os.getpid()}.tmp"))


def _checked_java(executable: Path, where: str) -> JavaInstallation:
    output = _version_output(executable, where)
    match = _VERSION.search(output)
    if match is None:
        first = output.strip().splitlines()[0] if output.strip() else "nothing"
        raise JavaMissing(
            f"{executable} (from {where}) did not say its version but {first!r}; {_WAY_OUT}"
        )
    java = JavaInstallation(executable, match["text"], int(match["major"]))
    if java.major not in JAVA_VERSIONS_ACCEPTED:
        raise JavaMissing(
            f"Spark needs Java 17 or 21; {executable} (from {where}) is Java {java.version}; "
            f"{_WAY_OUT}"
        )
    return java


def _version_output(executable: Path, where: str) -> str:
    """What `java -version` prints."""
    try:
        done = subprocess.run(  # noqa: S603 - the Java that the user pointed us to
            [str(executable), "-version"],
            capture_output=True,
            text=True,
            errors="replace",
            timeout=JAVA_VERSION_TIMEOUT_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise JavaMissing(
            f"{executable} (from {where}) can not be run: {error}; {_WAY_OUT}"
        ) from error
    return done.stderr + done.stdout


def _marker(folder: Path, jar: Jar) -> Path:
    return folder / f"{jar.file_name}.ok"


def _is_complete(folder: Path, jar: Jar) -> bool:
    """Whether jar and marker agree. Cheap, since every start asks: the marker holds the checksum
    and the size that were verified."""
    path, marker = folder / jar.file_name, _marker(folder, jar)
    if not (path.is_file() and marker.is_file()):
        return False
    return marker.read_text() == _marker_text(jar, path)


def _marker_text(jar: Jar, path: Path) -> str:
    return f"{jar.sha256} {path.stat().st_size}\n"


def _adopt(folder: Path, jar: Jar) -> bool:
    """Accept a jar that has no marker, e.g. one that a user put there by hand."""
    path = folder / jar.file_name
    if not path.is_file() or sha256_of(path) != jar.sha256:
        return False
    _mark(folder, jar)
    return True


def _mark(folder: Path, jar: Jar) -> None:
    marker = _marker(folder, jar)
    written = marker.with_suffix(f".{os.getpid()}.tmp")
    written.write_text(_marker_text(jar, folder / jar.file_name))
    written.replace(marker)


def _fetch(folder: Path, jar: Jar, java: JavaInstallation, ivy_settings: Path | None) -> None:
    with tempfile.TemporaryDirectory(prefix=FETCH_PREFIX, dir=folder) as scratch:
        ivy = ivy_command(java, cache=Path(scratch) / "ivy", ivy_settings=ivy_settings)
        output = _run_ivy(ivy, Path(scratch), jar, folder)
        fetched = Path(scratch) / "got" / jar.file_name
        if not fetched.is_file():
            raise _unavailable(folder, jar, failure_reason(output))
        checksum = sha256_of(fetched)
        if checksum != jar.sha256:
            raise _unavailable(
                folder, jar, f"its SHA-256 is {checksum}, expected {jar.sha256}; it was thrown away"
            )
        fetched.replace(folder / jar.file_name)
    _mark(folder, jar)


def ivy_command(java: JavaInstallation, *, cache: Path, ivy_settings: Path | None) -> list[str]:
    """How the Ivy inside pyspark is started. `ivy_settings`: None for Ivy's defaults."""
    ivy = next((find_spark() / "jars").glob("ivy-*.jar"), None)
    if ivy is None:
        raise JarsUnavailable("pyspark's own ivy jar is not there; reinstall pyspark")
    command = [str(java.executable), "-jar", str(ivy), "-cache", str(cache)]
    return (
        command if ivy_settings is None else [*command, "-settings", str(ivy_settings.absolute())]
    )


def _run_ivy(ivy: Sequence[str], scratch: Path, jar: Jar, folder: Path) -> str:
    command = [*ivy, "-dependency", jar.group, jar.artifact, jar.version, "-notransitive"]
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


def failure_reason(output: str) -> str:
    """The lines of Ivy's output that say what went wrong, without its rulers and boxes."""
    lines = [line.strip(" \t:|-") for line in output.splitlines()]
    error_lines = [line for line in lines if line and ("not found" in line or "rror" in line)]
    return "; ".join((error_lines or [line for line in lines if line])[-REASON_LINES_MAX:])


def _unavailable(folder: Path, jar: Jar, reason: str) -> JarsUnavailable:
    return JarsUnavailable(
        f"{jar.coordinate} could not be fetched: {reason}; check the network and any proxy, "
        f"or put the jar yourself at {folder / jar.file_name}"
    )


def sha256_of(path: Path) -> str:
    digest = hashlib.sha256()
    with path.open("rb") as stream:
        while chunk := stream.read(_CHUNK_BYTES):
            digest.update(chunk)
    return digest.hexdigest()


@contextmanager
def fetch_lock(
    folder: Path, clock: Clock, *, waiting: Callable[[], None] = lambda: None
) -> Generator[None]:
    """Allow one fetch at a time in this cache; the lock ends with the process that holds it.

    `waiting` is called again and again while somebody else has it. Whatever a fetch that was killed
    has left is deleted first: nobody else works here.
    """
    path = folder / ".lock"
    deadline_s = clock.monotonic_s() + LOCK_TIMEOUT_S
    with path.open("w") as stream:
        while not _try_lock(stream.fileno()):
            if clock.monotonic_s() > deadline_s:
                raise JarsUnavailable(
                    f"another start has held {path} for {LOCK_TIMEOUT_S} s; end it and try again"
                )
            waiting()
            threading.Event().wait(LOCK_POLL_S)
        for abandoned in folder.glob(f"{FETCH_PREFIX}*"):
            shutil.rmtree(abandoned, ignore_errors=True)
        yield


def _try_lock(fileno: int) -> bool:
    try:
        fcntl.flock(fileno, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _archive_key(java: JavaInstallation, class_path: Sequence[Path]) -> str:
    parts = [str(java.executable.resolve()), java.version, spark_version(), str(find_spark())]
    parts += [f"{path} {path.stat().st_size}" for path in class_path]
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:KEY_CHARACTERS]


def _remove_abandoned(folder: Path) -> None:
    """Remove half-written archives of processes that no longer run."""
    for path in folder.glob("*.tmp"):
        owner = path.name.split(".")[-2]
        if not (owner.isdigit() and psutil.pid_exists(int(owner))):
            path.unlink(missing_ok=True)
