"""Sizes, lengths of time and counts, as a sentence tells them."""

from __future__ import annotations

import re

from headrace.model.text import utc

WORKER_CHARS = 8  # of a worker's name, for people
_KEY = re.compile(r"(?P<spec>\d+)/(?P<path>.*)", re.DOTALL)
_TOLD = re.compile(r"(?P<path>.*) \(spec (?P<spec>\d+)\)", re.DOTALL)
_SIZES = ("kB", "MB", "GB", "TB", "PB")
_STEP = 1000


def size(count: int) -> str:
    """Bytes in the unit that leaves one to three digits before the point: 13.1 MB."""
    shown, unit = float(count), "B"
    for larger in _SIZES:
        # What would be rounded to 1000 of a unit is 1.0 of the next.
        if abs(shown) < _STEP - 0.05:
            break
        shown, unit = shown / _STEP, larger
    return f"{count} B" if unit == "B" else f"{shown:.1f} {unit}"


def span(lasted_ms: float) -> str:
    """A length of time in its two largest units. Clocks differ, and none is below zero."""
    seconds = int(max(lasted_ms, 0) // 1000)
    days, hours, minutes = seconds // 86_400, seconds // 3600 % 24, seconds // 60 % 60
    if days:
        return f"{days} d {hours} h" if hours else f"{days} d"
    if hours:
        return f"{hours} h {minutes} min" if minutes else f"{hours} h"
    if minutes:
        return f"{minutes} min {seconds % 60} s" if seconds % 60 else f"{minutes} min"
    return f"{seconds} s"


def until(at_ms: int, now_ms: int) -> str:
    """A time to come: in 3 min 20 s (2026-01-31T10:20:30Z); one that has come is now."""
    return "now" if at_ms <= now_ms else f"in {span(at_ms - now_ms)} ({utc(at_ms)})"


def ago(at_ms: int, now_ms: int) -> str:
    return f"{span(now_ms - at_ms)} ago ({utc(at_ms)})"


def count(number: int, noun: str, nouns: str | None = None) -> str:
    """1 file, 2 files; `nouns` when an s is not enough."""
    return f"{number:,} {noun if number == 1 else nouns or noun + 's'}"


def worker(name: str) -> str:
    """The beginning of its name is enough to find it in a list."""
    return name[:WORKER_CHARS]


def partition(told: str) -> str:
    """Where files lie, from `spec/path` or `path (spec n)`; the first spec goes without saying."""
    found = _KEY.fullmatch(told) or _TOLD.fullmatch(told)
    path, spec = (found["path"], found["spec"]) if found else (told, "0")
    whole = path in {"", "unpartitioned"}
    return ("the whole table" if whole else path) + ("" if spec == "0" else f" (spec {spec})")
