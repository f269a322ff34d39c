"""The cache of jars that plug-ins and jobs need: resolved with all they need in turn, fetched once.

The Ivy inside pyspark resolves and fetches, so that the user's own settings hold, as for the jars
that every JVM starts with (`installation.py`). What Spark and those jars bring is left out: Spark
loads its own first, so that a second version would never be used.

In the folder `jars` of the cache:

- `<group>/<artifact>-<version>.jar`: a jar, beside it `….jar.ok` with its SHA-256 and its size. The
  first fetch records them, and they hold from then on: a repository that sends something else
  later is not believed.
- `resolved/<name>.json`: what some coordinates were resolved to. It is written last, so that what
  it lists is there; with it nothing is asked of the network.

Every file is renamed into place, and one process fetches at a time. Paths are relative, so that a
folder copied from another machine is as good as one that was filled here.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import re
import subprocess
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from headrace.clock import Clock, SystemClock
from headrace.errors import JarsUnavailable
from headrace.plugins.jars import JarCoordinates
from headrace.spark.installation import (
    FETCH_PREFIX,
    FETCH_TIMEOUT_S,
    JARS,
    JavaInstallation,
    failure_reason,
    fetch_lock,
    find_java,
    find_spark,
    ivy_command,
    sha256_of,
)

log = logging.getLogger(__name__)

POLL_S = 0.5  # between two looks at a fetch that runs
NAME_CHARACTERS_MAX = 60  # of a resolved list's name, before its hash
HASH_CHARACTERS = 12
JARS_MAX = 500  # that some coordinates may need; more is a mistake
# How POMs call what is a jar; types such as pom and test-jar are none.
_JAR_TYPES = ("jar", "bundle", "eclipse-plugin", "hk2-jar", "orbit", "maven-plugin")
_RETRIEVED = "[organisation]/[module]/[revision]/[artifact]-[revision](-[classifier]).[ext]"


@dataclass(frozen=True, slots=True)
class ResolvedJar:
    """A jar in the cache."""

    module: str  # group:artifact
    version: str
    path: Path

    @property
    def coordinates(self) -> str:
        return f"{self.module}:{self.version}"


@cache
def shipped_artifacts() -> frozenset[str]:
    """Artifacts that every JVM has: those of Spark, and of the jars that it is started with.

    Spark's own are known by their files alone. Where a name can be read in two ways, as in
    zstd-jni-1.5.7-6, both are in here.
    """
    names = {jar.artifact for jar in JARS}
    for path in (find_spark() / "jars").glob("*.jar"):
        names |= {path.name[: found.start()] for found in re.finditer(r"-(?=\d)", path.name)}
    return frozenset(names)


def shipped_version(jar: JarCoordinates) -> str | None:
    """The version of the jar that every JVM has; None when it has none of it."""
    for each in JARS:
        if f"{each.group}:{each.artifact}" == jar.module:
            return each.version
    if jar.artifact not in shipped_artifacts():
        return None
    files = sorted((find_spark() / "jars").glob(f"{jar.artifact}-[0-9]*.jar"))
    return files[0].stem.removeprefix(f"{jar.artifact}-") if files else None


class JarCache:
    """The jars of one cache folder. Safe for threads and processes."""

    def __init__(
        self,
        cache_dir: Path,
        *,
        ivy_settings: Path | None = None,
        java: Callable[[], JavaInstallation] = find_java,
        clock: Clock | None = None,
    ) -> None:
        self._folder = (cache_dir / "jars").absolute()
        self._ivy_settings, self._java = ivy_settings, java
        self._clock = clock or SystemClock()

    def resolve(
        self,
        wanted: Sequence[JarCoordinates],
        *,
        say: Callable[[str], None],
        waiting: Callable[[], None] = lambda: None,
    ) -> tuple[ResolvedJar, ...]:
        """These jars, of which every JVM has none, with all they need; fetched when one is missing.

        `say` is called with one line before something is fetched, and `waiting` about each second
        meanwhile: what it raises ends the fetch. Raises `JarsUnavailable` when a jar does not come,
        or is not what it was, or not what its pin says.
        """
        if (found := self._complete(wanted)) is not None:
            return found
        self._folder.mkdir(parents=True, exist_ok=True)
        with fetch_lock(self._folder, self._clock, waiting=waiting):
            found = self._complete(wanted) or self._adopted(wanted)
            if found is None:
                say(f"fetching {_names(wanted)} with all they need (once, into {self._folder})")
                self._fetch(wanted, waiting)
                found = self._complete(wanted)
        if found is None:
            raise self._unavailable(wanted, "it was changed while it was looked at")
        return found

    def _complete(self, wanted: Sequence[JarCoordinates]) -> tuple[ResolvedJar, ...] | None:
        """What was resolved before, if every jar of it is there and is what it was."""
        listed = self._read_list(wanted)
        if listed is None:
            return None
        for jar in listed:
            recorded = _recorded(jar.path)
            if recorded is None or not jar.path.is_file() or sha256_of(jar.path) != recorded:
                return None
        self._check_pins(wanted)
        return listed

    def _check_pins(self, wanted: Sequence[JarCoordinates]) -> None:
        for jar in wanted:
            recorded = _recorded(self._path_of(jar))
            if jar.sha256 is not None and recorded != jar.sha256:
                raise self._unavailable(
                    [jar], f"its SHA-256 is {recorded}, expected {jar.sha256}; it is not used"
                )

    def _adopted(self, wanted: Sequence[JarCoordinates]) -> tuple[ResolvedJar, ...] | None:
        """Accept jars that a user put there by hand; None unless they are all that is needed."""
        if any(jar.transitive for jar in wanted):
            return None
        checksums: dict[Path, str] = {}
        for jar in wanted:
            path = self._path_of(jar)
            if not path.is_file():
                return None
            checksums[path] = sha256_of(path)
            if checksums[path] != (_recorded(path) or jar.sha256 or checksums[path]):
                return None  # not what it should be: it is fetched
        for path, checksum in checksums.items():
            _record(path, checksum)
        jars = [ResolvedJar(jar.module, jar.version, self._path_of(jar)) for jar in wanted]
        self._write_list(wanted, jars)
        return self._complete(wanted)

    def _fetch(self, wanted: Sequence[JarCoordinates], waiting: Callable[[], None]) -> None:
        with tempfile.TemporaryDirectory(prefix=FETCH_PREFIX, dir=self._folder) as scratch:
            got = Path(scratch) / "got"
            output = self._run_ivy(wanted, Path(scratch), got, waiting)
            fetched = self._fetched_in(got)
            missing = {jar.coordinates for jar in wanted} - {jar.coordinates for jar in fetched}
            if missing or len(fetched) > JARS_MAX:
                raise self._unavailable(wanted, failure_reason(output) or f"no {sorted(missing)}")
            self._check_fetched(wanted, fetched)
            kept = [self._keep(jar) for jar in fetched]
        self._write_list(wanted, kept)

    def _run_ivy(
        self,
        wanted: Sequence[JarCoordinates],
        scratch: Path,
        got: Path,
        waiting: Callable[[], None],
    ) -> str:
        module = scratch / "ivy.xml"
        module.write_text(ivy_module(wanted, left_out=shipped_artifacts()))
        command = ivy_command(self._java(), cache=scratch / "ivy", ivy_settings=self._ivy_settings)
        command += ["-ivy", str(module), "-types", *_JAR_TYPES]
        command += ["-retrieve", str(got / _RETRIEVED)]
        deadline_s = self._clock.monotonic_s() + FETCH_TIMEOUT_S
        with subprocess.Popen(  # noqa: S603 - Java was checked, coordinates have harmless letters
            command,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            cwd=scratch,
        ) as process:
            try:
                output = self._output_of(process, wanted, waiting, deadline_s)
            finally:
                if process.poll() is None:
                    process.kill()
        if process.returncode != 0:
            raise self._unavailable(wanted, failure_reason(output))
        return output

    def _output_of(
        self,
        process: subprocess.Popen[str],
        wanted: Sequence[JarCoordinates],
        waiting: Callable[[], None],
        deadline_s: float,
    ) -> str:
        while self._clock.monotonic_s() < deadline_s:
            waiting()
            try:
                return process.communicate(timeout=POLL_S)[0]
            except subprocess.TimeoutExpired:
                continue
        raise self._unavailable(wanted, f"nothing came in {FETCH_TIMEOUT_S} s")

    def _fetched_in(self, got: Path) -> Sequence[ResolvedJar]:
        found: list[ResolvedJar] = []
        for path in sorted(got.glob("*/*/*/*.jar")):
            group, artifact, version, _ = path.relative_to(got).parts
            found.append(ResolvedJar(f"{group}:{artifact}", version, path))
        return found

    def _check_fetched(
        self, wanted: Sequence[JarCoordinates], fetched: Sequence[ResolvedJar]
    ) -> None:
        """Compare what came with the pins, and with what came before."""
        pins = {jar.coordinates: jar.sha256 for jar in wanted if jar.sha256 is not None}
        for jar in fetched:
            checksum, place = sha256_of(jar.path), self._place_of(jar)
            expected = pins.get(jar.coordinates)
            if expected is not None and jar.path.name == _file_name(jar.coordinates):
                self._check_sum(wanted, jar, checksum, expected, "it was thrown away")
            if (recorded := _recorded(place)) is not None:
                again = f"as it was first; delete {_marker(place)} if the new one is right"
                self._check_sum(wanted, jar, checksum, recorded, again)

    def _check_sum(
        self,
        wanted: Sequence[JarCoordinates],
        jar: ResolvedJar,
        checksum: str,
        expected: str,
        what_then: str,
    ) -> None:
        if checksum != expected:
            raise self._unavailable(
                wanted,
                f"the SHA-256 of {jar.coordinates} is {checksum}, expected {expected}; {what_then}",
            )

    def _keep(self, jar: ResolvedJar) -> ResolvedJar:
        place = self._place_of(jar)
        place.parent.mkdir(parents=True, exist_ok=True)
        checksum = sha256_of(jar.path)
        jar.path.replace(place)
        _record(place, checksum)
        return ResolvedJar(jar.module, jar.version, place)

    def _place_of(self, jar: ResolvedJar) -> Path:
        return self._folder / jar.module.split(":")[0] / jar.path.name

    def _path_of(self, jar: JarCoordinates) -> Path:
        return self._folder / jar.group / _file_name(jar.coordinates)

    def _list_of(self, wanted: Sequence[JarCoordinates]) -> Path:
        """Where the resolved list of these coordinates is; pins don't change it. It leaves out what
        Spark ships, so each Spark has lists of its own."""
        asked = sorted(f"{jar.coordinates} {jar.transitive}" for jar in wanted)
        asked += sorted(shipped_artifacts())
        key = hashlib.sha256("\n".join(asked).encode()).hexdigest()[:HASH_CHARACTERS]
        name = "+".join(jar.artifact for jar in wanted)[:NAME_CHARACTERS_MAX]
        return self._folder / "resolved" / f"{name}-{key}.json"

    def _read_list(self, wanted: Sequence[JarCoordinates]) -> tuple[ResolvedJar, ...] | None:
        try:
            listed = json.loads(self._list_of(wanted).read_text())
            return tuple(
                ResolvedJar(each["module"], each["version"], self._folder / each["file"])
                for each in listed["jars"]
            )
        except FileNotFoundError:
            return None
        except (OSError, ValueError, KeyError, TypeError) as error:
            facts = {"path": str(self._list_of(wanted)), "reason": str(error)}
            log.warning("resolved list of jars can't be read, and is made anew", extra=facts)
            return None

    def _write_list(self, wanted: Sequence[JarCoordinates], jars: Sequence[ResolvedJar]) -> None:
        listed = [
            {
                "module": jar.module,
                "version": jar.version,
                "file": jar.path.relative_to(self._folder).as_posix(),
            }
            for jar in jars
        ]
        asked = [jar.coordinates for jar in wanted]
        text = json.dumps({"wanted": asked, "jars": listed}, indent=1)
        _write_whole(self._list_of(wanted), text)

    def _unavailable(self, wanted: Sequence[JarCoordinates], reason: str) -> JarsUnavailable:
        by_hand = f"copy {self._folder} from a machine that has them"
        if all(not jar.transitive for jar in wanted):
            by_hand = "put them yourself at " + ", ".join(str(self._path_of(jar)) for jar in wanted)
        return JarsUnavailable(
            f"{_names(wanted)} could not be fetched: {reason}; check the network and any proxy, "
            f"name your own repository in the file of HEADRACE_IVY_SETTINGS, or {by_hand}"
        )


def ivy_module(wanted: Sequence[JarCoordinates], *, left_out: frozenset[str]) -> str:
    """The file that tells Ivy what to resolve: these versions, whatever others ask for, and what
    they need when they run, apart from what is there anyway."""
    lines = ['<ivy-module version="2.0">', '<info organisation="headrace" module="jars"/>']
    lines += ['<configurations><conf name="default"/></configurations>', "<dependencies>"]
    lines += [
        f'<dependency org="{jar.group}" name="{jar.artifact}" rev="{jar.version}" force="true" '
        f'transitive="{str(jar.transitive).lower()}" conf="default->default"/>'
        for jar in wanted
    ]
    lines += [f'<exclude module="{artifact}"/>' for artifact in sorted(left_out)]
    return "\n".join([*lines, "</dependencies>", "</ivy-module>", ""])


def _names(wanted: Sequence[JarCoordinates]) -> str:
    return ", ".join(jar.coordinates for jar in wanted)


def _file_name(coordinates: str) -> str:
    _, artifact, version = coordinates.split(":")
    return f"{artifact}-{version}.jar"


def _marker(path: Path) -> Path:
    return path.with_name(f"{path.name}.ok")


def _recorded(path: Path) -> str | None:
    """The SHA-256 that was recorded of a jar when it first came; None: it never came."""
    try:
        return _marker(path).read_text(errors="replace").split()[0]
    except (FileNotFoundError, IndexError):
        return None


def _record(path: Path, checksum: str) -> None:
    _write_whole(_marker(path), f"{checksum} {path.stat().st_size}\n")


def _write_whole(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    written = path.with_name(f"{path.name}.{os.getpid()}.tmp")
    written.write_text(text)
    written.replace(path)
