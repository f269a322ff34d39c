"""Many histories in several processes, in pieces that are the same each time."""

from __future__ import annotations

import multiprocessing
import resource
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager
from fnmatch import fnmatch

from tests.simulation.history import Result, Simulator
from tests.simulation.scenario import SHAPES
from tests.simulation.search import REACHING, Search, Tally

CHUNK = 25  # histories a process takes at a time

Work = tuple[str, int | None, list[int]]  # SINGLE and the numbers of a shape's faults; or seeds
SINGLE, SEAMS, RANDOM, JUMPS = "single", "seams", "random", "jumps"
_kept: list[tuple[Simulator, Search]] = []  # one for each process


def ready() -> AbstractContextManager[Simulator]:
    return _simulator()[0].ready()


def _simulator() -> tuple[Simulator, Search]:
    if not _kept:
        simulator = Simulator()
        _kept.append((simulator, Search(simulator)))
    return _kept[0]


def single_faults(match: str = "*", shape: int | None = None) -> Iterator[Work]:
    """Every fault at every point of every shape (or of one), one at a time."""
    for number in range(len(SHAPES)) if shape is None else [shape]:
        with ready():
            known = _simulator()[1].all_single(SHAPES[number])
        chosen = [at for at, fault in enumerate(known) if fnmatch(str(fault), match)]
        for first in range(0, len(chosen), CHUNK):
            yield SINGLE, number, chosen[first : first + CHUNK]


def one_crash_a_seam() -> Iterator[Work]:
    for number in range(len(REACHING)):
        yield SEAMS, None, [number]


def random_faults(
    first_seed: int, seeds: int, shape: int | None = None, *, what: str = RANDOM
) -> Iterator[Work]:
    end = first_seed + seeds
    for first in range(first_seed, end, CHUNK):
        yield what, shape, list(range(first, min(end, first + CHUNK)))


def tallies(work: Iterator[Work], *, processes: int) -> Iterator[Tally]:
    if processes == 1:
        yield from map(run, work)
        return
    with multiprocessing.get_context("spawn").Pool(processes) as pool:
        yield from pool.imap_unordered(run, work)


def run(work: Work) -> Tally:
    what, shape, numbers = work
    tally = Tally()
    with ready():
        search = _simulator()[1]
        for number in numbers:
            for result in _results(search, what, shape, number):
                result.points = []  # many, and known
                tally.add(result)
    return tally


def _results(search: Search, what: str, shape: int | None, number: int) -> Iterator[Result]:
    if what == SEAMS:
        yield from search.crash(number)
    elif what == SINGLE and shape is not None:
        yield search.single(SHAPES[shape], number)
    elif what == JUMPS:
        yield search.jumps(number, shape)
    else:
        yield search.random(number, shape)


def cpu_s() -> float:
    """Of this process, and of those that it has waited for."""
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    return time.process_time() + children.ru_utime + children.ru_stime
