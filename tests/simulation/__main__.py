"""Look for counterexamples, or play one history again.

python -m tests.simulation --seeds 1000 [--single] [--processes 2] [--seconds 60] [--first-seed N]
python -m tests.simulation --seed 7                     the history of one seed, as a timeline
python -m tests.simulation --seed 7 --shape 0 --faults 'crash@c1/store commit#3'
python -m tests.simulation --lives 12 [--days 30]       months of groups of workers
python -m tests.simulation --life 7 [--days 30]         the end of one of them, as a timeline
python -m tests.simulation --streams 12                 months of streams whose workers die
"""

from __future__ import annotations

import argparse
import itertools
import sys
import time

from tests.simulation import groups_campaign, streams
from tests.simulation.campaign import (
    JUMPS,
    RANDOM,
    cpu_s,
    one_crash_a_seam,
    random_faults,
    ready,
    single_faults,
    tallies,
)
from tests.simulation.faults import Fault
from tests.simulation.history import Result, Simulator
from tests.simulation.scenario import Scenario
from tests.simulation.search import Search, Tally
from tests.simulation.shrink import shrink, told
from tests.simulation.stand_ins import seam_names

ENOUGH = 200  # histories from which on too little is told
FAILED_MAX = 3  # failing histories told of in one run


def main() -> int:
    asked = _parser().parse_args()
    if asked.seed is not None:
        return _play(asked)
    if asked.life is not None:
        life = groups_campaign.play(asked.life, days=asked.days, tell=True)
        print(groups_campaign.timeline(life))
        return 1 if life.problems else 0
    failed = int(bool(asked.lives) and not _lives(asked))
    failed |= int(bool(asked.streams) and not _streams(asked))
    if asked.seeds or asked.single or asked.every_seam:
        return _histories(asked) or failed
    return failed


def _lives(asked: argparse.Namespace) -> bool:
    well, told = groups_campaign.run(
        asked.first_seed, asked.lives, days=asked.days, processes=asked.processes
    )
    print(told)
    return well


def _streams(asked: argparse.Namespace) -> bool:
    well, told = streams.run(asked.first_seed, asked.streams, processes=asked.processes)
    print(told)
    return well


def _histories(asked: argparse.Namespace) -> int:
    began_s, began_cpu_s = time.monotonic(), cpu_s()
    tally = Tally()
    work = itertools.chain(
        one_crash_a_seam() if asked.every_seam else (),
        single_faults(asked.match, asked.shape) if asked.single else (),
        random_faults(
            asked.first_seed, asked.seeds, asked.shape, what=JUMPS if asked.jumps else RANDOM
        ),
    )
    for part in tallies(work, processes=asked.processes):
        tally.join(part)
        wall_s = time.monotonic() - began_s
        print(f"\r{tally.histories} histories, {len(tally.failed)} failed", end="", file=sys.stderr)
        if len(tally.failed) >= FAILED_MAX or (asked.seconds and wall_s > asked.seconds):
            break
    print(file=sys.stderr)
    _tell(tally, wall_s=time.monotonic() - began_s, cpu_s=cpu_s() - began_cpu_s)
    if tally.failed:
        _tell_failed(tally)
        return 1
    if too_little := tally.too_little() if tally.histories >= ENOUGH and not asked.jumps else []:
        print("too little happened: " + "; ".join(too_little))
        return 1
    missed = sorted(set(seam_names()) - set(tally.crashes))
    if asked.every_seam and missed:
        print(f"never crashed at: {', '.join(missed)}")
        return 1
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="simulate", description=__doc__)
    parser.add_argument("--seeds", type=int, default=0, help="random histories")
    parser.add_argument("--jumps", action="store_true", help="their faults are set wall clocks")
    parser.add_argument("--first-seed", type=int, default=1)
    parser.add_argument("--single", action="store_true", help="first, each single fault there is")
    parser.add_argument("--match", default="*", help="of those, only faults like 'pause~4@c?/*'")
    parser.add_argument("--every-seam", action="store_true", help="fail if a seam was not crashed")
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--seconds", type=float, help="stop after so many")
    parser.add_argument("--seed", type=int, help="play one history")
    parser.add_argument("--shape", type=int, help="of histories; all when missing")
    parser.add_argument("--scenario", help="in place of a shape, as a failing history printed it")
    parser.add_argument("--faults", nargs="*", default=None, type=Fault.parse)
    parser.add_argument("--no-faults", action="store_true")
    parser.add_argument("--lives", type=int, default=0, help="of groups of workers")
    parser.add_argument("--life", type=int, help="play one of them")
    parser.add_argument("--streams", type=int, default=0, help="months, each of one stream")
    parser.add_argument("--days", type=float, default=groups_campaign.MONTH_DAYS, help="of each")
    return parser


def _tell(tally: Tally, *, wall_s: float, cpu_s: float) -> None:
    seams = set(seam_names())
    per_cpu = tally.histories / cpu_s if cpu_s else 0.0
    print(
        f"{tally.histories} histories in {wall_s:.0f} s ({tally.histories / wall_s:.1f}/s, "
        f"{per_cpu:.1f} per cpu-second), {tally.seconds / 3600:.1f} simulated hours\n"
        f"  achieved: {_counts(tally.jobs)} jobs; {tally.epochs} epochs, {tally.commits} commits, "
        f"{tally.transactions} transactions, {tally.terms} terms\n"
        f"  of tables: {_counts(tally.processes)} processes, {tally.landed} commits landed in "
        f"{tally.of_tables} histories\n"
        f"  faults: {_counts(tally.faults)}\n"
        f"  seams crashed at: {len(seams & set(tally.crashes))} of {len(seams)}; "
        f"points crashed at: {len(tally.crashes)}"
    )
    for point, count in sorted(tally.crashes.items()):
        print(f"    {count:6}  {point}")


def _counts(counts: dict[str, int]) -> str:
    return ", ".join(f"{n} {name}" for name, n in sorted(counts.items())) or "none"


def _tell_failed(tally: Tally) -> None:
    with ready() as simulator:
        for failed in tally.failed[:FAILED_MAX]:
            print("\n" + told(shrink(simulator, failed)))


def _play(asked: argparse.Namespace) -> int:
    with ready() as simulator:
        scenario, plan = _asked(simulator, asked)
        result: Result = simulator.run(asked.seed, scenario, plan, tell=True)
    print(told(result))
    return 1 if result.failed else 0


def _asked(simulator: Simulator, asked: argparse.Namespace) -> tuple[Scenario, list[Fault]]:
    search = Search(simulator)
    drawn = search.drawn_jumps if asked.jumps else search.drawn
    scenario, plan = drawn(asked.seed, asked.shape)
    if asked.scenario is not None:
        scenario = Scenario.parse(asked.scenario)
    if asked.faults is not None or asked.no_faults:
        plan = list[Fault](asked.faults or [])
    return scenario, plan


if __name__ == "__main__":
    sys.exit(main())
