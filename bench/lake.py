"""One warm session and an embedded warehouse in this very process, and what a piece of work takes
there: wall time, cpu time and memory of Python and its JVM together."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import psutil

from bench.processes import NotMeasured
from headrace.config import Settings
from headrace.worker.warm_session import WarmSpark, start_spark

T = TypeVar("T")

MASTER = "local[2]"
SAMPLE_EVERY_S = 0.02
SAMPLER_STOP_MAX_S = 5.0
CPU_IS = "JVM and Python, of one process that does both sides"


@dataclass(frozen=True, slots=True)
class Took:
    wall_s: float
    cpu_s: float
    python_mb: float  # at its most, above what it was before
    jvm_mb: float  # resident at its most


@contextmanager
def lake(folder: Path) -> Generator[WarmSpark]:
    """The warehouse is in `folder`, and may have been made by another process."""
    warm = start_spark(
        Settings(),
        warehouse=warehouse_of(folder),
        master=MASTER,
        name="bench",
        log_file=folder / "spark.log",
    )
    try:
        yield warm
    finally:
        warm.stop()


def warehouse_of(folder: Path) -> str:
    return (folder / "warehouse").as_uri()


def sql(warm: WarmSpark, text: str) -> list[Any]:
    return warm.session.sql(text).collect()  # pyright: ignore[reportUnknownMemberType]


def timed(warm: WarmSpark, work: Callable[[], T]) -> tuple[T, Took]:
    """What the work answers, and what it took."""
    parts = [psutil.Process(), psutil.Process(warm.pid)]
    before_mb = _resident_mb(parts[0])
    with _peaks(parts) as peaks:
        cpu_s, began_s = _cpu_s(parts), time.perf_counter()
        found = work()
        wall_s, cpu_s = time.perf_counter() - began_s, _cpu_s(parts) - cpu_s
    if not warm.alive():
        raise NotMeasured("the JVM has died; its log is gone with the folder")
    return found, Took(wall_s, cpu_s, max(0.0, peaks[0] - before_mb), peaks[1])


@contextmanager
def _peaks(parts: list[psutil.Process]) -> Generator[list[float]]:
    """The largest resident memory of each process so far, in MB."""
    peaks = [_resident_mb(part) for part in parts]
    stop = threading.Event()

    def watch() -> None:
        while not stop.wait(SAMPLE_EVERY_S):
            for place, part in enumerate(parts):
                peaks[place] = max(peaks[place], _resident_mb(part))

    sampler = threading.Thread(target=watch, name="memory", daemon=True)
    sampler.start()
    try:
        yield peaks
    finally:
        stop.set()
        sampler.join(SAMPLER_STOP_MAX_S)


def _resident_mb(process: psutil.Process) -> float:
    return process.memory_info().rss / 1e6


def _cpu_s(parts: list[psutil.Process]) -> float:
    return sum(sum(part.cpu_times()[:2]) for part in parts)
