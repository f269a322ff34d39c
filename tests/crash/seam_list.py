"""The seams that an epoch passes, those of the end of a job, of commands, and of lake tables.

They are taken from the source: a new one is in the sweep of its kind by itself.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import headrace

SOURCE = Path(headrace.__file__).parent
_WORKER = ("worker", "connectors", "formats")
_COORDINATOR = (
    "coordinator/dispatch.py",
    "coordinator/reports.py",
    "coordinator/writer.py",
    "coordinator/reconcile",
    "coordinator/commands.py",
    "coordinator/tables",
)
_OF_REWRITES = {"formats/iceberg/rewrite.py", "formats/iceberg/replace.py"}
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
            self.file.startswith("coordinator/reconcile/")
            or self.file.endswith("/forget.py")
            or self == TARGETS_FORGOTTEN
        )

    @property
    def is_of_a_command(self) -> bool:
        return self.file == "coordinator/commands.py"

    @property
    def is_of_a_table(self) -> bool:
        """Passed while a lake table is optimized, by no job."""
        places = "worker/tables/", "coordinator/tables/"
        return self.file.startswith(places) or self.file in _OF_REWRITES


TARGETS_FORGOTTEN = Seam("coordinator/reports.py", "targets forgotten, in transaction")


def all_seams() -> Sequence[Seam]:
    """In the order of files and lines."""
    files = [file for place in _WORKER for file in sorted((SOURCE / place).rglob("*.py"))]
    for place in _COORDINATOR:
        at = SOURCE / place
        files += sorted(at.rglob("*.py")) if at.is_dir() else [at]
    return [
        Seam(file.relative_to(SOURCE).as_posix(), name)
        for file in files
        for name in _SEAM.findall(file.read_text())
    ]


def seams_of_an_epoch() -> Sequence[Seam]:
    return [
        seam
        for seam in all_seams()
        if not (seam.is_of_an_end or seam.is_of_a_command or seam.is_of_a_table)
    ]


def seams_of_a_table() -> Sequence[Seam]:
    return [seam for seam in all_seams() if seam.is_of_a_table]


def seams_of_an_end() -> Sequence[Seam]:
    return [seam for seam in all_seams() if seam.is_of_an_end]
