"""What a coordinator is told about groups reaches those who decide."""

from __future__ import annotations

from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from headrace.cli.context import takes_options
from headrace.cli.serve_options import GroupSettings
from headrace.config import Settings
from headrace.coordinator.context import CoordinatorSettings
from headrace.errors import BadSetting
from headrace.model.groups import AutoRestart, KeepSetting
from headrace.model.tables.schedule import SchedulingPolicy


def taken(*arguments: str) -> GroupSettings:
    """As a command gets it that was typed so."""
    found: list[GroupSettings] = []
    app = typer.Typer()

    @app.command()
    @takes_options(groups=GroupSettings)
    def command(groups: GroupSettings, *, other: int = 1) -> None:  # pyright: ignore[reportUnusedFunction]
        assert other == 1
        found.append(groups)

    result = CliRunner().invoke(app, list(arguments), catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return found[0]


def options(settings: GroupSettings, home: Path) -> CoordinatorSettings:
    return settings.added_to(CoordinatorSettings("", ""), Settings(home=home), token=None)


@pytest.mark.req("R2")
def test_by_default_nothing_is_started_again(tmp_path: Path) -> None:
    told = options(taken(), tmp_path)

    assert told.groups.auto_restart == AutoRestart(enabled=False, max_retries=5, grace_ms=300_000)
    assert told.groups.keep == KeepSetting(check_interval_ms=300_000, max_attempts=3)
    assert (told.tables.policy, told.tables.break_quota) == (SchedulingPolicy.QUOTA, True)
    assert sorted(told.groups.containers) == ["external", "local"]
    assert told.groups.coordinators == ()


def test_all_that_is_said_reaches_its_place(tmp_path: Path) -> None:
    file = tmp_path / "places.conf"
    file.write_text("containers { here { type = local } }")

    told = options(
        taken(
            *("--containers", str(file), "--coordinators", "http://a:1,http://b:2"),
            *("--auto-restart", "--auto-restart-max-retries", "2"),
            *("--auto-restart-grace-period", "1.5", "--min-parallelism-check-interval", "7"),
            *("--max-keeping-attempts", "4", "--scheduling-policy", "benefit"),
            "--no-break-quota-limit",
        ),
        tmp_path,
    )

    assert told.groups.auto_restart == AutoRestart(enabled=True, max_retries=2, grace_ms=1500)
    assert told.groups.keep == KeepSetting(check_interval_ms=7000, max_attempts=4)
    assert (told.tables.policy, told.tables.break_quota) == (SchedulingPolicy.BENEFIT, False)
    assert "here" in told.groups.containers
    assert told.groups.coordinators == ("http://a:1", "http://b:2")


def test_a_file_of_containers_that_is_not_there_stops_the_start(tmp_path: Path) -> None:
    with pytest.raises(BadSetting, match=r"gone\.conf can not be read"):
        options(taken("--containers", str(tmp_path / "gone.conf")), tmp_path)
