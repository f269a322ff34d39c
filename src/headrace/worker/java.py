"""Which Java Spark will run on: JAVA_HOME's, or else the first one on the PATH.

Spark's own launcher chooses in this order, so what is checked here is what will run.
"""

from __future__ import annotations

import re
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

from headrace import config
from headrace.errors import JavaMissing

ACCEPTED = (17, 21)  # the releases Spark 4.1 is tested on
ASK_TIMEOUT_S = 30
_WAY_OUT = "install a JDK or JRE 17 or 21, and set JAVA_HOME to it or put its bin folder on PATH"
_VERSION = re.compile(r'version "(?P<text>(?:1\.)?(?P<major>\d+)[^"]*)"')


@dataclass(frozen=True, slots=True)
class Java:
    executable: Path
    version: str  # "17.0.15"
    major: int


def find_java(java_home: Path | None = None) -> Java:
    """The Java to use, or `JavaMissing` with what was found, where, and what to do."""
    home = java_home or config.java_home()
    if home is not None:
        executable = home / "bin" / "java"
        if not executable.is_file():
            raise JavaMissing(f"JAVA_HOME is {home}, but {executable} does not exist; {_WAY_OUT}")
        return _checked(executable, f"JAVA_HOME={home}")
    found = shutil.which("java")
    if found is None:
        raise JavaMissing(
            f"Spark needs Java 17 or 21; JAVA_HOME is not set and there is no java on PATH; "
            f"{_WAY_OUT}"
        )
    return _checked(Path(found), "PATH")


def _checked(executable: Path, where: str) -> Java:
    said = _ask(executable, where)
    match = _VERSION.search(said)
    if match is None:
        first = said.strip().splitlines()[0] if said.strip() else "nothing"
        raise JavaMissing(
            f"{executable} (from {where}) did not say its version but {first!r}; {_WAY_OUT}"
        )
    java = Java(executable, match["text"], int(match["major"]))
    if java.major not in ACCEPTED:
        raise JavaMissing(
            f"Spark needs Java 17 or 21; {executable} (from {where}) is Java {java.version}; "
            f"{_WAY_OUT}"
        )
    return java


def _ask(executable: Path, where: str) -> str:
    try:
        done = subprocess.run(  # noqa: S603 - the Java that the user pointed us to
            [str(executable), "-version"],
            capture_output=True,
            text=True,
            errors="replace",
            timeout=ASK_TIMEOUT_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise JavaMissing(
            f"{executable} (from {where}) can not be run: {error}; {_WAY_OUT}"
        ) from error
    return done.stderr + done.stdout
