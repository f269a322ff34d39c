"""Tables for the tests of the model: by hand, and any.

Sizes are in bytes as they come, and the target is 128 of them: a fragment has at most 16, an
undersized file at most 96, as with the defaults and MiB.
"""

from __future__ import annotations

from collections.abc import Sequence

from hypothesis import strategies as st

from headrace.model.tables.evaluation import EvaluatedPartition, evaluate
from headrace.model.tables.files import DataFile, DeleteFile, DeleteKind, Partition, TableFiles
from headrace.model.tables.plan import TablePlan, plan
from headrace.model.tables.settings import OptimizingSettings
from headrace.model.tables.status import OptimizingType

HERE = Partition(0, "day=1")
SETTINGS = OptimizingSettings(
    target_size_bytes=128, max_task_size_bytes=128, open_file_cost_bytes=4
)
UNLIMITED = OptimizingSettings(
    target_size_bytes=128,
    max_task_size_bytes=1_000_000,
    open_file_cost_bytes=4,
    full_interval_ms=0,
)
NOW_MS = 1_800_000_000_000

EQUALITY = DeleteFile("eq", DeleteKind.EQUALITY, bytes=2, rows=5)


def position(rows: int, *, size: int = 1, path: str = "pos") -> DeleteFile:
    return DeleteFile(path, DeleteKind.POSITION, bytes=size, rows=rows)


def file(
    size: int,
    path: str = "f",
    *,
    rows: int = 100,
    deletes: tuple[int, ...] = (),
    partition: Partition = HERE,
    in_order: bool = True,
) -> DataFile:
    return DataFile(path, size, rows, partition, in_order, deletes)


def files(*sizes: int, partition: Partition = HERE) -> list[DataFile]:
    return [
        file(size, f"{partition.key}/{n:05}", partition=partition) for n, size in enumerate(sizes)
    ]


def table(data: Sequence[DataFile], deletes: Sequence[DeleteFile] = ()) -> TableFiles:
    return TableFiles(snapshot=7, sequence=7, files=data, deletes=deletes, properties={})


def evaluated(
    found: TableFiles, settings: OptimizingSettings = SETTINGS, *, now_ms: int = NOW_MS
) -> Sequence[EvaluatedPartition]:
    """As if no partition had ever been optimized."""
    return evaluate(found, settings, {}, now_ms=now_ms)


def planned_as(
    kind: OptimizingType, found: TableFiles, settings: OptimizingSettings = SETTINGS
) -> TablePlan | None:
    """A plan in which every partition is due for this type, whatever the rules say."""
    return plan(found, due_as(kind, found, settings), settings)


def due_as(
    kind: OptimizingType, found: TableFiles, settings: OptimizingSettings = SETTINGS
) -> Sequence[EvaluatedPartition]:
    return [
        EvaluatedPartition(e.partition, e.measured, e.rules, kind, e.cost, e.waiting_since_ms)
        for e in evaluated(found, settings)
    ]


PARTITIONS = (HERE, Partition(1, "day=1"), Partition(0, "day=2"))
DELETES_MAX, FILES_MAX = 5, 24

any_delete = st.builds(
    DeleteFile,
    path=st.just("d"),
    kind=st.sampled_from(DeleteKind),
    bytes=st.integers(1, 200),
    rows=st.integers(1, 60),
)


@st.composite
def any_table(draw: st.DrawFn) -> TableFiles:
    deletes = draw(st.lists(any_delete, max_size=DELETES_MAX))
    applying = st.sets(st.sampled_from(range(len(deletes)))) if deletes else st.just(set[int]())
    # Most files of a table that needs optimizing have no deletes and are small.
    some = st.one_of(st.just(set[int]()), applying)
    sizes = st.one_of(st.integers(1, 20), st.integers(1, 300))
    shapes = st.tuples(sizes, st.integers(1, 50), some, st.sampled_from(PARTITIONS), st.booleans())
    drawn = draw(st.lists(shapes, max_size=FILES_MAX))
    return table(
        [
            DataFile(f"f{n:03}", size, rows, where, in_order, tuple(sorted(chosen)))
            for n, (size, rows, chosen, where, in_order) in enumerate(drawn)
        ],
        deletes,
    )


any_type = st.sampled_from(OptimizingType)
any_settings = st.builds(
    OptimizingSettings,
    target_size_bytes=st.just(128),
    max_task_size_bytes=st.sampled_from([1, 128, 400, 1_000_000]),
    max_file_count=st.sampled_from([2, 3, 10_000]),
    fragment_ratio=st.sampled_from([1, 2, 8, 200]),
    min_target_size_ratio=st.sampled_from([0.1, 0.5, 0.75, 1.0]),
    duplicate_ratio=st.sampled_from([0.0, 0.1, 1.0]),
    full_interval_ms=st.sampled_from([-1, 0]),
    full_rewrite_all_files=st.booleans(),
    open_file_cost_bytes=st.sampled_from([0, 4]),
)
