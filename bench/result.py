"""What a bench found: a JSON file for programs, a line for people, and words while they wait."""

from __future__ import annotations

import json
import os
import platform
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from bench.figures import PLACES

LOAD_AT_START = os.getloadavg()  # without our own
ROOT = Path(__file__).resolve().parent.parent
RESULTS = ROOT / "bench" / "results"
GIT_LIMIT_S = 10
FIELDS = ("name", "ours", "peer", "unit", "ratio", "aim", "met", "details")
HEADING = (
    f"{'bench':<28}{'ours':>12}{'peer':>12}  {'unit':<15}{'ratio':>7}{'aim':>9}  {'met':<4} load"
)


@dataclass(frozen=True, slots=True)
class Result:
    """`ratio` is ours / peer. `aim` is what `details["aim"]` says in words; None: nothing is
    promised, and the figure is there to be known."""

    name: str
    ours: float
    peer: float
    unit: str
    ratio: float
    aim: float | None
    met: bool | None
    details: Mapping[str, Any]

    def line(self) -> str:
        load = self.details["machine"]["load_average_at_start"][0]
        aim = "-" if self.aim is None else f"{self.aim:,.2f}"
        met = "-" if self.met is None else "yes" if self.met else "no"
        return (
            f"{self.name:<28}{self.ours:>12,.2f}{self.peer:>12,.2f}  {self.unit:<15}"
            f"{self.ratio:>7.2f}{aim:>9}  {met:<4} {load}"
        )

    def write(self, folder: Path) -> Path:
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / f"{self.name}.json"
        path.write_text(json.dumps(asdict(self), indent=2, ensure_ascii=False) + "\n", "utf-8")
        return path


def made(
    name: str,
    *,
    ours: float,
    peer: float,
    unit: str,
    aim: tuple[float | None, str],
    met: bool | None,
    ratio: float | None = None,
    **details: Any,
) -> Result:
    """A result with its ratio worked out and the machine described. `aim`: number and words;
    without a number `met` is None, too."""
    number, words = aim
    return Result(
        name=name,
        ours=round(ours, PLACES),
        peer=round(peer, PLACES),
        unit=unit,
        ratio=round(ours / peer if ratio is None else ratio, PLACES),
        aim=number,
        met=met,
        details={"aim": words, "machine": machine(), **details},
    )


def say(text: str) -> None:
    """How far a bench is. Results alone go to stdout."""
    print(text, file=sys.stderr, flush=True)


def machine() -> dict[str, Any]:
    """Where and when: enough to judge a figure by, nothing that names the machine."""
    return {
        "load_average_at_start": [round(load, 2) for load in LOAD_AT_START],
        "load_average": [round(load, 2) for load in os.getloadavg()],
        "cpus": os.cpu_count(),
        "python": platform.python_version(),
        "system": f"{platform.system()} {platform.machine()}",
        "commit": _commit(),
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
    }


def _commit() -> str:
    """The commit that was measured, with a + when files differ from it; unknown without git."""
    git = ["git", "-C", str(ROOT)]
    try:
        head = subprocess.run(
            [*git, "rev-parse", "--short", "HEAD"],
            capture_output=True,
            text=True,
            timeout=GIT_LIMIT_S,
            check=True,
        ).stdout.strip()
        changed = subprocess.run(
            [*git, "status", "--porcelain", "--", "src"],
            capture_output=True,
            text=True,
            timeout=GIT_LIMIT_S,
            check=True,
        ).stdout.strip()
    except (OSError, subprocess.SubprocessError):
        return "unknown"
    return f"{head}+" if changed else head
