"""T1's matrix, as it stands in the requirements, cell by cell."""

from __future__ import annotations

from itertools import product

import pytest

from headrace.model.tables.status import (
    OPTIMIZING,
    ProcessEnd,
    ProcessStatus,
    Recovery,
    TableStatus,
    decide_recovery,
    recover,
)

MATRIX = """
| process \\ table | IDLE | PLANNING | PENDING | *_OPTIMIZING | COMMITTING |
|---|---|---|---|---|---|
| none, or record missing | keep | reset | keep | reset | reset |
| RUNNING | keep | reset | keep | resume | reset |
| FAILED | keep | reset | keep | reset | reset |
| SUCCESS | keep | reset | keep | reset | reset |
| CLOSED / KILLED | keep | reset | keep | reset | reset |
"""

Pair = tuple[ProcessStatus | None, TableStatus]
EVERY_PAIR: list[Pair] = list(product([None, *ProcessStatus], TableStatus))


def cells() -> dict[Pair, Recovery]:
    header, _, *lines = [
        [cell.strip() for cell in line.strip("|").split("|")]
        for line in MATRIX.strip().splitlines()
    ]
    return {
        (process, table): Recovery(said)
        for process_names, *row in lines
        for column, said in zip(header[1:], row, strict=True)
        for process in processes(process_names)
        for table in tables(column)
    }


def processes(name: str) -> list[ProcessStatus | None]:
    return [None] if name.startswith("none") else [ProcessStatus(n) for n in name.split(" / ")]


def tables(name: str) -> list[TableStatus]:
    return sorted(OPTIMIZING) if name == "*_OPTIMIZING" else [TableStatus(name)]


def test_the_matrix_leaves_no_pair_out() -> None:
    assert set(cells()) == set(EVERY_PAIR)
    assert len(EVERY_PAIR) == 6 * 7


@pytest.mark.parametrize(("process", "table"), EVERY_PAIR)
def test_every_pair_is_decided_as_the_matrix_says(
    process: ProcessStatus | None, table: TableStatus
) -> None:
    assert decide_recovery(process, table) is cells()[process, table]


@pytest.mark.parametrize(("process", "table"), EVERY_PAIR)
def test_what_is_written_follows_from_the_decision(
    process: ProcessStatus | None, table: TableStatus
) -> None:
    result = recover(process, table)

    assert result.recovery is decide_recovery(process, table)
    reset = result.recovery is Recovery.RESET
    assert result.table is (TableStatus.IDLE if reset else table)
    assert result.evaluate is (result.recovery is not Recovery.RESUME)


@pytest.mark.parametrize("table", list(TableStatus))
def test_a_running_process_that_is_not_resumed_is_closed_or_settled(table: TableStatus) -> None:
    result = recover(ProcessStatus.RUNNING, table)

    if table in OPTIMIZING:
        assert result.process is ProcessEnd.NONE
    elif table is TableStatus.COMMITTING:
        assert result.process is ProcessEnd.SETTLE
    else:
        assert result.process is ProcessEnd.CLOSE


@pytest.mark.parametrize(
    ("process", "table"), [p for p in EVERY_PAIR if p[0] is not ProcessStatus.RUNNING]
)
def test_a_process_that_has_ended_is_not_ended_again(
    process: ProcessStatus | None, table: TableStatus
) -> None:
    assert recover(process, table).process is ProcessEnd.NONE


@pytest.mark.parametrize(("process", "table"), EVERY_PAIR)
def test_recovering_twice_is_recovering_once(
    process: ProcessStatus | None, table: TableStatus
) -> None:
    once = recover(process, table)
    ended = ProcessStatus.CLOSED if once.process is not ProcessEnd.NONE else process

    twice = recover(ended, once.table)

    assert (twice.table, twice.process) == (once.table, ProcessEnd.NONE)


@pytest.mark.parametrize("process", [None, *ProcessStatus])
def test_a_pending_table_is_never_reset(process: ProcessStatus | None) -> None:
    assert recover(process, TableStatus.PENDING).table is TableStatus.PENDING
