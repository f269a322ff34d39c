"""A pipeline that reads several folders must be able to record its plan."""

from __future__ import annotations

import json

from pydantic import JsonValue

from headrace.connectors.files.arrivals import choose_arrived
from headrace.protocol.messages import PAYLOAD_BYTES_MAX, EpochPlan, Slice
from headrace.spark.filesystem import FileInfo

SOURCES = 5
FILES = 5_000


def _slice(source: int) -> Slice:
    """As FileSource makes it, of a folder in which many files wait."""
    found = [
        FileInfo(f"day=2026-01-01/part-{source}-{n:06d}-{'x' * 40}.csv", 1000, n)
        for n in range(FILES)
    ]
    position = choose_arrived(found, None, rows_max=None).after  # it remembers many
    choice = choose_arrived(
        [FileInfo(f"again-{one.path}", 1000, FILES + n) for n, one in enumerate(found)],
        position,
        rows_max=None,
    )
    data: JsonValue = {"files": [[one.path, one.bytes, one.modified_ms] for one in choice.files]}
    after = choice.after.model_dump(mode="json", exclude_defaults=True)
    return Slice(data=data, after=after)


def test_the_plan_of_a_pipeline_with_five_folders_fits() -> None:
    plan = EpochPlan(slices={f"LocalFile-{n}": _slice(n) for n in range(SOURCES)}, now_ms=0)

    assert len(json.dumps(plan.model_dump(mode="json")).encode()) <= PAYLOAD_BYTES_MAX
