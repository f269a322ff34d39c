"""Many lives of groups, one seed each, and how they are told."""

from __future__ import annotations

import multiprocessing
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial

from tests.simulation.campaign import cpu_s, ready
from tests.simulation.groups_life import Life, live
from tests.simulation.groups_setting import DAY_S
from tests.simulation.stand_ins import group_seam_names

MONTH_DAYS = 30.0
TOLD_MAX = 80  # lines before the one that tells what is wrong
# What has to happen in a month of all lives, on average: idle ones prove nothing.
LEAST: dict[str, int] = {
    "registered": 50,
    "workers lost": 50,
    "failed": 5,
    "start lost": 1,
    "boot slow": 1,
    "leader crash": 3,
    "terms": 5,
    "wished floor": 5,
    "records gone": 3,
}


@dataclass(slots=True)
class Lives:
    number: int = 0
    days: float = 0.0
    transactions: int = 0
    happened: Counter[str] = field(default_factory=Counter[str])
    crashes: Counter[str] = field(default_factory=Counter[str])
    failed: list[Life] = field(default_factory=list[Life])

    def add(self, life: Life) -> None:
        self.number += 1
        self.days += life.days
        self.transactions += life.transactions
        self.happened += life.happened
        self.crashes += life.crashes
        if life.problems:
            self.failed.append(life)

    def too_little(self) -> list[str]:
        months = self.days / MONTH_DAYS
        return [
            f"{self.happened[what]} {what} in {months:.1f} months, {least} expected in each"
            for what, least in LEAST.items()
            if self.happened[what] < least * months
        ]

    def told(self, *, cpu_s: float) -> str:
        months = self.days / MONTH_DAYS
        seams = set(group_seam_names())
        happened = ", ".join(f"{n} {what}" for what, n in sorted(self.happened.items()) if n)
        return (
            f"{self.number} lives of groups, {months:.1f} months, {cpu_s / months:.1f} cpu-seconds "
            f"a month, {self.transactions} transactions\n  {happened}\n"
            f"  seams of groups crashed at: {len(seams & set(self.crashes))} of {len(seams)}"
        )


def play(seed: int, *, days: float, tell: bool = False) -> Life:
    with ready() as simulator:
        return live(simulator.database, seed, days=days, tell=tell)


def lives(seeds: Sequence[int], *, days: float, processes: int) -> Iterator[Life]:
    one = partial(play, days=days)
    if processes == 1:
        yield from map(one, seeds)
        return
    with multiprocessing.get_context("spawn").Pool(processes) as pool:
        yield from pool.imap_unordered(one, seeds)


def timeline(life: Life) -> str:
    """The end of a life that was played with `tell`."""
    lines = [
        f"{at_s / DAY_S:9.4f} d  {actor:14} {what}"
        for at_s, actor, what in (life.timeline or [])[-TOLD_MAX:]
    ]
    told = [f"seed {life.seed}: {invariant}: {what}" for invariant, what in life.problems[:1]]
    again = f"play it again: python -m tests.simulation --life {life.seed} --days {life.days:g}"
    return "\n".join([*lines, *told, again])


def run(first: int, count: int, *, days: float, processes: int) -> tuple[bool, str]:
    """Whether all was well, and what happened."""
    began_s, found = cpu_s(), Lives()
    for life in lives(range(first, first + count), days=days, processes=processes):
        found.add(life)
        if found.failed:
            break
    told = [found.told(cpu_s=cpu_s() - began_s)]
    told += [timeline(play(life.seed, days=days, tell=True)) for life in found.failed]
    missing = found.too_little() if found.days >= MONTH_DAYS and not found.failed else []
    told += [f"too little happened: {each}" for each in missing]
    return not found.failed and not missing, "\n\n".join(told)
