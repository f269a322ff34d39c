"""python -m tests.chaos --minutes 5 --seed 7"""

from __future__ import annotations

import argparse
import random
import statistics
import sys
import tempfile
import time
from pathlib import Path

from rich.console import Console
from rich.table import Table

from tests.chaos.campaign import Campaign, Report
from tests.chaos.world import world


def main() -> int:
    parser = argparse.ArgumentParser(description="An installation under random faults.")
    parser.add_argument("--minutes", type=float, default=5.0, help="of faults; then it may rest")
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(1_000_000))
    parser.add_argument("--keep", type=Path, help="folder for logs and targets, which then stay")
    asked = parser.parse_args()
    console = Console(soft_wrap=True)
    console.print(f"seed {asked.seed}, {asked.minutes:g} minutes of faults")
    began_s = time.monotonic()

    def say(text: str) -> None:
        console.print(f"{time.monotonic() - began_s:7.1f} s  {text}")

    with tempfile.TemporaryDirectory(prefix="headrace-chaos-") as temporary:
        folder = asked.keep or Path(temporary)
        folder.mkdir(parents=True, exist_ok=True)
        with world(folder) as here:
            report = Campaign(here, seed=asked.seed, say=say).run(asked.minutes)
    show(console, report)
    return 1 if report.problems or not all(v.is_right for v in report.verdicts) else 0


def show(console: Console, report: Report) -> None:
    by_kind: dict[str, list[float | None]] = {}
    for recovery in report.recoveries:
        by_kind.setdefault(" + ".join(recovery.faults), []).append(recovery.seconds)
    faults = Table("fault", "times", "recovered, median", "longest", title="Recovery")
    for kind, times in sorted(by_kind.items()):
        known = [seconds for seconds in times if seconds is not None]
        median = f"{statistics.median(known):.1f} s" if known else "-"
        longest = f"{max(known):.1f} s" if len(known) == len(times) else "NEVER"
        faults.add_row(kind, str(len(times)), median, longest)
    console.print(faults)
    targets = Table("job", "target", "expected", "rows", "lost", "doubled", title="Rows")
    for each in report.verdicts:
        numbers = (each.expected, each.found, each.lost, each.doubled)
        targets.add_row(each.job, each.target, *(f"{number:,}" for number in numbers))
    console.print(targets)
    struck = sum(len(recovery.faults) for recovery in report.recoveries)
    rows = sum(each.found for each in report.verdicts)
    console.print(
        f"{struck} faults, {report.batches} batches, epochs of streams {report.epochs}, "
        f"{sum(report.compactions.values())} compactions, {len(report.verdicts)} targets, "
        f"{rows:,} rows"
    )
    for problem in report.problems:
        console.print(f"PROBLEM {problem}", style="red")
    console.print("clean" if not report.problems else f"{len(report.problems)} problems")


if __name__ == "__main__":
    sys.exit(main())
