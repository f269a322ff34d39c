"""The demo job at ten million rows in 1, 10 and 100 epochs, against the script written by hand.

The number of epochs is exact, and asked for with options any job file may have: a source of N
splits whose read interval is the checkpoint interval reads one split of each reader in an epoch.
Both are so short that nothing ever waits for them.

The four contestants take turns, moving one place on in each round. Ours and the script are warmed
up by a run each that is thrown away. What nothing is promised of runs once: it takes long.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from bench.arena import COMPARED, CPU_IS, OURS_IS, PEER_IS, Arena, Took, arena, demo_spec
from bench.figures import middle, reaches, rotations, rounded
from bench.processes import NotMeasured
from bench.result import Result, made, say
from bench.stores import workplace

ROWS, ROWS_QUICK = 10_000_000, 200_000
ROUNDS, ROUNDS_QUICK = 3, 1
ROUNDS_WITHOUT_AIM = 1
PACE_MS = 10  # of a split, and of an epoch
THE_SCRIPT = 0  # among numbers of epochs
WARM_UP = (10, THE_SCRIPT)
# By number of epochs; None: whoever asks for so many wants to know what they cost.
AIMS: Mapping[int, float | None] = {1: 1.10, 10: 1.15, 100: None}


def run(*, quick: bool) -> Iterator[Result]:
    rows = ROWS_QUICK if quick else ROWS
    rounds = rotations((*AIMS, THE_SCRIPT), rounds=ROUNDS_QUICK if quick else ROUNDS)
    took: dict[int, list[Took]] = {who: [] for who in rounds[0]}
    brief = {who for who, aim in AIMS.items() if aim is None}
    with workplace("epochs") as folder, arena(folder, rows=rows) as found:
        for who in WARM_UP:
            _show("warm-up", who, _measure(found, who))
        for number, order in enumerate(rounds, start=1):
            for who in order:
                if who in brief and number > ROUNDS_WITHOUT_AIM:
                    continue
                took[who].append(_measure(found, who))
                _show(f"round {number} of {len(rounds)}", who, took[who][-1])
    for epochs in AIMS:
        yield _result(epochs, took[epochs], took[THE_SCRIPT], rows=rows)


def _measure(found: Arena, who: int) -> Took:
    if who == THE_SCRIPT:
        return found.theirs()
    took = found.ours(spec(found.rows, epochs=who))
    if took.epochs != who:
        raise NotMeasured(f"the job had {took.epochs} epochs instead of {who}")
    return took


def _show(when: str, who: int, took: Took) -> None:
    named = "the script" if who == THE_SCRIPT else f"{who} epochs"
    say(f"epochs: {when}: {named}: {took.wall_s:.1f} s, {took.cpu_s:.1f} s of cpu")


def spec(rows: int, *, epochs: int) -> Mapping[str, Any]:
    """The demo's job, cut into so many epochs; into a table of its own, or those of few epochs
    would commit to the long history of those of many."""
    asked = demo_spec(rows, table=f"in_{epochs}")
    if epochs > 1:
        asked["env"]["checkpoint_interval_ms"] = PACE_MS
        options = asked["pipelines"][0]["sources"][0]["options"]
        options |= {"split.num": epochs, "split.read-interval": PACE_MS}
    return asked


def _result(epochs: int, ours: Sequence[Took], theirs: Sequence[Took], *, rows: int) -> Result:
    our_wall_s, their_wall_s = ([took.wall_s for took in side] for side in (ours, theirs))
    our_cpu_s, their_cpu_s = ([took.cpu_s for took in side] for side in (ours, theirs))
    ratio = middle(our_wall_s) / middle(their_wall_s)
    aim = AIMS[epochs]
    words = (
        "nothing is promised"
        if aim is None
        else f"at most {aim:.2f} times the script's wall time, which commits once"
    )
    return made(
        f"epochs_{epochs}",
        ours=middle(our_wall_s),
        peer=middle(their_wall_s),
        unit="s",
        aim=(aim, words),
        met=None if aim is None else reaches(ratio, aim, better="lower"),
        ours_is=OURS_IS,
        peer_is=PEER_IS,
        epochs=epochs,
        rows=rows,
        rounds={"ours": len(ours), "peer": len(theirs)},
        compared=COMPARED,
        wall_s_in_turn={"ours": rounded(our_wall_s), "peer": rounded(their_wall_s)},
        ratio_of_each_round=rounded(
            [mine / other for mine, other in zip(our_wall_s, their_wall_s, strict=False)]
        ),
        cpu_s={"ours": middle(our_cpu_s), "peer": middle(their_cpu_s)},
        cpu_ratio=round(middle(our_cpu_s) / middle(their_cpu_s), 3),
        cpu_is=CPU_IS,
        cpu_of_coordinator_s=middle([took.coordinator_cpu_s for took in ours]),
        started_to_ended_s=rounded([took.job_s for took in ours if took.job_s is not None]),
    )
