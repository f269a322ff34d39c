"""What the pages about tables say is what the code does."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

import pytest

from headrace.model.groups import LAUNCH_TRANSITIONS
from headrace.model.tables.settings import PROPERTIES, OptimizingSettings, Property
from headrace.model.tables.status import (
    PROCESS_TRANSITIONS,
    TABLE_RELEASES,
    TABLE_RESETS,
    TABLE_TRANSITIONS,
    ProcessStatus,
    TableStatus,
    decide_recovery,
)
from tests.test_docs import ARROW, page

PROPERTY_PAGE = "reference/table-properties"
STATES_PAGE = "explanation/self-optimizing"
MACHINES_PAGE = "explanation/state-machines"


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


@pytest.mark.parametrize(
    ("section", "words", "transitions"),
    [
        ("Table", "", TABLE_TRANSITIONS),
        ("Table", ": its process has ended", TABLE_RELEASES),
        ("Table", ": recovery", TABLE_RESETS),
        ("Process", "", PROCESS_TRANSITIONS),
        ("Resource", "", LAUNCH_TRANSITIONS),
    ],
)
def test_the_diagrams_of_tables_and_groups_show_what_the_code_allows(
    section: str, words: str, transitions: Mapping[str, Iterable[str]]
) -> None:
    text = page(MACHINES_PAGE).partition(f"\n## {section}\n")[2].partition("\n## ")[0]
    arrow = re.compile(rf"^    (\w+) --> (\w+){words}$", re.MULTILINE)
    allowed = {(str(old), str(new)) for old, news in transitions.items() for new in news}

    assert set(arrow.findall(text)) == allowed


def test_no_arrow_of_a_table_has_other_words() -> None:
    text = page(MACHINES_PAGE).partition("\n## Table\n")[2].partition("\n## ")[0]

    assert set(re.findall(r" --> \w+(?:: (.*))?$", text, re.MULTILINE)) == {
        "",
        "its process has ended",
        "recovery",
    }


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
