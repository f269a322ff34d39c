"""A chain of Java exceptions as one line, and whether the same would happen again."""

from __future__ import annotations

import errno
import os
from collections.abc import Sequence

import pytest

from headrace.connectors.files.options import FolderOptions
from headrace.connectors.files.places import Target
from headrace.errors import Refused, Unavailable
from headrace.spark.errors import Cause, chain_text, is_permanent, is_permanent_chain

JOB = Cause("org.apache.spark.SparkException", "Job aborted due to stage failure: Task 0 …")
WRITING = Cause(
    "org.apache.spark.SparkException",
    "[TASK_WRITE_FAILED] Task failed while writing rows to file:/a/b.csv. SQLSTATE: 58030",
    state="58030",
    condition="TASK_WRITE_FAILED",
)
READING = Cause(
    "org.apache.spark.SparkException",
    "[FAILED_READ_FILE.NO_HINT] Encountered error while reading file file:///a.parquet.",
    state="KD001",
    condition="FAILED_READ_FILE.NO_HINT",
    parameters={"path": "file:///a.parquet"},
)
FULL = Cause("java.io.IOException", "No space left on device")
NO_PARQUET = Cause("java.lang.RuntimeException", "file:/a.parquet is not a Parquet file")
DENIED = Cause("org.apache.hadoop.security.AccessControlException", "Permission denied: user=me")


@pytest.mark.parametrize(
    ("state", "permanent"),
    [
        ("3D000", True),  # no such database
        ("3F000", True),  # no such schema
        ("28P01", True),  # wrong password
        ("42501", True),  # no right to
        ("42P01", True),  # no such table
        ("22001", True),  # too long
        ("23505", True),  # there already
        ("P0001", True),  # raised on purpose
        ("08006", False),  # the connection
        ("53100", False),  # disk full
        ("57P03", False),  # starting up
        ("40001", False),  # rolled back
        ("25006", False),  # read-only, as a standby is before it takes over
        (None, False),
    ],
)
def test_the_class_of_its_sqlstate_says_whether_an_error_stays(
    state: str | None, *, permanent: bool
) -> None:
    assert is_permanent(state) is permanent


@pytest.mark.parametrize(
    ("chain", "words", "permanent"),
    [
        (
            [JOB, WRITING, FULL],
            "No space left on device (Task failed while writing rows to file:/a/b.csv)",
            False,
        ),
        ([JOB, READING, FULL], "file:///a.parquet: No space left on device", False),
        (
            [READING, NO_PARQUET],
            "file:///a.parquet: file:/a.parquet is not a Parquet file",
            True,
        ),
        ([JOB, DENIED], "Permission denied: user=me", True),
        ([NO_PARQUET], "file:/a.parquet is not a Parquet file", False),
        ([Cause("java.lang.NullPointerException", "")], "NullPointerException", False),
    ],
)
def test_the_innermost_cause_is_told_with_the_file(
    chain: Sequence[Cause], words: str, *, permanent: bool
) -> None:
    assert chain_text(chain) == words
    assert is_permanent_chain(chain) is permanent


@pytest.mark.parametrize(
    ("number", "kind"),
    [
        (errno.EROFS, Refused),
        (errno.EACCES, Refused),
        (errno.ENOTDIR, Refused),
        (errno.ENOSPC, Unavailable),
        (errno.EIO, Unavailable),
    ],
)
def test_a_folder_that_can_not_be_written_is_refused_and_a_full_disk_is_waited_for(
    number: int, kind: type[Exception]
) -> None:
    target = Target.of("sink LocalFile-1", FolderOptions("/data/out", None, None))
    said = rf"sink LocalFile-1: file:/data/out: {os.strerror(number)}"
    with pytest.raises(kind, match=said), target.translating_local_errors():
        raise OSError(number, os.strerror(number))
