"""Options of a coordinator that say how long: until somebody is given up, until something goes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from headrace.model.schedule import ScheduleStrategy

if TYPE_CHECKING:
    from headrace.coordinator.options import Options

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
) -> Options:
    """`kept`: the fields of Retention."""
    from headrace.coordinator.options import Options, TableOptions
    from headrace.model.cleanup import Retention

    return Options(
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
