"""Table properties: Amoro's names and defaults, and what becomes of one that can't be read."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.model.tables.settings import (
    DURATION_MAX_MS,
    INTEGER_MAX,
    PROPERTIES,
    Flaw,
    OptimizingSettings,
)
from tests.examples import examples

# The names and defaults as Amoro documents them, but for `self-optimizing.filter`, which has none.
AMORO = """
self-optimizing.enabled                                   true
self-optimizing.group                                     default
self-optimizing.quota                                     0.5
self-optimizing.target-size                               134217728
self-optimizing.max-task-size-bytes                       134217728
self-optimizing.max-file-count                            10000
self-optimizing.fragment-ratio                            8
self-optimizing.min-target-size-ratio                     0.75
self-optimizing.minor.trigger.file-count                  12
self-optimizing.minor.trigger.interval                    3600000
self-optimizing.major.trigger.duplicate-ratio             0.1
self-optimizing.full.trigger.interval                     -1
self-optimizing.full.rewrite-all-files                    true
self-optimizing.execute.num-retries                       5
self-optimizing.allow-partial-commit                      false
self-optimizing.min-plan-interval                         60000
self-optimizing.evaluation.fallback-interval              -1
self-optimizing.evaluation.file-size.mse-tolerance        0
self-optimizing.refresh-table.adaptive.max-interval-ms    0
self-optimizing.refresh-table.adaptive.increase-step-ms   30000
read.split.open-file-cost                                 4194304
"""
MIB = 1024 * 1024


def test_the_defaults_are_amoros() -> None:
    lines = [line.split() for line in AMORO.strip().splitlines()]
    documented = {line[0]: line[1] for line in lines}

    assert {prop.name for prop in PROPERTIES} == {*documented, "self-optimizing.filter"}
    assert OptimizingSettings.read(documented) == (OptimizingSettings(), [])
    assert OptimizingSettings.read({}) == (OptimizingSettings(), [])
    assert OptimizingSettings().filter is None


def test_the_thresholds_are_those_that_amoro_derives() -> None:
    settings = OptimizingSettings()

    assert settings.fragment_bytes == 16 * MIB
    assert settings.min_target_bytes == 96 * MIB
    assert settings.task_bytes == 128 * MIB
    assert OptimizingSettings(target_size_bytes=512 * MIB).task_bytes == 512 * MIB


@pytest.mark.parametrize(
    ("text", "ms"),
    [
        ("2592000000", 30 * 86_400_000),  # 30 days: the peer's int ends at 24.85
        ("30d", 30 * 86_400_000),
        ("90 min", 5_400_000),
        ("36H", 129_600_000),
        ("5s", 5_000),
        ("7ms", 7),
        ("0", 0),
        ("-1", -1),
        ("-5d", -1),
        (str(INTEGER_MAX), DURATION_MAX_MS),
    ],
)
def test_an_interval_may_be_long_and_may_have_a_unit(text: str, ms: int) -> None:
    settings, flaws = OptimizingSettings.read({"self-optimizing.full.trigger.interval": text})

    assert (settings.full_interval_ms, flaws) == (ms, [])


def test_a_size_may_be_larger_than_two_gigabytes() -> None:
    name = "self-optimizing.target-size"

    assert OptimizingSettings.read({name: str(8192 * MIB)}) == (
        OptimizingSettings(target_size_bytes=8192 * MIB),
        [],
    )


def test_a_property_that_does_not_parse_is_a_flaw_and_the_default_holds() -> None:
    settings, flaws = OptimizingSettings.read(
        {"self-optimizing.target-size": "128MB", "self-optimizing.quota": "2"}
    )

    assert settings == OptimizingSettings(quota=2.0)
    assert [str(flaw) for flaw in flaws] == [
        "table property self-optimizing.target-size is '128MB', expected a number of bytes, at "
        "least 1; 134217728 is used. Set it to such a value, or remove it"
    ]


def test_a_flaw_of_the_table_falls_back_to_the_catalog_and_that_to_what_is_built_in() -> None:
    name, other = "self-optimizing.minor.trigger.file-count", "self-optimizing.enabled"
    settings, flaws = OptimizingSettings.read({name: "many"}, {name: "20", other: "perhaps"})

    assert settings == OptimizingSettings(minor_file_count=20)
    assert flaws == [
        Flaw(other, "perhaps", "true or false", "true", "catalog"),
        Flaw(name, "many", "a whole number from 1 on", "20", "table"),
    ]


def test_the_table_s_own_property_beats_the_catalog_s() -> None:
    name = "self-optimizing.group"

    assert OptimizingSettings.read({name: "a"}, {name: "b"})[0].group == "a"
    assert OptimizingSettings.read({}, {name: "b"})[0].group == "b"


def test_what_a_group_gives_its_tables_holds_where_neither_table_nor_catalog_say() -> None:
    quota, retries = "self-optimizing.quota", "self-optimizing.execute.num-retries"
    groups = {"big": {quota: "4", retries: "9"}, "default": {quota: "7"}}
    mine = {"self-optimizing.group": "big"}

    of_group, _ = OptimizingSettings.read(mine, {}, groups)
    by_catalog, _ = OptimizingSettings.read({}, {**mine, quota: "3"}, groups)
    by_table, _ = OptimizingSettings.read({**mine, quota: "2"}, {quota: "3"}, groups)

    assert (of_group.quota, of_group.execute_retries) == (4, 9)
    assert (by_catalog.quota, by_table.quota) == (3, 2)
    assert OptimizingSettings.read({}, {}, groups)[0].quota == 7, "the group that nobody names"
    assert [each.set_by.get(quota) for each in (of_group, by_catalog, by_table)] == [
        "group",
        "catalog",
        "table",
    ]


def test_a_flaw_of_a_table_falls_back_to_its_group_when_its_catalog_says_nothing() -> None:
    quota = "self-optimizing.quota"

    settings, flaws = OptimizingSettings.read({quota: "much"}, {}, {"default": {quota: "3"}})

    assert (settings.quota, settings.set_by) == (3, {quota: "group"})
    assert [(flaw.source, flaw.used) for flaw in flaws] == [("table", "3.0")]


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("quota", "0"),
        ("quota", "nan"),
        ("quota", "inf"),
        ("fragment-ratio", "0"),
        ("fragment-ratio", "8.0"),
        ("max-file-count", "1"),
        ("min-target-size-ratio", "1.1"),
        ("minor.trigger.interval", str(INTEGER_MAX + 1)),
        ("minor.trigger.interval", f"{INTEGER_MAX}d"),
        ("minor.trigger.interval", "1 fortnight"),
        ("target-size", "9" * 5_000),
        ("group", " "),
        ("enabled", ""),
    ],
)
def test_a_value_that_makes_no_sense_is_not_used(name: str, value: str) -> None:
    settings, flaws = OptimizingSettings.read({f"self-optimizing.{name}": value})

    assert settings == OptimizingSettings()
    assert [(flaw.name, flaw.value) for flaw in flaws] == [(f"self-optimizing.{name}", value)]


def test_a_filter_is_kept_as_it_is_written() -> None:
    predicate = "day > '2026-01-01' AND region IN ('a', 'b')"

    assert OptimizingSettings.read({"self-optimizing.filter": predicate})[0].filter == predicate


def test_an_undersized_limit_that_calls_good_files_undersized_is_told_and_used() -> None:
    settings, flaws = OptimizingSettings.read({"self-optimizing.min-target-size-ratio": "0.95"})

    assert settings.min_target_size_ratio == 0.95
    assert [(flaw.value, flaw.used) for flaw in flaws] == [("0.95", "0.95")]
    assert flaws[0].expected.startswith("at most 0.875, ")


@given(
    set_here=st.dictionaries(st.sampled_from([p.name for p in PROPERTIES]), st.text(max_size=12)),
    set_there=st.dictionaries(st.sampled_from([p.name for p in PROPERTIES]), st.text(max_size=12)),
)
@examples(100)
def test_no_text_makes_reading_fail(set_here: dict[str, str], set_there: dict[str, str]) -> None:
    _, flaws = OptimizingSettings.read(set_here, set_there)

    for flaw in flaws:
        assert flaw.value in (set_here.get(flaw.name), set_there.get(flaw.name), flaw.used)
