"""The seams that an epoch passes, those of the end of a job, of commands, of lake tables, and of
workers that are started again.

They are taken from the source: a new one is in the sweep of its kind by itself. A seam of
exactly_once is passed by every sink that spends tokens, and stands here once for each of them,
under the file of the sink.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import headrace

SOURCE = Path(headrace.__file__).parent
_WORKER = ("worker", "connectors", "exactly_once", "lake", "spark")
_COORDINATOR = (
    "coordinator/sync/answers.py",
    "coordinator/sync/reports.py",
    "coordinator/sync/writer.py",
    "coordinator/jobs",
    "coordinator/tables",
)
_OF_REWRITES = {"lake/iceberg/rewrite.py", "lake/iceberg/replace.py"}
_OF_LAUNCHES = ("coordinator/groups", "containers/detached.py")
# What forgets an ended job at its targets.
_OF_FORGETTING = {"before leftovers are deleted", "marks read", "before marks are forgotten"}
_EXACTLY_ONCE = "exactly_once/"
_BASES = {"connectors/at_least_once.py", "connectors/python_client.py"}  # of no sink of ours
_SINKS = ("connectors/files/sink.py", "connectors/iceberg/sink.py", "connectors/jdbc/sink.py")
_SEAM = re.compile(r"\bseam\(\"([^\"]+)\"\)")


@dataclass(frozen=True, slots=True)
class Seam:
    file: str  # below the package
    name: str

    def __str__(self) -> str:
        return f"{self.file}: {self.name}"

    @property
    def is_met_by_a_coordinator(self) -> bool:
        return self.file.startswith("coordinator/")

    @property
    def is_of_an_end(self) -> bool:
        """Passed when a job ends, or later."""
        return (
            (self.file.startswith("coordinator/jobs/") and not self.is_of_a_command)
            or self.name in _OF_FORGETTING
            or self == TARGETS_FORGOTTEN
        )

    @property
    def is_of_a_command(self) -> bool:
        return self.file == "coordinator/jobs/commands.py"

    @property
    def is_of_a_table(self) -> bool:
        """Passed while a lake table is optimized, by no job."""
        places = "worker/tables/", "coordinator/tables/"
        return self.file.startswith(places) or self.file in _OF_REWRITES


TARGETS_FORGOTTEN = Seam("coordinator/sync/reports.py", "targets forgotten, in transaction")


def all_seams() -> Sequence[Seam]:
    """In the order of files and lines."""
    files = [file for place in _WORKER for file in sorted((SOURCE / place).rglob("*.py"))]
    for place in _COORDINATOR:
        files += _files_at(place)
    return _seams_in(files)


def _files_at(place: str) -> Sequence[Path]:
    at = SOURCE / place
    return sorted(at.rglob("*.py")) if at.is_dir() else [at]


def _seams_in(files: Iterable[Path]) -> Sequence[Seam]:
    found = (
        Seam(place, name)
        for file in files
        for name in _SEAM.findall(file.read_text())
        for place in _places_of(file.relative_to(SOURCE).as_posix())
    )
    return list(dict.fromkeys(found))


def _places_of(file: str) -> Sequence[str]:
    if file in _BASES:
        return ()
    return _SINKS if file.startswith(_EXACTLY_ONCE) else (file,)


def place_of(callers: Iterable[str]) -> str:
    """The place of a seam, by the files that are being run, the one that calls `seam` first."""
    inside = (Path(file).relative_to(SOURCE).as_posix() for file in callers)
    return next(file for file in inside if not file.startswith(_EXACTLY_ONCE))


def seams_of_an_epoch() -> Sequence[Seam]:
    return [
        seam
        for seam in all_seams()
        if not (seam.is_of_an_end or seam.is_of_a_command or seam.is_of_a_table)
    ]


def seams_of_a_table() -> Sequence[Seam]:
    return [seam for seam in all_seams() if seam.is_of_a_table]


def seams_of_a_restart() -> Sequence[Seam]:
    """Passed by the leader who starts a worker again, from its decision to its record of that."""
    return _seams_in(file for place in _OF_LAUNCHES for file in _files_at(place))


def seams_of_an_end() -> Sequence[Seam]:
    return [seam for seam in all_seams() if seam.is_of_an_end]
