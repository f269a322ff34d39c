"""What the store says about itself: its id, the id of the key that its secrets are encrypted under,
and the oldest program that may write to it (L4).

A program has a level, a number that grows when programs before it could no longer understand
what it writes. A migration which those could not live with raises the store's `oldest_program`
and ends the leader's term in the same transaction. Other migrations leave both alone, so that
during a rolling upgrade programs of two versions run on one store.
"""

from __future__ import annotations

from sqlalchemy import Connection, select

from headrace import __version__
from headrace.errors import ProgramTooOld
from headrace.store.faults import where
from headrace.store.schema import facts

PROGRAM_LEVEL = 4
OLDEST_PROGRAM = "oldest_program"
STORE_ID = "store_id"
ENCRYPTED_UNDER = "secret_key"  # the id of the key that secrets are encrypted under


def store_id(conn: Connection) -> str:
    """The id that the store was given when it was made. A state directory carries the same."""
    return conn.execute(select(facts.c.value).where(facts.c.name == STORE_ID)).scalar_one()


def check_program(conn: Connection) -> None:
    """Raise ProgramTooOld when this program is older than the store allows."""
    oldest = conn.scalar(select(facts.c.value).where(facts.c.name == OLDEST_PROGRAM))
    if oldest is not None and int(oldest) > PROGRAM_LEVEL:
        raise ProgramTooOld(
            f"store {where(conn.engine)} was upgraded and takes programs of level {oldest} or "
            f"newer; this is headrace {__version__}, level {PROGRAM_LEVEL}; install the release "
            "that upgraded it, or name another store"
        )
