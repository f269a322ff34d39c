"""Options of a coordinator that say how groups come by their workers, and share them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from headrace.cli.context import urls_of
from headrace.model.tables.schedule import SchedulingPolicy

if TYPE_CHECKING:
    from headrace.config import Settings
    from headrace.coordinator.options import Options

DAY_S = 86_400


@dataclass(frozen=True, slots=True)
class GroupSettings:
    task_ack_timeout: Annotated[
        float,
        typer.Option(
            help="Seconds until a task goes to others that a silent worker never answered for.",
            min=1,
            max=DAY_S,
        ),
    ] = 30.0
    task_execute_timeout: Annotated[
        float,
        typer.Option(help="Seconds that a task of a table may take.", min=10, max=7 * DAY_S),
    ] = 3600.0
    containers: Annotated[
        Path | None,
        typer.Option(
            help="File of containers.  [default: HEADRACE_CONTAINERS, or containers.conf in "
            "HEADRACE_HOME]"
        ),
    ] = None
    coordinators: Annotated[
        str | None,
        typer.Option(
            metavar="URL[,URL]",
            help="All coordinators of the store, for workers it starts.  [default: itself]",
        ),
    ] = None
    auto_restart: Annotated[
        bool,
        typer.Option("--auto-restart/--no-auto-restart", help="Start workers again that died."),
    ] = False
    auto_restart_max_retries: Annotated[
        int,
        typer.Option(help="Restarts in a row before a resource is given up.", min=0, max=1000),
    ] = 5
    auto_restart_grace_period: Annotated[
        float,
        typer.Option(
            help="Seconds until a resource without a worker is started again.", min=1, max=DAY_S
        ),
    ] = 300.0
    min_parallelism_check_interval: Annotated[
        float,
        typer.Option(
            help="Seconds between two requests for the floor of a group, growing with each.",
            min=1,
            max=DAY_S,
        ),
    ] = 300.0
    max_keeping_attempts: Annotated[
        int,
        typer.Option(help="Requests before the floor of a group is given up.", min=1, max=1000),
    ] = 3
    scheduling_policy: Annotated[
        SchedulingPolicy,
        typer.Option(
            case_sensitive=False, help="How tables take turns, in groups that don't say it."
        ),
    ] = SchedulingPolicy.QUOTA
    break_quota_limit: Annotated[
        bool,
        typer.Option(
            "--break-quota-limit/--no-break-quota-limit",
            help="Let tables use slots beyond their quota that nobody else can use.",
        ),
    ] = True

    def added_to(self, options: Options, settings: Settings, *, token: str | None) -> Options:
        """`token`: what workers have to show."""
        from headrace.containers.configured import configured
        from headrace.coordinator.options import GroupOptions
        from headrace.model.groups.capacity import KeepSetting
        from headrace.model.groups.orphans import AutoRestart

        chosen = {"containers": self.containers} if self.containers is not None else {}
        found = configured(settings.model_copy(update=chosen), token=token)
        groups = GroupOptions(
            auto_restart=AutoRestart(
                enabled=self.auto_restart,
                max_retries=self.auto_restart_max_retries,
                grace_ms=round(self.auto_restart_grace_period * 1000),
            ),
            keep=KeepSetting(
                check_interval_ms=round(self.min_parallelism_check_interval * 1000),
                max_attempts=self.max_keeping_attempts,
            ),
            containers={name: found.get(name) for name in found.names},
            coordinators=tuple(urls_of(self.coordinators or "")),
        )
        tables = replace(
            options.tables, policy=self.scheduling_policy, break_quota=self.break_quota_limit
        )
        return replace(
            options,
            groups=groups,
            tables=tables,
            ack_timeout_s=self.task_ack_timeout,
            execute_timeout_s=self.task_execute_timeout,
        )
