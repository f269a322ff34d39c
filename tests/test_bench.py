"""The benches' own arithmetic, and the form of what they write. Nothing here looks at a time."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from pydantic import JsonValue

from bench.__main__ import BENCHES
from bench.epochs import PACE_MS, ROWS, THE_SCRIPT, spec
from bench.figures import Better, Side, differing, in_turns, percentile, reaches, rotations, turns
from bench.http import BadAnswer, content_length
from bench.processes import NotMeasured, until
from bench.result import FIELDS, HEADING, RESULTS, made
from headrace.connectors.connector import Setting
from headrace.connectors.fake.descriptor import FAKE_SOURCE
from headrace.connectors.fake.tables import make_fake_source
from headrace.model.jobs.spec import JobSpec
from tools.tree import ROOT

WRITTEN = sorted(RESULTS.glob("*.json"))
PAGE = (ROOT / "docs" / "reference" / "benchmarks.md").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("share", "expected"), [(0.0, 1.0), (0.5, 50.0), (0.99, 99.0), (1.0, 100.0)]
)
def test_a_percentile_is_a_value_that_was_measured(share: float, expected: float) -> None:
    assert percentile([float(number) for number in range(100, 0, -1)], share) == expected


def test_a_percentile_of_nothing_is_refused() -> None:
    with pytest.raises(ValueError, match="no values"):
        percentile([], 0.5)


@pytest.mark.parametrize(
    ("value", "better", "expected"),
    [(1.1, "lower", True), (1.2, "lower", False), (1.1, "higher", True), (1.0, "higher", False)],
)
def test_an_aim_is_reached_from_its_own_side(
    value: float, better: Better, *, expected: bool
) -> None:
    assert reaches(value, 1.1, better=better) is expected


def test_each_side_goes_first_in_every_other_pair() -> None:
    assert turns(3) == [("ours", "peer"), ("peer", "ours"), ("ours", "peer")]


def test_in_each_round_everybody_moves_one_place_on() -> None:
    assert rotations((1, 10, THE_SCRIPT), rounds=2) == [[1, 10, 0], [10, 0, 1]]


@pytest.mark.parametrize("epochs", [1, 10, 100])
def test_a_job_of_so_many_epochs_is_planned_in_so_many(epochs: int) -> None:
    asked = JobSpec.model_validate(spec(ROWS, epochs=epochs))
    (pipeline,), env = asked.pipelines, asked.env
    interval_ms = env.checkpoint_interval_ms
    source = make_fake_source(
        "made",
        FAKE_SOURCE.typed_options(pipeline.sources[0].options),
        Setting(
            job="epochs",
            incarnation="any",
            pipeline=pipeline.number,
            parallelism=env.parallelism,
            streaming=False,
            warehouse="",
            checkpoint_interval_ms=interval_ms,
        ),
    )
    rows: list[int | None] = []
    position: JsonValue = None
    no_session: Any = None
    rows_max = None if interval_ms is None else ROWS
    while part := source.plan(no_session, position, rows_max=rows_max):
        rows.append(part.rows)
        assert part.lasts_ms <= PACE_MS
        position = part.after

    assert rows == [ROWS // epochs] * epochs


def test_the_first_pairs_are_measured_and_thrown_away() -> None:
    asked: list[Side] = []

    def measure(side: Side) -> int:
        asked.append(side)
        return len(asked)

    assert in_turns(measure, pairs=2, warm_up_pairs=1) == ([4, 5], [3, 6])
    assert asked == ["ours", "peer", "peer", "ours", "ours", "peer"]


def test_a_table_that_differs_in_one_column_is_told_from_the_right_one() -> None:
    right = {"rows": 2, "id_sum": 7, "id_xor": 3}

    assert differing(right, dict(right)) == []
    assert differing({**right, "id_sum": 8}, right) == ["id_sum"]
    assert differing({}, {"rows": 0}) == ["rows"]


def test_the_length_of_an_answer_is_read_from_its_head() -> None:
    assert content_length(b"HTTP/1.1 200 OK\r\nContent-Length: 12\r\n\r\n") == 12
    with pytest.raises(BadAnswer, match="Content-Length"):
        content_length(b"HTTP/1.1 200 OK\r\n\r\n")


def test_a_wait_that_is_not_over_in_time_says_what_it_waited_for() -> None:
    with pytest.raises(NotMeasured, match=r"not within 0 s: the moon"):
        until(lambda: None, limit_s=0.0, what="the moon")


def test_a_result_is_written_with_its_ratio_and_shown_in_columns(tmp_path: Path) -> None:
    result = made(
        "made", ours=2.0, peer=4.0, unit="s", aim=(0.6, "at most 0.6"), met=True, rounds=3
    )

    written = json.loads(result.write(tmp_path).read_text(encoding="utf-8"))

    assert tuple(written) == FIELDS
    assert written["ratio"] == 0.5
    assert written["details"]["rounds"] == 3
    assert written["details"]["aim"] == "at most 0.6"
    assert result.line().startswith("made ")
    assert result.line().index("yes") == HEADING.index("met")


def test_a_result_that_nothing_is_promised_of_is_neither_met_nor_missed() -> None:
    result = made("made", ours=2.0, peer=4.0, unit="s", aim=(None, "no promise"), met=None)

    assert result.line().split()[-3:-1] == ["-", "-"]


@pytest.mark.parametrize("path", WRITTEN, ids=lambda path: path.stem)
def test_a_kept_result_has_every_field_and_names_what_it_was_measured_against(path: Path) -> None:
    found = json.loads(path.read_text(encoding="utf-8"))

    assert tuple(found) == FIELDS
    assert found["name"] == path.stem
    assert all(isinstance(found[name], int | float) for name in ("ours", "peer", "ratio"))
    assert isinstance(found["aim"], int | float | None)
    assert isinstance(found["met"], bool) is (found["aim"] is not None)
    assert found["details"]["aim"]
    assert found["details"]["peer_is"]
    assert len(found["details"]["machine"]["load_average_at_start"]) == 3


def test_every_bench_has_kept_a_result() -> None:
    kept = {path.stem for path in WRITTEN}

    assert not {name for name in BENCHES if not any(stem.startswith(name) for stem in kept)}


@pytest.mark.parametrize("name", sorted(BENCHES))
def test_every_bench_is_documented(name: str) -> None:
    assert re.search(rf"^## `{name}`", PAGE, re.MULTILINE)
