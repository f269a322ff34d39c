"""headrace run: one job, from its file to its summary.

The file is read before anything else is loaded or started: what is wrong with it is said at once.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from headrace.cli.context import Context, CoordinatorOption, HomeOption, OutputOption, pairs_of
from headrace.errors import BadSetting

if TYPE_CHECKING:
    from headrace.model.jobspec import JobSpec


JobIdOption = Annotated[
    str | None, typer.Option(metavar="JOB", help="Id of the job.  [default: a new one]")
]


def run(
    ctx: typer.Context,
    job_file: Annotated[Path, typer.Argument(metavar="JOB_FILE", help="The job, in HOCON.")],
    variables: Annotated[
        list[str] | None,
        typer.Option("--variable", "-i", metavar="NAME=VALUE", help="For ${NAME} in the file."),
    ] = None,
    name: Annotated[str | None, typer.Option(help="Name of the job, over the file's.")] = None,
    job_id: JobIdOption = None,
    coordinator: CoordinatorOption = None,
    conf: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME=VALUE", help="A Spark setting of the worker started for it."),
    ] = None,
    restore: Annotated[
        str | None,
        typer.Option(metavar="JOB", help="Go on with a stopped or failed job, from its savepoint."),
    ] = None,
    check: Annotated[bool, typer.Option("--check", help="Only read the file.")] = False,
    detach: Annotated[bool, typer.Option("--detach", help="Submit, and don't wait.")] = False,
    home: HomeOption = None,
    output: OutputOption = None,
) -> None:
    """Run a job, here or where headrace is running."""
    cli = Context.of(ctx, output)
    if job_id is not None and restore is not None:
        raise BadSetting("a restored job keeps its id; leave --job-id out")
    spec = _read(job_file, variables=pairs_of(variables or [], "-i"), name=name)
    from headrace.cli import job_run

    if check:
        job_run.show_spec(cli, spec)
        return
    place = job_run.find_place(
        cli, coordinator=coordinator, spark_conf=pairs_of(conf or [], "--conf"), home=home
    )
    carry_out = job_run.detach if detach else job_run.carry_out
    carry_out(cli, job_run.Order(spec, restore, job_id), place)


def _read(path: Path, *, variables: Mapping[str, str], name: str | None) -> JobSpec:
    from headrace.config import variables as environment
    from headrace.jobfile.reader import read_job

    def note(text: str) -> None:
        typer.echo(f"note: {text}", err=True)

    spec = read_job(path, variables=variables, environment=environment(), note=note)
    return spec.model_copy(update={"name": name}) if name else spec
