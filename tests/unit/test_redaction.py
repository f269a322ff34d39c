"""Lines that others wrote lose the values of what sounds secret, and nothing else."""

from __future__ import annotations

import pytest

from headrace.model.redaction import redacted


@pytest.mark.parametrize(
    ("line", "shown"),
    [
        ("password=hunter2 user=me", "password=****** user=me"),
        ('{"token": "a b", "rows": 7}', '{"token": ******, "rows": 7}'),
        ("spark.hadoop.fs.s3a.secret.key: abc", "spark.hadoop.fs.s3a.secret.key: ******"),
        ("jdbc:postgresql://me:pw@db:5432/x", "jdbc:postgresql://me:******@db:5432/x"),
        ("sent Bearer abcdefgh.ijkl", "sent Bearer ******"),
        ("12:11:26,165 INFO registered  worker=67 term=1",) * 2,
        ("a\0b", "ab"),
    ],
)
def test_values_of_secrets_are_left_out(line: str, shown: str) -> None:
    assert redacted(line) == shown
