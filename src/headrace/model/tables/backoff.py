"""What fails is tried again later and later, and what fails for good is left out and named.

The peer plans a table with a poison file again every minute, for ever, and loses the whole process
each time. Here a failing table waits twice as long after each failure in a row, up to a limit, and
a file that took part in too many failures is no longer planned.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

FIRST_WAIT_MS = 60_000  # after the first failure: Amoro's min-plan-interval
WAIT_MAX_MS = 6 * 3_600_000  # a table that is mended is looked at within this
FILE_FAILURES_MAX = 3  # so often may a file be in what failed


def wait_ms(failures: int, *, first_ms: int = FIRST_WAIT_MS, most_ms: int = WAIT_MAX_MS) -> int:
    """How long a table rests after this many failures in a row; 0 after none."""
    if failures <= 0:
        return 0
    doublings = failures - 1
    # Beyond so many doublings the limit holds anyway, and the number would only grow.
    if first_ms.bit_length() + doublings > most_ms.bit_length() + 1:
        return most_ms
    return min(most_ms, first_ms << doublings)


def due_at_ms(failed_at_ms: int, failures: int) -> int:
    return failed_at_ms + wait_ms(failures)


def blamed(
    failures: Mapping[str, int], rewritten: Collection[str], *, named: str | None = None
) -> Mapping[str, int]:
    """The failures of files after a rewrite of `rewritten` failed.

    `named` is the file that the error speaks of; without one, any of them may be the cause and
    each is counted.
    """
    guilty = {named} if named is not None and named in rewritten else set(rewritten)
    return {**failures, **{path: failures.get(path, 0) + 1 for path in guilty}}


def left_out(failures: Mapping[str, int], *, most: int = FILE_FAILURES_MAX) -> frozenset[str]:
    """The files that are not planned any more, to be named to whoever looks at the table."""
    return frozenset(path for path, count in failures.items() if count >= most)
