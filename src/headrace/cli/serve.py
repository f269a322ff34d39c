"""headrace coordinator and headrace worker: the two processes that serve."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated
from urllib.parse import urlsplit

import typer

from headrace.cli import serve_options as limits
from headrace.cli.context import (
    DEFAULT_GROUP,
    AllowJarsOption,
    Context,
    HomeOption,
    allowed_jars,
    pairs_of,
    takes_options,
    urls_of,
)
from headrace.cli.serve_options import GroupSettings
from headrace.cli.store import SecretKeyFileOption, secret_keys, store_url
from headrace.errors import BadSetting
from headrace.model.groups import THREADS_MAX
from headrace.model.ids import check_name
from headrace.model.jobs.status import ScheduleStrategy

if TYPE_CHECKING:
    from headrace.config import Settings

TokenFileOption = Annotated[
    Path | None,
    typer.Option("--token-file", help="File that holds the token.  [default: HEADRACE_TOKEN]"),
]
StoreOption = Annotated[
    str | None,
    typer.Option(help="sqlite:///FILE or postgresql://…  [default: HEADRACE_STORE]", metavar="URL"),
]
AdvertiseOption = Annotated[
    str | None,
    typer.Option(help="Address others reach it under, when not --bind.", metavar="URL"),
]
BindOption = Annotated[
    str, typer.Option(help="Where to listen; port 0 takes a free one.", metavar="HOST:PORT")
]
AddressFileOption = Annotated[
    Path | None, typer.Option(help="File to write its URL to once it answers.")
]
ServedOption = Annotated[
    str | None,
    typer.Option("--coordinator", help="Coordinators to serve; needed.", metavar="URL[,URL]"),
]
WarehouseOption = Annotated[
    str | None,
    typer.Option(help="The embedded warehouse.  [default: warehouse in --home]", metavar="DIR"),
]
ConfOption = Annotated[
    list[str] | None, typer.Option(help="A Spark setting; repeatable.", metavar="NAME=VALUE")
]
ResourceOption = Annotated[
    str | None,
    typer.Option("--resource-id", help="The resource it was started for.", metavar="ID"),
]
LaunchOption = Annotated[
    int | None,
    typer.Option(help="Which start of that resource it is.", metavar="NUMBER", min=1),
]
LaunchDirOption = Annotated[
    Path | None,
    typer.Option(help="Folder in which it claims the launch, on a machine of its container."),
]
WithParentOption = Annotated[bool, typer.Option("--with-parent", hidden=True)]


@takes_options(groups=GroupSettings)
def coordinator(
    ctx: typer.Context,
    groups: GroupSettings,
    store: StoreOption = None,
    bind: BindOption = "127.0.0.1:7300",
    token_file: TokenFileOption = None,
    secret_key_file: SecretKeyFileOption = None,
    ttl: limits.Ttl = limits.LEASE_TTL_S,
    heartbeat_timeout: limits.HeartbeatTimeout = limits.HEARTBEAT_TIMEOUT_S,
    stall_timeout: limits.StallTimeout = limits.STALL_TIMEOUT_S,
    state_cleanup_delay_ms: limits.StateCleanupDelay = limits.STATE_CLEANUP_DELAY_MS,
    history_job_expire_minutes: limits.HistoryExpire = limits.HISTORY_EXPIRE_MIN,
    job_log_expire_minutes: limits.JobLogExpire = limits.JOB_LOG_EXPIRE_MIN,
    savepoint_expire_hours: limits.SavepointExpire = limits.SAVEPOINT_EXPIRE_H,
    commit_deadline: limits.CommitDeadline = limits.COMMIT_DEADLINE_S,
    job_schedule_strategy: limits.Strategy = ScheduleStrategy.WAIT,
    refresh_tables: limits.RefreshTables = limits.REFRESH_TABLES_S,
    refresh_catalogs: limits.RefreshCatalogs = limits.REFRESH_CATALOGS_S,
    advertise: AdvertiseOption = None,
    address_file: AddressFileOption = None,
    with_parent: WithParentOption = False,
) -> None:
    """Decide and remember. One leads, all answer."""
    settings = _set_up(Context.of(ctx), home=None, with_parent=with_parent)
    from headrace.api.server import serve_coordinator

    options = limits.coordinator_options(
        _store(store, settings),
        ttl_s=ttl,
        heartbeat_timeout_s=heartbeat_timeout,
        stall_timeout_s=stall_timeout,
        schedule=job_schedule_strategy,
        refresh_tables_s=refresh_tables,
        refresh_catalogs_s=refresh_catalogs,
        state_cleanup_delay_ms=state_cleanup_delay_ms,
        history_expire_ms=history_job_expire_minutes * limits.MINUTE_MS,
        job_log_expire_ms=job_log_expire_minutes * limits.MINUTE_MS,
        savepoint_expire_ms=savepoint_expire_hours * limits.HOUR_MS,
        commit_deadline_ms=round(commit_deadline * 1000),
    )
    token, address = _token(settings, token_file), _checked_address(advertise)
    options = groups.added_to(options, settings, token=token)
    options = replace(options, secret_keys=secret_keys(secret_key_file, settings))
    serve_coordinator(options, bind, token, advertise=address, address_file=address_file)


def _store(store: str | None, settings: Settings) -> str:
    url = store_url(store, settings)
    if url is None:
        raise BadSetting("no store was named; give --store URL, or set HEADRACE_STORE")
    return url


def worker(
    ctx: typer.Context,
    coordinators: ServedOption = None,
    group: Annotated[str, typer.Option(help="Whose tasks it takes.")] = DEFAULT_GROUP,
    slots: Annotated[int, typer.Option(help="Pipelines at a time.", min=1, max=THREADS_MAX)] = 2,
    spark_master: Annotated[str, typer.Option(help="As spark-submit takes it.")] = "local[*]",
    conf: ConfOption = None,
    allow_jars: AllowJarsOption = None,
    home: HomeOption = None,
    warehouse: WarehouseOption = None,
    token_file: TokenFileOption = None,
    resource_id: ResourceOption = None,
    launch: LaunchOption = None,
    launch_dir: LaunchDirOption = None,
    with_parent: WithParentOption = False,
) -> None:
    """Work, with one warm Spark session; or, with a word behind it, look after workers."""
    if ctx.invoked_subcommand is not None:
        _check_no_options(ctx)
        return
    check_name("--group", group)
    urls, cli = _checked_urls(coordinators), Context.of(ctx)
    settings = _set_up(cli, home=home, with_parent=with_parent)
    allowed = allowed_jars(allow_jars, settings)
    from headrace.config import drop_coordinator_variables
    from headrace.containers.launch_claims import claim_launch
    from headrace.spark.installation import find_spark

    drop_coordinator_variables()
    claimed_launch = claim_launch(
        resource_id, launch, launch_dir
    )  # before anything that takes long
    find_spark()
    cli.make_home(settings)
    from headrace.worker.service import serve_worker

    serve_worker(
        coordinators=urls,
        group=group,
        slots=slots,
        spark_master=spark_master,
        conf=pairs_of(conf or [], "--conf"),
        token=_token(settings, token_file),
        settings=settings,
        allow_jars=allowed,
        warehouse=warehouse_uri(warehouse or str(settings.home / "warehouse")),
        launch=claimed_launch,
    )


def _check_no_options(ctx: typer.Context) -> None:
    """Options before `list` and its like belong to a worker that is started: refuse them."""
    typed = [
        name
        for name in ctx.params
        if (source := ctx.get_parameter_source(name)) and source.name == "COMMANDLINE"
    ]
    if typed:
        raise BadSetting(
            f"options of `headrace worker` start a worker, and so can't stand before "
            f"{ctx.invoked_subcommand!r}; write them behind it"
        )


def _set_up(cli: Context, *, home: Path | None, with_parent: bool) -> Settings:
    from headrace.cli.exits import end_with_parent
    from headrace.logs import set_up
    from headrace.seams import arm_from

    settings = cli.settings(home=home)
    set_up(level="DEBUG" if cli.verbose else settings.log_level, fmt=settings.log_format)
    try:
        arm_from(settings.seams)
    except ValueError as error:
        raise BadSetting(f"environment variable HEADRACE_SEAMS can not be used: {error}") from error
    if with_parent:
        end_with_parent()
    return settings


def warehouse_uri(text: str) -> str:
    """A folder as a file URI; a URI stays as it is."""
    return text if "://" in text else Path(text).absolute().as_uri()


def _checked_urls(text: str | None) -> Sequence[str]:
    if text is None:
        raise BadSetting(
            "no coordinator was named that the worker serves; give --coordinator http://HOST:PORT. "
            "`headrace worker list` shows workers that run"
        )
    urls = urls_of(text)
    wrong = [url for url in urls if not url.startswith(("http://", "https://"))]
    if wrong or not urls:
        raise BadSetting(
            f"--coordinator takes URLs such as http://127.0.0.1:7300, and not {text!r}"
        )
    return urls


def _checked_address(advertise: str | None) -> str | None:
    if advertise is None:
        return None
    try:
        parts = urlsplit(advertise)
        usable = parts.scheme in {"http", "https"} and parts.hostname and parts.port != 0
    except ValueError:  # a port that is not a number, or half of an IPv6 address
        usable = False
    if not usable:
        raise BadSetting(
            f"--advertise takes a URL such as http://a:7070, and {advertise!r} is not of that form"
        )
    return advertise.rstrip("/")


def _token(settings: Settings, token_file: Path | None) -> str | None:
    if token_file is None:
        return settings.token.get_secret_value() if settings.token else None
    from headrace.config import check_token

    try:
        token = token_file.read_text().strip()
        check_token(token)
    except OSError as error:
        raise BadSetting(
            f"token file {token_file} can not be read: {error.strerror or error}"
        ) from error
    except UnicodeDecodeError as error:
        raise BadSetting(f"token file {token_file} can not be used: it is no text") from error
    except ValueError as error:
        raise BadSetting(f"token file {token_file} can not be used: {error}") from error
    return token


def command(*arguments: str) -> list[str]:
    """The command line of a child process: this very program, with this very Python."""
    return [sys.executable, "-m", "headrace", *arguments]
