"""headrace import FOLDER: which job files of others would run here, and what keeps the rest.

It reads the files and nothing else: no coordinator, no Spark, and nothing is run. The exit code is
0 when all would run, and 1 when some would not.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from headrace.cli.context import Context, OutputOption, pairs_of
from headrace.cli.exits import SOME_FAILED

if TYPE_CHECKING:
    from rich.table import Table

    from headrace.jobfile.folder_survey import FolderSurvey

# Reasons of one file; all are in the JSON, and `headrace run --check` shows them.
OBSTACLES_SHOWN = 3
DIFFERENCES_SHOWN = 1
REASON_CHARACTERS_MAX = 160


def import_jobs(
    ctx: typer.Context,
    folder: Annotated[
        Path, typer.Argument(metavar="FOLDER", help="With job files, or one of them.")
    ],
    variables: Annotated[
        list[str] | None,
        typer.Option("--variable", "-i", metavar="NAME=VALUE", help="For ${NAME} in the files."),
    ] = None,
    strict: Annotated[
        bool, typer.Option("--strict", help="Refuse options that nothing knows.")
    ] = False,
    output: OutputOption = None,
) -> None:
    """Say which job files of SeaTunnel would run here; run none."""
    cli = Context.of(ctx, output)
    from headrace.config import variables as environment
    from headrace.jobfile.folder_survey import survey_folder

    survey = survey_folder(
        folder,
        variables=pairs_of(variables or [], "-i"),
        environment=environment(),
        strict=strict,
    )
    if cli.output == "json":
        cli.show_json(survey.as_json())
    else:
        cli.stdout().print(_table(survey))
        for line in _summary(survey):
            typer.echo(line)
    if not survey.all_would_run:
        raise typer.Exit(SOME_FAILED)


def _table(survey: FolderSurvey) -> Table:
    from rich.markup import escape

    from headrace.cli.jobs.text import table_of
    from headrace.jobfile.folder_survey import why
    from headrace.model.text import shortened

    table = table_of("job file", "here it", "why")
    for each in survey.files:
        reasons = [shortened(reason, REASON_CHARACTERS_MAX) for reason in why(each)]
        shown = reasons[: DIFFERENCES_SHOWN if each.verdict.would_run else OBSTACLES_SHOWN]
        more = len(reasons) - len(shown) + (each.reading.more if each.reading else 0)
        lines = [*shown, *([f"and {more} more"] if more else ())]
        table.add_row(escape(each.path), each.verdict.value, escape("\n".join(lines)))
    return table


def _summary(survey: FolderSurvey) -> list[str]:
    from headrace.model.text import count

    runs = sum(each.verdict.would_run for each in survey.files)
    parts = [f"{verdict.value}: {number}" for verdict, number in survey.counts.items() if number]
    files = count(len(survey.files), "job file")
    lines = [f"{runs} of {files} would run here ({'; '.join(parts)})"]
    if survey.missing:
        listed = ", ".join(f"{what} ({count(n, 'file')})" for what, n in survey.missing)
        lines.append(f"not built: {listed}")
    if survey.others:
        lines.append(f"{count(survey.others, 'other file')} left out: no job")
    return lines
