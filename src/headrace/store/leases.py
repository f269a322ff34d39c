"""The lease: who leads, for how long nobody else may, and how it passes on.

A row (holder, address, epoch, renewals). No time in it decides who leads: a candidate takes over
when the row has not changed for the ttl on the candidate's own monotonic clock, so no two clocks
are ever compared. The leader's time stands in it for its successor, to go on counting from.
`epoch` grows with every change of leader, also with a resignation.
"""

from __future__ import annotations

import logging
import os
import re
import signal
import socket
from dataclasses import dataclass
from pathlib import Path

import psutil
from sqlalchemy import Connection, select, update

from headrace.clock import Clock
from headrace.store.engine import insert_new, keyring_of
from headrace.store.facts import check_program
from headrace.store.fence import LEADER, Term
from headrace.store.schema import leases
from headrace.store.sealed import check_key
from headrace.store.stuck import is_stuck_on

NOBODY = ""  # the holder of a lease that was resigned
START_TIME_SLACK_S = 1.0  # the kernel's boot time, which start times are counted from, may jitter
_HOLDER = re.compile(r"(?P<host>.+):(?P<pid>\d+):(?P<started_s>\d+\.\d+)")

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Lease:
    """The lease as it was read."""

    holder: str
    address: str
    epoch: int
    renewals: int
    hinted: bool  # the holder has the take-over hint, so a free hint means that it is dead
    clock_ms: int = 0  # its time, when it last told it; 0: it never did

    @property
    def vacant(self) -> bool:
        return self.holder == NOBODY


@dataclass(frozen=True, slots=True)
class LeaderTime:
    """The time that a leader counts by, which is the one of all due times in the store."""

    clock_ms: int
    offset_ms: int  # so much it is ahead of the wall clock, which was set during the term


class Watch:
    """Says when a lease has not changed for the ttl, as far as this process can tell."""

    def __init__(self, clock: Clock, *, ttl_s: float) -> None:
        self._clock, self._ttl_s = clock, ttl_s
        self._seen: Lease | None = None
        self._since_s = 0.0

    def free_to_take(self, seen: Lease | None) -> bool:
        """Whether the lease just read may be taken: never held, resigned, or stale.

        Call it right after each read. Time counts from the first sight of a row, which is later
        than the renewal that wrote it: an error on the safe side.
        """
        now_s = self._clock.monotonic_s()
        if seen is None or seen.vacant:
            return True
        if seen != self._seen:
            self._seen, self._since_s = seen, now_s
        return now_s - self._since_s >= self._ttl_s


def read(conn: Connection) -> Lease | None:
    """The lease as it stands; None: nobody ever led on this store."""
    row = conn.execute(select(leases).where(leases.c.name == LEADER)).one_or_none()
    if row is None:
        return None
    return Lease(row.holder, row.address, row.epoch, row.renewals, bool(row.hinted), row.clock_ms)


def take(
    conn: Connection, seen: Lease | None, *, holder: str, address: str, hinted: bool = False
) -> Term | None:
    """Take the lease as `seen`. None: it has changed since, somebody else was faster.

    Waits for an open fenced transaction of the old leader. Repeated after a lost answer it
    finds the lease in its own hands. ProgramTooOld: this program is too old to lead here (L4).
    KeyRefused: the store has changed its key, and this program was not given the new one.
    """
    check_program(conn)
    if not keyring_of(conn).is_needed:  # then a coordinator was refused when it started
        check_key(conn)
    term = Term(holder, seen.epoch + 1 if seen else 1)
    values = _row(term, address=address, hinted=hinted)
    if seen is None:
        taken = insert_new(conn, leases, name=LEADER, **values)
    else:
        taken = _change(conn, epoch=seen.epoch, renewals=seen.renewals, values=values)
    return term if taken or _held(conn, term) else None


def time_of(conn: Connection) -> LeaderTime | None:
    """When the leader of this or an earlier term last told its time. None: nobody ever did."""
    told = select(leases.c.clock_ms, leases.c.offset_ms).where(leases.c.name == LEADER)
    row = conn.execute(told).one_or_none()
    return LeaderTime(*row) if row is not None and row.clock_ms else None


def at_once_ms(conn: Connection, *, now_ms: int) -> int:
    """A due time for what somebody wants now. The leader's clock may be behind that of the node
    which was asked (`now_ms`), and it is the leader's that has to have come so far."""
    told = time_of(conn)
    return now_ms if told is None else min(now_ms, told.clock_ms)


def lasts_from_ms(conn: Connection, *, now_ms: int) -> int:
    """From when it counts what somebody wants to last for so long, and the leader ends.

    The clock of the node which was asked (`now_ms`) may be behind the leader's: then it would have
    ended already. So it counts from the time that the leader last told, if that is later. The
    leader's clock has gone on since, by a third of the ttl at most while it leads: by so much it
    may be too short, and by the time in which nobody leads. By as much as the node's clock is ahead
    of the leader's it is too long; the caller knows whether that does any harm.
    """
    told = time_of(conn)
    return now_ms if told is None else max(now_ms, told.clock_ms)


def renew(conn: Connection, term: Term, *, renewals: int, time: LeaderTime | None = None) -> bool:
    """Show that the holder lives, and tell its time. False: the term has ended.

    The caller counts `renewals` up for each new ask, also after one that failed, so that each
    one changes the row for those who watch it. The same ask repeated is found landed.
    """
    result = conn.execute(
        update(leases)
        .where(
            leases.c.name == LEADER,
            leases.c.epoch == term.epoch,
            leases.c.holder == term.holder,
            leases.c.renewals <= renewals,
        )
        .values(renewals=renewals, **_times(time))
    )
    return result.rowcount == 1


def tell_time(conn: Connection, term: Term, time: LeaderTime) -> None:
    """Inside a fenced transaction of the term."""
    mine = (leases.c.name == LEADER) & (leases.c.epoch == term.epoch)
    conn.execute(update(leases).where(mine).values(**_times(time)))


def set_ahead_at_ms(conn: Connection) -> int:
    """When the wall clock was last found to have been set ahead; 0: never."""
    told = select(leases.c.set_ahead_at_ms).where(leases.c.name == LEADER)
    return conn.execute(told).scalar() or 0


def note_set_ahead(conn: Connection, term: Term, *, at_ms: int) -> None:
    mine = (leases.c.name == LEADER) & (leases.c.epoch == term.epoch)
    conn.execute(update(leases).where(mine).values(set_ahead_at_ms=at_ms))


def _times(time: LeaderTime | None) -> dict[str, int]:
    return {} if time is None else {"clock_ms": time.clock_ms, "offset_ms": time.offset_ms}


def resign(conn: Connection, term: Term) -> bool:
    """End the term, so that anybody may lead at once. False: it had ended before.

    The epoch grows, so the fence refuses what this holder still tries. An open fenced
    transaction is waited for. Repeated after a lost answer it finds the lease resigned.
    """
    values = _row(Term(NOBODY, term.epoch + 1), address="", hinted=False)
    resigned = _change(conn, epoch=term.epoch, renewals=None, values=values)
    return resigned or _held(conn, Term(NOBODY, term.epoch + 1))


def _row(term: Term, *, address: str, hinted: bool) -> dict[str, str | int]:
    return {
        "holder": term.holder,
        "address": address,
        "epoch": term.epoch,
        "renewals": 0,
        "hinted": int(hinted),
    }


def _change(
    conn: Connection, *, epoch: int, renewals: int | None, values: dict[str, str | int]
) -> bool:
    guard = (leases.c.name == LEADER) & (leases.c.epoch == epoch)
    if renewals is not None:
        guard &= leases.c.renewals == renewals
    return conn.execute(update(leases).where(guard).values(**values)).rowcount == 1


def _held(conn: Connection, term: Term) -> bool:
    current = read(conn)
    return current is not None and Term(current.holder, current.epoch) == term


def this_process() -> str:
    """The holder's name of this process, `host:pid:start-time`; no other ever has the same."""
    started_s = psutil.Process().create_time()
    return f"{socket.gethostname()}:{os.getpid()}:{started_s:.2f}"


def kill_stuck_holder(holder: str, database: Path) -> bool:
    """Kill the process `holder` if it still is that process, on this host, and sits on the file.

    Only for a holder whose lease is stale while the SQLite file is locked: stopped inside a
    transaction it stops everybody, for ever. The caller has made sure of both. But a backup may
    hold the lock just as well, so the process must be stopped, or be the one that has it. The
    start time is compared first, since the pid may be another program's by now.
    """
    named = _HOLDER.fullmatch(holder)
    if named is None or named["host"] != socket.gethostname() or int(named["pid"]) == os.getpid():
        return False
    try:
        process = psutil.Process(int(named["pid"]))
        if abs(process.create_time() - float(named["started_s"])) > START_TIME_SLACK_S:
            return False
        if not is_stuck_on(process, database):
            return False
        process.send_signal(signal.SIGKILL)  # psutil looks at the start time once more
    except psutil.NoSuchProcess:
        return False
    except psutil.AccessDenied:
        log.warning("stuck leader is another user's process", extra={"holder": holder})
        return False
    return True
