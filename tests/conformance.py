"""SeaTunnel's own job files, which tests read where they lie: beside the checkout, not in it.

Where they are missing, each test that would read one is skipped and says why. None vanishes, so
that a run without them can't be taken for one that they have passed.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tools.tree import ROOT

if TYPE_CHECKING:
    from _pytest.mark.structures import ParameterSet

JOBS = ROOT.parent / "shared" / "conformance" / "seatunnel" / "jobs"


def every_job_file(folder: Path = JOBS) -> list[ParameterSet]:
    """All of them, as parameters of a test."""
    names = sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*.conf"))
    return job_files(*(names or ["all.conf"]), folder=folder)


def job_files(*names: str, folder: Path = JOBS) -> list[ParameterSet]:
    """Those of these names. One that is not there among the others fails its test."""
    missing = pytest.mark.skip(
        reason="SeaTunnel's job files are not here; tests look for them in "
        f"../{folder.relative_to(folder.parents[3]).as_posix()}, beside the checkout"
    )
    marks = () if any(folder.rglob("*.conf")) else (missing,)
    return [pytest.param(folder / name, id=name, marks=marks) for name in names]
