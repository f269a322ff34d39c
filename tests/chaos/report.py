"""What a run came to. It is clean when nothing at all is among its problems."""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

from rich.console import Console
from rich.table import Table

ORPHANS_SHOWN = 20


@dataclass
class Recovery:
    """A fault, and how long it took until each stream had completed two further epochs."""

    faults: tuple[str, ...]
    seconds: float | None  # None: it did not recover in time


@dataclass
class Verdict:
    """Of one target: what its source gave, and what is there."""

    job: str
    target: str
    expected: int
    found: int
    lost: int
    doubled: int

    @property
    def is_right(self) -> bool:
        return self.lost == self.doubled == 0 and self.expected == self.found

    def __str__(self) -> str:
        return (
            f"{self.job}, {self.target}: {self.found:,} rows instead of {self.expected:,}, "
            f"{self.lost:,} lost, {self.doubled:,} doubled"
        )


def verdict_of(job: str, target: str, rows: Sequence[int], *, last: int) -> Verdict:
    """Its source gave the numbers from 1 to `last`, each once."""
    lost, doubled = len(set(range(1, last + 1)) - set(rows)), len(rows) - len(set(rows))
    return Verdict(job, target, last, len(rows), lost, doubled)


@dataclass
class Report:
    recoveries: list[Recovery] = field(default_factory=list[Recovery])
    verdicts: list[Verdict] = field(default_factory=list[Verdict])
    problems: list[str] = field(default_factory=list[str])
    compactions: dict[str, int] = field(default_factory=dict[str, int])
    epochs: dict[str, int] = field(default_factory=dict[str, int])
    struck: Counter[str] = field(default_factory=Counter[str])  # by kind of fault
    orphans: list[str] = field(default_factory=list[str])  # metadata of commits that were killed
    batches: int = 0

    @property
    def is_clean(self) -> bool:
        return not self.problems

    def judge(self, verdict: Verdict) -> None:
        self.verdicts.append(verdict)
        if not verdict.is_right:
            self.problems.append(str(verdict))


def show(console: Console, report: Report) -> None:
    console.print(_recoveries(report))
    console.print(_rows(report))
    rows = sum(verdict.found for verdict in report.verdicts)
    console.print(
        f"{report.struck.total()} faults of {len(report.struck)} kinds, {report.batches} batches, "
        f"epochs of streams {report.epochs}, {sum(report.compactions.values())} compactions, "
        f"{len(report.verdicts)} targets, {rows:,} rows"
    )
    if report.orphans:
        console.print(f"{len(report.orphans)} metadata files of commits that were killed:")
    for orphan in report.orphans[:ORPHANS_SHOWN]:
        console.print(f"  {orphan}", highlight=False)
    for problem in report.problems:
        console.print(f"PROBLEM {problem}", style="red", markup=False)
    console.print("clean" if report.is_clean else f"NOT clean: {len(report.problems)} problems")


def _recoveries(report: Report) -> Table:
    by_kind: dict[str, list[float | None]] = {}
    for recovery in report.recoveries:
        by_kind.setdefault(" + ".join(recovery.faults), []).append(recovery.seconds)
    table = Table("fault", "times", "recovered, median", "longest", title="Recovery")
    for kind, times in sorted(by_kind.items()):
        known = [seconds for seconds in times if seconds is not None]
        median = f"{statistics.median(known):.1f} s" if known else "-"
        longest = f"{max(known):.1f} s" if len(known) == len(times) else "NEVER"
        table.add_row(kind, str(len(times)), median, longest)
    return table


def _rows(report: Report) -> Table:
    table = Table("job", "target", "expected", "rows", "lost", "doubled", title="Rows")
    for each in report.verdicts:
        numbers = (each.expected, each.found, each.lost, each.doubled)
        table.add_row(each.job, each.target, *(f"{number:,}" for number in numbers))
    return table
