"""What holds for the plan of any table: it gains, it ends, it loses nothing."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from headrace.model.tables.assessment import assess
from headrace.model.tables.evaluation import PartitionClock
from headrace.model.tables.files import Partition, TableFiles
from headrace.model.tables.plan import ProcessBudget, advanced_clocks, plan, predict
from headrace.model.tables.settings import OptimizingSettings
from headrace.model.tables.status import OptimizingType
from tests.examples import examples
from tests.model.tables.samples import (
    FILES_MAX,
    NOW_MS,
    any_settings,
    any_table,
    any_type,
    due_as,
    planned_as,
)

EXAMPLES = examples(60)


@EXAMPLES
@given(found=any_table(), kind=any_type, chosen=any_settings)
def test_what_a_plan_leaves_is_not_planned_again(
    found: TableFiles, kind: OptimizingType, chosen: OptimizingSettings
) -> None:
    roomy = replace(chosen, max_task_size_bytes=1_000_000, max_file_count=10_000)
    first = planned_as(kind, found, roomy)
    if first is not None:
        assert planned_as(kind, predict(found, first), roomy) is None


@EXAMPLES
@given(found=any_table(), kind=any_type, chosen=any_settings)
def test_plan_after_plan_ends_however_little_a_task_may_take(
    found: TableFiles, kind: OptimizingType, chosen: OptimizingSettings
) -> None:
    """A task too small for two files' deletes leaves files that the next plan may still join, once;
    one that may open few files joins them as a tree, so the number of plans is its height."""
    rounds_max = 2 + FILES_MAX.bit_length() * (chosen.max_file_count < FILES_MAX)
    for _ in range(rounds_max):
        made = planned_as(kind, found, chosen)
        if made is None:
            return
        after = predict(found, made)
        assert _burden(after, kind) < _burden(found, kind)
        found = after
    assert planned_as(kind, found, chosen) is None


def _burden(found: TableFiles, kind: OptimizingType) -> tuple[int, int, int]:
    """What every plan makes smaller: deletes to apply, else (in a full) disorder, else files. A
    huge file that is put into order becomes several."""
    applied = sum(len(file.deletes) for file in found.files)
    disorder = sum(not file.sorted for file in found.files)
    return applied, disorder if kind is OptimizingType.FULL else 0, len(found.files)


@EXAMPLES
@given(found=any_table(), kind=any_type, chosen=any_settings)
def test_a_bin_keeps_its_limits_and_no_file_is_in_two(
    found: TableFiles, kind: OptimizingType, chosen: OptimizingSettings
) -> None:
    made = planned_as(kind, found, chosen)
    for each in () if made is None else made.bins:
        assert len({file.partition for file in each.files}) == 1
        assert [f.path for f in each.files] == sorted(f.path for f in each.files)
        assert len(each.files) > 1 or each.deletes or each.orders
        if len(each.files) > 1:
            needed = max(_delete_bytes(found, file.deletes) for file in each.files)
            assert len(each.files) <= chosen.max_file_count
            assert each.live_bytes <= chosen.target_size_bytes
            assert each.bytes <= chosen.task_bytes
            assert each.read_bytes <= chosen.task_bytes or (
                needed == each.delete_bytes > chosen.task_bytes // 2
            )
    paths = [f.path for each in (made.bins if made else ()) for f in each.files]
    assert len(paths) == len(set(paths))


def _dangling(found: TableFiles) -> int:
    """Deletes that apply to no file at all."""
    used = {index for file in found.files for index in file.deletes}
    return len(found.deletes) - len(used)


def _delete_bytes(found: TableFiles, indexes: tuple[int, ...]) -> int:
    return sum(found.deletes[index].bytes for index in indexes)


@EXAMPLES
@given(found=any_table(), kind=any_type, chosen=any_settings, budget=st.integers(0, 600))
def test_a_delete_goes_only_when_no_file_needs_it(
    found: TableFiles, kind: OptimizingType, chosen: OptimizingSettings, budget: int
) -> None:
    made = plan(found, due_as(kind, found, chosen), chosen, room=ProcessBudget(bytes=budget))
    if made is None:
        return
    rewritten = {file.path for each in made.bins for file in each.files}
    needed = {i for file in found.files if file.path not in rewritten for i in file.deletes}
    applied = {i for file in found.files if file.path in rewritten for i in file.deletes}
    assert made.removed == applied - needed
    assert made.reserved == applied & needed
    assert _dangling(predict(found, made)) == _dangling(found)  # none is left behind


@EXAMPLES
@given(found=any_table(), chosen=any_settings)
def test_a_table_is_pending_exactly_when_a_plan_gains(
    found: TableFiles, chosen: OptimizingSettings
) -> None:
    result = assess(found, chosen, {}, now_ms=NOW_MS)
    assert (result.pending is None) == (result.plan is None)
    assert 0 <= result.scan_score <= 100
    assert 0 <= result.amoro_score <= 100
    if result.plan is not None:
        made = result.plan
        fewer = made.gain.files_after < made.gain.files_before
        assert fewer or any(each.applied or each.orders for each in made.bins)
        assert made.left == []


@EXAMPLES
@given(found=any_table(), chosen=any_settings, budget=st.integers(0, 400))
def test_a_table_left_alone_comes_to_rest_and_reaches_every_partition(
    found: TableFiles, chosen: OptimizingSettings, budget: int
) -> None:
    """Whatever the budget, with the clocks that each commit moves and time going by."""
    clocks: dict[Partition, PartitionClock] = {}
    reached: set[Partition] = set()
    first = assess(found, chosen, clocks, now_ms=NOW_MS)
    wanted = {each.partition for each in (first.plan.bins if first.plan else ())}
    for minute in range(4 * FILES_MAX):
        now_ms = NOW_MS + minute * 60_000
        result = assess(found, chosen, clocks, now_ms=now_ms)
        made = plan(found, result.evaluated, chosen, room=ProcessBudget(bytes=budget))
        if made is None:
            break
        reached |= {each.partition for each in made.bins}
        found, clocks = predict(found, made), advanced_clocks(clocks, made.done, at_ms=now_ms)
    else:
        raise AssertionError("still planning after four plans for each file")
    assert wanted <= reached
