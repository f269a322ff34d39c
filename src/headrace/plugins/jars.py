"""Jars by Maven's coordinates: those that a plug-in declares, and those that a job asks for.

Coordinates name one version exactly: what is fetched once is kept for good, so that a range or
`latest` would mean something else on each machine. They become parts of file names and of an XML
file, and the characters that are allowed here need no escape in either.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase

OWN_JARS_MAX = 50  # that one job may ask for
EXAMPLE = "group:artifact:version, such as org.apache.commons:commons-csv:1.14.1"
_PART = r"[A-Za-z0-9_][A-Za-z0-9_.-]*"
_COORDINATES = re.compile(rf"({_PART}):({_PART}):({_PART})")
_PATTERN = re.compile(r"[\w.*-]+:[\w.*-]+(:[\w.*-]+)?", re.ASCII)
_SHA256 = re.compile(r"[0-9a-f]{64}")
_DYNAMIC = ("latest.", "release", "latest")  # as Ivy and Maven write "the newest there is"


@dataclass(frozen=True, slots=True)
class JarCoordinates:
    """A jar that classes of a plug-in or of a job are in, with what it needs in turn."""

    coordinates: str  # group:artifact:version
    sha256: str | None = None  # of the jar itself; None: not pinned
    transitive: bool = True  # False: it needs no other jar, whatever its POM says

    def __post_init__(self) -> None:
        if (flaw := coordinates_flaw(self.coordinates)) is not None:
            raise ValueError(f"jar {self.coordinates!r} {flaw}")
        if self.sha256 is not None and not _SHA256.fullmatch(self.sha256):
            raise ValueError(f"the SHA-256 of jar {self.coordinates} must be 64 hex digits")

    @property
    def group(self) -> str:
        return self.coordinates.split(":")[0]

    @property
    def artifact(self) -> str:
        return self.coordinates.split(":")[1]

    @property
    def version(self) -> str:
        return self.coordinates.split(":")[2]

    @property
    def module(self) -> str:
        """group:artifact, of which one JVM can have one version."""
        return f"{self.group}:{self.artifact}"


def coordinates_flaw(text: str) -> str | None:
    """What is wrong with coordinates, as a clause; None when they can be used."""
    match = _COORDINATES.fullmatch(text)
    if match is None:
        return f"must be {EXAMPLE}"
    if match[3].lower().startswith(_DYNAMIC):
        return f"must name one version, and not {match[3]!r}: {EXAMPLE}"
    return None


def own_jar_flaw(text: str) -> str | None:
    """What is wrong with a jar that a job asks for, as a clause: no job names a file or a host."""
    flaw = coordinates_flaw(text)
    if flaw is None:
        return None
    if not any(sign in text for sign in "/\\;"):
        return f"it {flaw}"
    return f"it must be no path, no URL and no list of them, but {EXAMPLE}"


def pattern_flaw(text: str) -> str | None:
    """What is wrong with a pattern of coordinates, as a clause; None when it can be used."""
    if _PATTERN.fullmatch(text):
        return None
    return "must be group:artifact or group:artifact:version, where * stands for any characters"


def patterns_in(text: str) -> tuple[str, ...]:
    """The patterns of a text that has commas between them."""
    return tuple(part for each in text.split(",") if (part := each.strip()))


def is_allowed(jar: JarCoordinates, patterns: Sequence[str]) -> bool:
    """Whether one of the patterns allows the jar: each of its parts must fit its own part."""
    parts = jar.coordinates.split(":")
    return any(
        all(fnmatchcase(part, like) for part, like in zip(parts, each.split(":"), strict=False))
        for each in patterns
    )
