"""The steps of `headrace run` once its file is read: find a place, submit, watch, sum up."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path

import typer

from headrace.cli import upfile
from headrace.cli.context import Context, urls_of
from headrace.cli.ending import savepoint_line
from headrace.cli.local import Shape
from headrace.cli.outputs import lines_of, outputs_of
from headrace.cli.session import Ended, Order, run_here, run_there, submit
from headrace.cli.summary import ending_line, pipelines_table, reason
from headrace.client import Client, JobView
from headrace.clock import SystemClock
from headrace.config import Settings
from headrace.errors import BadSetting, JobFailed
from headrace.model.job import JobStatus
from headrace.model.jobspec import JobSpec
from headrace.worker.java import find_java

SLOTS_MIN = 2


@dataclass(frozen=True, slots=True)
class Place:
    """Where a job runs: at coordinators that are there already, or on a machine of its own."""

    settings: Settings
    coordinators: str | None  # None: bring one up
    spark_conf: Mapping[str, str]
    named: bool = False  # by --coordinator


def show_spec(cli: Context, spec: JobSpec) -> None:
    if cli.output == "json":
        cli.show_json(spec.model_dump(mode="json", exclude={"secrets"}))
        return
    typer.echo(f"{spec.name}: {spec.env.job_mode}, parallelism {spec.env.parallelism}")
    for pipeline in spec.pipelines:
        plugins = (*pipeline.sources, *pipeline.transforms, *pipeline.sinks)
        typer.echo(f"  pipeline {pipeline.number}: {' → '.join(each.plugin for each in plugins)}")


def find_place(
    cli: Context, *, coordinator: str | None, spark_conf: Mapping[str, str], home: Path | None
) -> Place:
    cli.log_to_stderr()
    settings = cli.settings(home=home)
    there = ",".join(urls_of(coordinator)) if coordinator is not None else None
    if there is None:
        found = upfile.find(settings.home, lambda url: cli.client([url], settings))
        there = found.address if found else None
    if there is not None and spark_conf:
        raise BadSetting(
            f"--conf is for a worker that `headrace run` starts, and {there} has its own; give it "
            "to `headrace worker` or `headrace up` instead"
        )
    return Place(settings, there, spark_conf, named=coordinator is not None)


def detach(cli: Context, order: Order, place: Place) -> None:
    if place.coordinators is None:
        raise BadSetting(
            "--detach leaves the job to a coordinator that stays; start one with `headrace up`, "
            "or name one with --coordinator http://HOST:PORT"
        )
    client = _client(cli, place.coordinators, place)
    view = submit(client, order, lambda text: typer.echo(text, err=True))
    if cli.output == "json":
        cli.show_json(view.model_dump(mode="json"))
    else:
        typer.echo(f"job {view.id} submitted; see it with `headrace job show {view.id}`")


def carry_out(cli: Context, order: Order, place: Place) -> None:
    """Run it and wait; JobFailed when it did not finish."""
    with _running(cli, order, place) as ended:
        if ended.view is not None:
            _show(cli, ended.view, rate=order.restore is None)
    if ended.interrupted is not None:
        raise typer.Exit(ended.interrupted)
    assert ended.view is not None, "a job that nobody interrupted was seen to its end"
    check_end(ended.view, endless=order.is_endless)


def check_end(view: JobView, *, endless: bool) -> None:
    """JobFailed unless it ended well. A savepoint is a good end of a job that has no other."""
    match view.status:
        case JobStatus.FINISHED:
            return
        case JobStatus.SAVEPOINT_DONE if endless:
            return
        case JobStatus.SAVEPOINT_DONE:
            why = "somebody stopped it with a savepoint"
        case JobStatus.FAILED:
            why = reason(view)
        case _:
            why = "somebody canceled it"
    raise JobFailed(f"job {view.id} is {view.status}: {why}")


def _running(cli: Context, order: Order, place: Place) -> AbstractContextManager[Ended]:
    def make_client(urls: str) -> Client:
        return _client(cli, urls, place)

    clock, console = SystemClock(), cli.stderr()
    if place.coordinators is not None:
        return run_there(order, make_client(place.coordinators), console, clock)
    find_java()  # now and in one line, rather than later in the worker's log
    cli.make_home(place.settings)
    slots = max(len(order.spec.pipelines), SLOTS_MIN)
    shape = Shape(home=place.settings.home, slots=slots, conf=place.spark_conf)
    return run_here(order, shape, make_client, console, clock)


def _client(cli: Context, urls: str, place: Place) -> Client:
    if place.coordinators is None:
        return cli.client(urls_of(urls), place.settings)
    given = urls_of(urls) if place.named else []
    return cli.client(
        urls_of(urls),
        place.settings,
        known_from=lambda: upfile.known_from(place.settings.home, given),
    )


def _show(cli: Context, view: JobView, *, rate: bool) -> None:
    outputs = outputs_of(view)
    if cli.output == "json":
        cli.show_json({**view.model_dump(mode="json"), "outputs": outputs})
        return
    cli.stdout().print(pipelines_table(view))
    typer.echo(ending_line(view, rate=rate))
    for line in lines_of(outputs):
        typer.echo(line)
    if view.savepoint:
        typer.echo(savepoint_line(view, view.savepoint))
