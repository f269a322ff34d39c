"""What the store says about itself, and which programs it admits (L4)."""

from __future__ import annotations

import uuid

import pytest
from sqlalchemy import Engine, update

from headrace import __version__
from headrace.errors import StoreRefused
from headrace.store.core.engine import reading, writing
from headrace.store.core.schema import PROGRAM_LEVEL, check_program, facts, store_id
from headrace.store.migrate import prepare_store


def admit_from(store: Engine, level: int) -> None:
    with writing(store) as conn:
        conn.execute(update(facts).where(facts.c.name == "oldest_program").values(value=str(level)))


def test_a_store_has_an_id_that_stays(store: Engine) -> None:
    with reading(store) as conn:
        first = store_id(conn)
    assert uuid.UUID(first).hex == first
    prepare_store(store)
    with reading(store) as conn:
        assert store_id(conn) == first


@pytest.mark.req("L4")
@pytest.mark.parametrize("level", [PROGRAM_LEVEL, PROGRAM_LEVEL - 1])
def test_a_program_that_is_new_enough_is_admitted(store: Engine, level: int) -> None:
    admit_from(store, level)
    with reading(store) as conn:
        check_program(conn)


@pytest.mark.req("L4")
def test_a_program_that_is_too_old_is_refused_with_both_levels_and_a_way_out(store: Engine) -> None:
    admit_from(store, PROGRAM_LEVEL + 1)
    with pytest.raises(StoreRefused) as told, reading(store) as conn:
        check_program(conn)
    assert str(told.value).endswith(
        f"was upgraded and takes programs of level {PROGRAM_LEVEL + 1} or newer; this is headrace "
        f"{__version__}, level {PROGRAM_LEVEL}; install the release that upgraded it, or name "
        "another store"
    )
