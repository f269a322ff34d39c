"""The seams that an epoch passes, as they stand in the source."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import headrace

SOURCE = Path(headrace.__file__).parent
_WORKER = ("worker", "connectors", "formats")
_COORDINATOR = ("coordinator/dispatch.py", "coordinator/reports.py", "coordinator/writer.py")
_SEAM = re.compile(r"\bseam\(\"([^\"]+)\"\)")


@dataclass(frozen=True, slots=True)
class Seam:
    file: str  # below the package
    name: str

    def __str__(self) -> str:
        return f"{self.file}: {self.name}"

    @property
    def is_met_by_a_coordinator(self) -> bool:
        return self.file in _COORDINATOR


def seams_of_an_epoch() -> Sequence[Seam]:
    """In the order of files and lines."""
    files = [file for place in _WORKER for file in sorted((SOURCE / place).rglob("*.py"))]
    files += [SOURCE / file for file in _COORDINATOR]
    return [
        Seam(file.relative_to(SOURCE).as_posix(), name)
        for file in files
        for name in _SEAM.findall(file.read_text())
    ]
