"""The demo job at ten million rows, against the same thing written by hand in PySpark.

The two take turns, each going first in every other pair, and the first pair is thrown away.
"""

from __future__ import annotations

from collections.abc import Iterator

from bench.arena import COMPARED, CPU_IS, OURS_IS, PEER_IS, Took, arena, demo_spec
from bench.figures import Side, in_turns, middle, reaches, rounded
from bench.result import Result, made
from bench.stores import workplace

ROWS, ROWS_QUICK = 10_000_000, 1_000_000
PAIRS, PAIRS_QUICK = 4, 2
WARM_UP_PAIRS = 1
AIM = 1.10


def run(*, quick: bool) -> Iterator[Result]:
    rows = ROWS_QUICK if quick else ROWS
    pairs = PAIRS_QUICK if quick else PAIRS
    spec = demo_spec(rows, table="ours")
    with workplace("demo") as folder, arena(folder, rows=rows) as found:

        def measure(side: Side) -> Took:
            return found.ours(spec) if side == "ours" else found.theirs()

        ours, theirs = in_turns(measure, pairs=pairs, warm_up_pairs=WARM_UP_PAIRS)
    yield _result(ours, theirs, rows=rows)


def _result(ours: list[Took], theirs: list[Took], *, rows: int) -> Result:
    our_wall_s, their_wall_s = ([took.wall_s for took in side] for side in (ours, theirs))
    our_cpu_s, their_cpu_s = ([took.cpu_s for took in side] for side in (ours, theirs))
    ratio = middle(our_wall_s) / middle(their_wall_s)
    return made(
        "demo",
        ours=middle(our_wall_s),
        peer=middle(their_wall_s),
        unit="s",
        aim=(AIM, f"at most {AIM:.2f} times the script's wall time"),
        met=reaches(ratio, AIM, better="lower"),
        ours_is=OURS_IS,
        peer_is=PEER_IS,
        rows=rows,
        pairs=len(ours),
        compared=COMPARED,
        wall_s_in_turn={"ours": rounded(our_wall_s), "peer": rounded(their_wall_s)},
        ratio_of_each_pair=rounded(
            [mine / other for mine, other in zip(our_wall_s, their_wall_s, strict=True)]
        ),
        cpu_s={"ours": middle(our_cpu_s), "peer": middle(their_cpu_s)},
        cpu_ratio=round(middle(our_cpu_s) / middle(their_cpu_s), 3),
        cpu_is=CPU_IS,
        cpu_of_coordinator_s=middle([took.coordinator_cpu_s for took in ours]),
        cpu_s_in_turn={"ours": rounded(our_cpu_s), "peer": rounded(their_cpu_s)},
        started_to_ended_s=rounded([took.job_s for took in ours if took.job_s is not None]),
    )
