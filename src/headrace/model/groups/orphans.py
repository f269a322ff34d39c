"""Resources without a worker: whether they are started again, given up, or left alone (R1 to R8).

One total function of what is known. The grace period counts from the first detection, then from the
latest start, so that a slow starter is not started twice; attempts count within one orphanhood.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

MINUTE_MS = 60_000


class Verdict(StrEnum):
    NOTHING = "nothing"  # it is well, or nothing is to be done about it
    NOTICE = "notice"  # seen without a worker for the first time: its grace period begins
    WAIT = "wait"  # its grace period is not over
    RESTART = "restart"
    REMOVE = "remove"  # tried often enough: its record goes
    SURPLUS = "surplus"  # the floor that it was made for needs it no more: released instead
    OPTED_OUT = "opted out"  # its container heals itself (R6): said once, no attempt, never removed
    ISOLATED = "isolated"  # its container is no longer configured (R7): said once, left alone
    RECOVERED = "recovered"  # its worker is back: attempts start at 0 again


@dataclass(frozen=True, slots=True)
class AutoRestart:
    """`optimizer.auto-restart-*`."""

    enabled: bool = False
    max_retries: int = 5
    grace_ms: int = 5 * MINUTE_MS


@dataclass(frozen=True, slots=True)
class Known:
    """What is known of one resource at one moment."""

    alive: bool  # a worker with its id is registered
    released: bool = False  # somebody wants it gone
    orphaned_since_ms: int | None = None  # first seen without a worker, in this orphanhood
    started_at_ms: int | None = None  # the latest launch of it, the first one included
    judged_from_ms: int = 0  # whoever leads has not led for long enough before
    attempts: int = 0  # restarts in this orphanhood
    configured: bool = True  # its container is known here
    restartable: bool = True  # its container lets us start it again
    needed: bool = True  # False: it was made for the floor, and others make up for that


@dataclass(frozen=True, slots=True)
class Decision:
    verdict: Verdict
    until_ms: int | None = None  # of WAIT
    attempt: int = 0  # of RESTART: which one it is


def decide(known: Known, setting: AutoRestart, *, leads: bool, now_ms: int) -> Decision:
    """Only the leader acts (R8); with the default setting nothing is restarted or removed (R2)."""
    if not leads:
        return Decision(Verdict.NOTHING)
    if known.alive:
        orphaned = known.orphaned_since_ms is not None or known.attempts > 0
        return Decision(Verdict.RECOVERED if orphaned else Verdict.NOTHING)
    if known.released:
        return Decision(Verdict.NOTHING)
    if known.orphaned_since_ms is None:
        return Decision(Verdict.NOTICE)
    if not known.configured:
        return Decision(Verdict.ISOLATED)
    if not known.restartable:
        return Decision(Verdict.OPTED_OUT)
    if not setting.enabled:
        return Decision(Verdict.NOTHING)
    return _due(known, known.orphaned_since_ms, setting, now_ms)


def _due(known: Known, orphaned_since_ms: int, setting: AutoRestart, now_ms: int) -> Decision:
    grace_over_ms = max(orphaned_since_ms, known.started_at_ms or 0) + setting.grace_ms
    until_ms = max(grace_over_ms, known.judged_from_ms)
    if now_ms < until_ms:
        return Decision(Verdict.WAIT, until_ms=until_ms)
    if known.attempts >= setting.max_retries:
        return Decision(Verdict.REMOVE)
    if not known.needed:
        return Decision(Verdict.SURPLUS)
    return Decision(Verdict.RESTART, attempt=known.attempts + 1)
