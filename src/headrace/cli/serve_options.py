"""Options of `headrace coordinator`: timeouts, retention, and how groups get and share workers."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from headrace.cli.context import urls_of
from headrace.model.jobs.status import ScheduleStrategy
from headrace.model.tables.schedule import SchedulingPolicy

if TYPE_CHECKING:
    from headrace.config import Settings
    from headrace.coordinator.context import CoordinatorSettings


LEASE_TTL_S = 3.0
HEARTBEAT_TIMEOUT_S = 60.0
STALL_TIMEOUT_S = 600.0
STATE_CLEANUP_DELAY_MS = 60_000
HISTORY_EXPIRE_MIN = 10_080
JOB_LOG_EXPIRE_MIN = 10_080
SAVEPOINT_EXPIRE_H = 168
COMMIT_DEADLINE_S = 3600.0
REFRESH_TABLES_S = 60.0
REFRESH_CATALOGS_S = 180.0

MINUTE_MS = 60_000
HOUR_MS = 3_600_000
YEAR_H = 8784
DAY_S = 86_400

Ttl = Annotated[
    float, typer.Option(help="Seconds until a silent leader is replaced.", min=0.5, max=600)
]
HeartbeatTimeout = Annotated[
    float, typer.Option(help="Seconds until a silent worker is given up.", min=1, max=86_400)
]
StallTimeout = Annotated[
    float,
    typer.Option(
        "--execution-stall-timeout",
        help="Seconds until an execution that stands still is given up.",
        min=10,
        max=86_400,
    ),
]
StateCleanupDelay = Annotated[
    int,
    typer.Option(
        help="Milliseconds until the state of an ended job goes; 0: at once.",
        min=0,
        max=366 * 24 * HOUR_MS,
    ),
]
HistoryExpire = Annotated[
    int,
    typer.Option(help="Minutes that history keeps an ended job.", min=1, max=60 * YEAR_H),
]
JobLogExpire = Annotated[
    int,
    typer.Option(help="Minutes that a log line of a job is kept.", min=1, max=60 * YEAR_H),
]
SavepointExpire = Annotated[
    int,
    typer.Option(
        help="Hours that savepoints, and the last checkpoints of failed jobs, are kept.",
        min=1,
        max=10 * YEAR_H,
    ),
]
CommitDeadline = Annotated[
    float,
    typer.Option(
        help="Seconds in which a commit must be done; targets keep its mark twice as long.",
        min=5,
        max=7 * 86_400,
    ),
]
RefreshTables = Annotated[
    float,
    typer.Option(
        "--refresh-tables-interval",
        help="Seconds between two looks at a lake table.",
        min=1,
        max=86_400,
    ),
]
RefreshCatalogs = Annotated[
    float,
    typer.Option(
        "--refresh-catalogs-interval",
        help="Seconds between two looks into a catalog for tables that came or went.",
        min=1,
        max=86_400,
    ),
]
Strategy = Annotated[
    ScheduleStrategy,
    typer.Option(case_sensitive=False, help="What a job does that can't have all its slots now."),
]


def coordinator_options(
    store_url: str,
    *,
    ttl_s: float,
    heartbeat_timeout_s: float,
    stall_timeout_s: float,
    schedule: ScheduleStrategy,
    refresh_tables_s: float,
    refresh_catalogs_s: float,
    **kept: int,
) -> CoordinatorSettings:
    """`kept`: the fields of Retention. The address is filled in when the coordinator serves."""
    from headrace.coordinator.context import CoordinatorSettings, TableOptions
    from headrace.model.jobs.epoch import Retention

    return CoordinatorSettings(
        store_url,
        address="",
        ttl_s=ttl_s,
        heartbeat_timeout_s=heartbeat_timeout_s,
        stall_timeout_s=stall_timeout_s,
        retention=Retention(**kept),
        schedule=schedule,
        tables=TableOptions(
            refresh_ms=round(refresh_tables_s * 1000), discover_ms=round(refresh_catalogs_s * 1000)
        ),
    )


@dataclass(frozen=True, slots=True)
class GroupSettings:
    """Options about containers, restarts, the floors of groups, and turns of tables."""

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

    def added_to(
        self, options: CoordinatorSettings, settings: Settings, *, token: str | None
    ) -> CoordinatorSettings:
        """These options, added to the others. `token`: what workers have to show."""
        from headrace.containers.configured import configured
        from headrace.coordinator.context import GroupOptions
        from headrace.model.groups import AutoRestart, KeepSetting

        own_file = {"containers": self.containers} if self.containers is not None else {}
        known_containers = configured(settings.model_copy(update=own_file), token=token)
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
            containers={name: known_containers.get(name) for name in known_containers.names},
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
