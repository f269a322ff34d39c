"""python -m tests.chaos --minutes 5 --seed 7"""

from __future__ import annotations

import argparse
import random
import shutil
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from rich.console import Console

from tests.chaos.campaign import Campaign
from tests.chaos.report import Report, show
from tests.chaos.world import World, world


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
        console.print(f"{time.monotonic() - began_s:7.1f} s  {text}", markup=False)

    def under_faults(folder: Path, report: Report) -> None:
        with world(folder) as here:
            Campaign(here, report, seed=asked.seed, say=say).run(asked.minutes)
            keep_databases(here, folder, report)

    folder: Path = asked.keep or Path(tempfile.mkdtemp(prefix="headrace-chaos-"))
    folder.mkdir(parents=True, exist_ok=True)
    return verdict(console, folder, under_faults, keeps=asked.keep is not None)


def verdict(
    console: Console, folder: Path, run: Callable[[Path, Report], None], *, keeps: bool
) -> int:
    """The report of a run, however that ended; its folder stays unless all was clean."""
    report = Report()
    try:
        run(folder, report)
    except Exception as error:  # noqa: BLE001 - whatever it is, the report is shown
        console.print_exception()
        report.problems.append(f"it broke off: {type(error).__name__}: {error}")
    except KeyboardInterrupt:
        report.problems.append("it was interrupted")
    show(console, report)
    if report.is_clean and not keeps:
        shutil.rmtree(folder)
    else:
        console.print(f"logs, targets and databases: {folder}")
    return 0 if report.is_clean else 1


def keep_databases(here: World, folder: Path, report: Report) -> None:
    if not report.is_clean:
        here.dump(folder)


if __name__ == "__main__":
    sys.exit(main())
