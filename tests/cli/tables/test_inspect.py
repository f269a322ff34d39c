"""headrace inspect refuses what can't be inspected before it starts a JVM."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.machine import headrace, one_line_of


@pytest.mark.processes
@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (("lake",), "--type jdbc|rest|hive|glue|hadoop"),
        (("lake", "--type", "rest", "--property", "uri"), "--property takes NAME=VALUE"),
        (("--filter", "sales["), "--filter takes a regular expression"),
        (("--html", "no/such/page.html"), "there is no folder"),
        (("--html", "."), "is a folder; name a file in it"),
        ((), "there is no embedded warehouse at"),
        (("--property", "uri=x"), "the embedded catalog takes no --property"),
        (("--type", "embedded", "--warehouse", "s3://bucket/w"), "no embedded warehouse at s3://"),
    ],
)
def test_what_can_not_be_inspected_is_refused_with_the_way_out(
    arguments: tuple[str, ...], expected: str, tmp_path: Path
) -> None:
    done = headrace("inspect", *arguments, cwd=tmp_path)

    assert done.returncode == 2
    assert expected in one_line_of(done)
    assert list(tmp_path.iterdir()) == [], "looking makes nothing"
