"""Which bins one rewrite task takes: neighbours, until there is enough for a task to do.

A bin of its own for each task would pay for a Spark job each time, and a table of many partitions
has hundreds of small bins; all in one task would leave threads without work, and lose everything
when one bin fails. So small bins share a task, up to what one task may read, and a bin of that
size has a task for itself.
"""

from __future__ import annotations

from collections.abc import Sequence

from headrace.model.tables.bins import Bin


def group(bins: Sequence[Bin], *, task_bytes: int, bins_max: int) -> Sequence[Sequence[Bin]]:
    """The bins in their order, cut into tasks. Bins of a partition are neighbours and stay so.

    A task reads at most `task_bytes`, unless it is one bin that reads more.
    """
    tasks: list[list[Bin]] = []
    room = 0
    for each in bins:
        if not tasks or each.read_bytes > room or len(tasks[-1]) >= bins_max:
            tasks.append([])
            room = task_bytes
        tasks[-1].append(each)
        room -= each.read_bytes
    return tasks
