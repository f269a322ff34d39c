"""What the pages about tables say is what the code does."""

from __future__ import annotations

import re

import pytest

from headrace.model.tables.settings import PROPERTIES, OptimizingSettings, Property
from headrace.model.tables.status import (
    TABLE_TRANSITIONS,
    ProcessStatus,
    TableStatus,
    decide_recovery,
)
from tests.test_docs import page

PROPERTY_PAGE = "reference/table-properties"
STATES_PAGE = "explanation/self-optimizing"
ARROW = re.compile(r"^    (\w+) --> (\w+)$", re.MULTILINE)


def written(value: object) -> str:
    if value is None:
        return "none"
    return f"`{str(value).lower() if isinstance(value, bool) else value}`"


@pytest.mark.parametrize("known", PROPERTIES, ids=lambda known: known.name)
def test_a_table_property_is_documented_with_its_default_and_form(known: Property) -> None:
    default = written(getattr(OptimizingSettings(), known.field))

    assert f"\n| `{known.name}` | {default} | {known.parser.expected} | " in page(PROPERTY_PAGE)


def test_no_property_is_documented_that_nobody_reads() -> None:
    told = re.findall(r"^\| `([\w.-]+)` \|", page(PROPERTY_PAGE), re.MULTILINE)

    assert told == [known.name for known in PROPERTIES]


def test_the_diagram_of_table_states_shows_what_the_code_allows() -> None:
    allowed = {(str(old), str(new)) for old, news in TABLE_TRANSITIONS.items() for new in news}

    assert set(ARROW.findall(page(STATES_PAGE))) == allowed


@pytest.mark.req("T1")
@pytest.mark.parametrize("process", [None, *ProcessStatus])
def test_the_recovery_matrix_in_the_docs_is_the_one_that_is_applied(
    process: ProcessStatus | None,
) -> None:
    named = process or "none, or its record is missing"
    [row] = re.findall(rf"^\| {named} \|(.*)\|$", page(STATES_PAGE), re.MULTILINE)
    shown = [cell.strip() for cell in row.split("|")]
    states = (TableStatus.IDLE, TableStatus.PLANNING, TableStatus.PENDING)
    processing = (TableStatus.MAJOR_OPTIMIZING, TableStatus.COMMITTING)

    assert shown == [decide_recovery(process, table).value for table in (*states, *processing)]
