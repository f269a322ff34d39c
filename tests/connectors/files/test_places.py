"""What files of an epoch are called, and what patterns of times mean."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from headrace.connectors.files.options import filename_pattern_flaw
from headrace.connectors.files.places import FileNames, Places
from headrace.model.jobs.epoch import EpochAt
from headrace.plugins.time_patterns import render_time, time_pattern_flaw

NOW = datetime(2026, 11, 16, 1, 2, 3, 45_678, tzinfo=UTC)


def places(epoch: int = 1, sink: str = "LocalFile-1") -> Places:
    return Places(EpochAt("abc", 1, epoch, "t1.1"), sink)


def names(expression: str = "${transactionId}", **other: object) -> FileNames:
    return FileNames(expression, NOW, "yyyy.MM.dd", ".csv", **other)  # type: ignore[arg-type]


def test_the_default_name_is_the_transaction_and_a_number() -> None:
    assert names().name(places(), "part-0", 7) == "T_abc_1_LocalFile-1_1_00007.csv"


@pytest.mark.parametrize("expression", ["${transactionId}_${now}", "${now}", "fixed", "${uuid}"])
def test_no_two_epochs_or_sinks_share_a_name(expression: str) -> None:
    made = names(expression)
    where = [places(), places(epoch=2), places(epoch=11), places(sink="LocalFile-2")]
    assert len({made.name(at, "part-0", 0) for at in where}) == len(where)


def test_variables_of_an_expression_are_filled_in() -> None:
    made = names("a_${now}_${transactionId}").name(places(), "part-0", 0)
    assert made == "a_2026.11.16_T_abc_1_LocalFile-1_1_00000.csv"


def test_partition_folders_are_written_as_the_user_wants_them() -> None:
    staged = "headrace_partition_0=x/headrace_partition_1=1/part-0"
    keys = ("name", "age")
    assert names(partition_keys=keys).name(places(), staged, 0).startswith("name=x/age=1/T_")
    made = names(partition_keys=keys, partition_expression="${v1}/${k0}-${v0}")
    assert made.name(places(), staged, 0).startswith("1/name-x/T_")


@pytest.mark.parametrize("value", ["..", ".", "_headrace", ".x"])
def test_a_value_neither_hides_a_folder_nor_leads_out_of_it(value: str) -> None:
    made = names(partition_keys=("k",), partition_expression="${v0}")
    folder = made.name(places(), f"headrace_partition_0={value}/part-0", 0).split("/")[0]
    assert folder[0] == "%"


def test_a_name_is_never_hidden() -> None:
    assert not names("_${now}").name(places(), "part-0", 0).startswith("_")


def test_a_pattern_is_rendered_as_java_would() -> None:
    assert render_time("yyyy.MM.dd", NOW) == "2026.11.16"
    assert render_time("yyyy-MM-dd'T'HH:mm:ss.SSS", NOW) == "2026-11-16T01:02:03.045"
    assert render_time("''yy", NOW) == "'26"


@pytest.mark.parametrize(
    ("pattern", "flaw"),
    [
        ("yyyy.MM.dd", None),
        ("yyyy-MM-dd'T'HH:mm:ss", None),
        ("yyyy.QQ", "'QQ' is no part of a time"),
        ("yyyy'T", "quote is left open"),
    ],
)
def test_a_pattern_that_can_not_be_used_is_told(pattern: str, flaw: str | None) -> None:
    found = time_pattern_flaw(pattern)
    assert (flaw in found) if flaw and found else found is None and flaw is None


def test_a_name_made_of_a_time_has_no_slash() -> None:
    assert "slash" in (filename_pattern_flaw("yyyy/MM") or "")
