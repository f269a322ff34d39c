"""The leader's lease: who leads, for how long nobody else may, and how leadership passes on.

The lease is one row (holder, address, epoch, renewals). No time in it decides who leads: a
candidate takes over when the row has not changed for the ttl on the candidate's own monotonic
clock, so no two clocks are ever compared. The leader's time is recorded in the row for its
successor, which goes on counting from there. `epoch` grows with every change of leader, including a
resignation.

The take-over lock is released by itself when its holder's process dies. A candidate that gets it
may take the lease before it is stale, so that a killed leader is replaced at once instead of after
the ttl. The lock is a hint and never the authority: a paused leader keeps it and loses the lease
all the same, and a lease may be taken without it. The fence decides (L1).

`is_stuck_on` asks the operating system whether a process holds the write lock of a SQLite file.
"""

from __future__ import annotations

import fcntl
import logging
import os
import re
import signal
import socket
from contextlib import closing, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import psutil
from sqlalchemy import Connection, Engine, select, update

from headrace.clock import Clock
from headrace.store.core.driver_errors import (
    session_errors,
    store_errors,
)
from headrace.store.core.encryption import check_key
from headrace.store.core.engine import (
    insert_new,
    is_sqlite,
    keyring_of,
    open_session,
)
from headrace.store.core.schema import check_program, leases
from headrace.store.core.transactions import LEADER, Term

if TYPE_CHECKING:
    import psycopg

TAKEOVER_LOCK_ID = 0x6865_6164_6C65_6164  # the key of PostgreSQL's advisory lock: "headlead"
TAKEOVER_SUFFIX = ".leader"  # of the locked file beside a SQLite store
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
    hinted: bool  # the holder has the take-over lock: when that is free, the holder is dead
    clock_ms: int = 0  # the leader's time when it last recorded it; 0: it never did

    @property
    def vacant(self) -> bool:
        return self.holder == NOBODY


@dataclass(frozen=True, slots=True)
class LeaderTime:
    """The time that a leader counts by; all due times in the store are in it."""

    clock_ms: int
    offset_ms: int  # how far it is ahead of the wall clock, which was set during the term


class LeaseWatch:
    """Tells when a lease has not changed for the ttl, as far as this process can see."""

    def __init__(self, clock: Clock, *, ttl_s: float) -> None:
        self._clock, self._ttl_s = clock, ttl_s
        self._seen: Lease | None = None
        self._since_s = 0.0

    def free_to_take(self, seen: Lease | None) -> bool:
        """Whether the lease just read may be taken: never held, resigned, or stale.

        Call it right after each read. Time counts from the first sight of a row, which is later
        than the renewal that wrote it: the error is on the safe side.
        """
        now_s = self._clock.monotonic_s()
        if seen is None or seen.vacant:
            return True
        if seen != self._seen:
            self._seen, self._since_s = seen, now_s
        return now_s - self._since_s >= self._ttl_s


def read(conn: Connection) -> Lease | None:
    """The lease as it stands. None: nobody ever led on this store."""
    row = conn.execute(select(leases).where(leases.c.name == LEADER)).one_or_none()
    if row is None:
        return None
    return Lease(row.holder, row.address, row.epoch, row.renewals, bool(row.hinted), row.clock_ms)


def take(
    conn: Connection, seen: Lease | None, *, holder: str, address: str, hinted: bool = False
) -> Term | None:
    """Take the lease, when it still is as `seen`. None: it has changed since, somebody was faster.

    Waits for an open fenced transaction of the old leader. It is idempotent: repeated after a lost
    answer it finds the lease in its own hands. Raises ProgramTooOld when this program is too old to
    lead here (L4), and KeyRefused when the store has changed its key and this program was not given
    the new one.
    """
    check_program(conn)
    if not keyring_of(conn).is_key_missing:  # else it was refused when it started
        check_key(conn)
    term = Term(holder, seen.epoch + 1 if seen else 1)
    values = _lease_values(term, address=address, hinted=hinted)
    if seen is None:
        taken = insert_new(conn, leases, name=LEADER, **values)
    else:
        taken = _change(conn, epoch=seen.epoch, renewals=seen.renewals, values=values)
    return term if taken or _is_held_by(conn, term) else None


def leader_time(conn: Connection) -> LeaderTime | None:
    """What the leader of this or an earlier term last recorded as its time. None: nobody ever
    did."""
    query = select(leases.c.clock_ms, leases.c.offset_ms).where(leases.c.name == LEADER)
    row = conn.execute(query).one_or_none()
    return LeaderTime(*row) if row is not None and row.clock_ms else None


def at_once_ms(conn: Connection, *, now_ms: int) -> int:
    """A due time for what somebody wants now.

    The leader's clock may be behind the clock of the node that took the request (`now_ms`), and
    only the leader's clock decides what is due; so the earlier of the two counts.
    """
    recorded = leader_time(conn)
    return now_ms if recorded is None else min(now_ms, recorded.clock_ms)


def lasts_from_ms(conn: Connection, *, now_ms: int) -> int:
    """The start of a duration that somebody asked for, and that the leader will end.

    The clock of the node that took the request (`now_ms`) may be behind the leader's, in which case
    the duration could be over already. So it counts from the time that the leader last recorded, if
    that is later. The leader's clock has gone on since then: by a third of the ttl at most while it
    leads, and by the time in which nobody leads. The duration may be too short by so much. It is
    too long by as much as the node's clock is ahead of the leader's; the caller knows whether that
    does any harm.
    """
    recorded = leader_time(conn)
    return now_ms if recorded is None else max(now_ms, recorded.clock_ms)


def renew(conn: Connection, term: Term, *, renewals: int, time: LeaderTime | None = None) -> bool:
    """Show that the holder lives, and record its time. False: the term has ended.

    The caller counts `renewals` up with each new request, also after one that failed, so that each
    one changes the row for those who watch it. It is idempotent: the same request repeated finds
    that it has landed.
    """
    result = conn.execute(
        update(leases)
        .where(
            leases.c.name == LEADER,
            leases.c.epoch == term.epoch,
            leases.c.holder == term.holder,
            leases.c.renewals <= renewals,
        )
        .values(renewals=renewals, **_time_values(time))
    )
    return result.rowcount == 1


def record_time(conn: Connection, term: Term, time: LeaderTime) -> None:
    """Record the leader's time, inside a fenced transaction of its term."""
    mine = (leases.c.name == LEADER) & (leases.c.epoch == term.epoch)
    conn.execute(update(leases).where(mine).values(**_time_values(time)))


def set_ahead_at_ms(conn: Connection) -> int:
    """When the wall clock was last found to have been set ahead; 0: never."""
    query = select(leases.c.set_ahead_at_ms).where(leases.c.name == LEADER)
    return conn.execute(query).scalar() or 0


def note_set_ahead(conn: Connection, term: Term, *, at_ms: int) -> None:
    """Record when the wall clock was found to have been set ahead."""
    mine = (leases.c.name == LEADER) & (leases.c.epoch == term.epoch)
    conn.execute(update(leases).where(mine).values(set_ahead_at_ms=at_ms))


def _time_values(time: LeaderTime | None) -> dict[str, int]:
    return {} if time is None else {"clock_ms": time.clock_ms, "offset_ms": time.offset_ms}


def resign(conn: Connection, term: Term) -> bool:
    """End the term, so that anybody may lead at once. False: it had ended before.

    The epoch grows, so the fence refuses what this holder still tries. It waits for an open fenced
    transaction, and is idempotent: repeated after a lost answer it finds the lease resigned.
    """
    values = _lease_values(Term(NOBODY, term.epoch + 1), address="", hinted=False)
    resigned = _change(conn, epoch=term.epoch, renewals=None, values=values)
    return resigned or _is_held_by(conn, Term(NOBODY, term.epoch + 1))


def _lease_values(term: Term, *, address: str, hinted: bool) -> dict[str, str | int]:
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
    """Write the lease if its epoch, and `renewals` unless that is None, are as expected."""
    guard = (leases.c.name == LEADER) & (leases.c.epoch == epoch)
    if renewals is not None:
        guard &= leases.c.renewals == renewals
    return conn.execute(update(leases).where(guard).values(**values)).rowcount == 1


def _is_held_by(conn: Connection, term: Term) -> bool:
    current = read(conn)
    return current is not None and Term(current.holder, current.epoch) == term


class TakeoverLock(Protocol):
    """A lock that its holder's death releases. Use one from one thread only."""

    def try_acquire(self) -> bool:
        """Take the lock without waiting. False: somebody else holds it. True again while it is
        held."""
        ...

    def release(self) -> None:
        """Release the lock and its file or session. It may be acquired again later."""
        ...


def open_takeover_lock(engine: Engine) -> TakeoverLock:
    """The take-over lock that belongs to the store. Use it from one thread."""
    if is_sqlite(engine):
        return FileTakeoverLock(Path(str(engine.url.database) + TAKEOVER_SUFFIX))
    return SessionTakeoverLock(engine)


class FileTakeoverLock:
    """An flock on a file beside the SQLite file; the kernel frees it when the process dies."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file: int | None = None

    def try_acquire(self) -> bool:
        if self._file is not None:
            return True
        file = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(file)
            return False
        self._file = file
        return True

    def release(self) -> None:
        if self._file is not None:
            os.close(self._file)  # the file stays: else two could lock two files of its name
            self._file = None


class SessionTakeoverLock:
    """A session advisory lock; PostgreSQL frees it when the connection ends.

    The connection is taken out of the pool, which would hand it to somebody else together with the
    lock.
    """

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._session: psycopg.Connection[Any] | None = None
        self._held = False

    def try_acquire(self) -> bool:
        with store_errors(self._engine):
            if self._session is None:
                self._session = open_session(self._engine)
            try:
                return self._try_lock(self._session)
            except session_errors(self._engine):
                self.release()  # the session and its lock are gone; the next call reconnects
                raise

    def release(self) -> None:
        session, self._session = self._session, None
        held, self._held = self._held, False
        if session is None:
            return
        with closing(session):
            if held and not session.broken:
                # Closing the session frees the lock, too, but only once the server notices. When
                # this fails, the session has ended, and the lock with it.
                with suppress(*session_errors(self._engine)):
                    session.execute("SELECT pg_advisory_unlock(%s)", [TAKEOVER_LOCK_ID])

    def _try_lock(self, session: psycopg.Connection[Any]) -> bool:
        if self._held:
            # A session's advisory locks are counted, so the lock is not taken again; but the
            # session may have ended unnoticed.
            session.execute("SELECT 1")
        else:
            result = session.execute("SELECT pg_try_advisory_lock(%s)", [TAKEOVER_LOCK_ID])
            self._held = result.fetchone() == (True,)
        return self._held


def this_process() -> str:
    """This process as a lease names its holder, `host:pid:start-time`; no other has the same
    name."""
    started_s = psutil.Process().create_time()
    return f"{socket.gethostname()}:{os.getpid()}:{started_s:.2f}"


def kill_stuck_holder(holder: str, database: Path) -> bool:
    """Kill the process `holder` if it is still that process, on this host, and blocks the file.

    It is only for a holder whose lease is stale while the SQLite file is locked: stopped inside a
    transaction it would block everybody for ever. The caller has made sure of both. A backup may
    hold the lock just as well, so the process must be stopped, or be the one that has the lock. The
    start time is compared first, since the pid may belong to another program by now.
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
        process.send_signal(signal.SIGKILL)  # psutil compares the start time once more
    except psutil.NoSuchProcess:
        return False
    except psutil.AccessDenied:
        log.warning("stuck leader is another user's process", extra={"holder": holder})
        return False
    return True


LOCKS = Path("/proc/locks")  # Linux: `1: POSIX ADVISORY WRITE pid major:minor:inode from to`
WAL_INDEX_SUFFIX = "-shm"  # of the file beside a WAL database that carries its locks
WRITE_LOCK_BYTE = 120  # in that file: the process that has it locked is the writer


def is_stuck_on(process: psutil.Process, database: Path) -> bool:
    """Whether the process is stopped, or holds the write lock of the database."""
    return process.status() == psutil.STATUS_STOPPED or process.pid in _write_lock_pids(database)


def _write_lock_pids(database: Path) -> set[int]:
    """The processes that hold the write lock of the database, as far as the system reports it."""
    try:
        inode = Path(f"{database}{WAL_INDEX_SUFFIX}").stat().st_ino
        lines = LOCKS.read_text().splitlines()
    except OSError:
        return set()  # no such report here: then only a stopped process is recognised
    return {pid for line in lines if (pid := _write_lock_pid(line.split(), inode)) is not None}


def _write_lock_pid(fields: list[str], inode: int) -> int | None:
    """The process of one line of /proc/locks, when that is the write lock of the file `inode`."""
    match fields:
        case [_, "POSIX", _, "WRITE", pid, device, begin, end] if device.endswith(f":{inode}"):
            last = int(end) if end != "EOF" else WRITE_LOCK_BYTE
            return int(pid) if int(begin) <= WRITE_LOCK_BYTE <= last else None
        case _:
            return None
