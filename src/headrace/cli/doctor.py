"""headrace doctor: is this machine fit to run headrace, and if not, what to do."""

from __future__ import annotations

from typing import Annotated

import typer

from headrace.cli import exits
from headrace.cli.context import Context, HomeOption, OutputOption
from headrace.cli.serve import SecretKeyFileOption

STYLES = {"ok": "green", "warn": "yellow", "fail": "red"}


def doctor(
    ctx: typer.Context,
    store: Annotated[
        str | None,
        typer.Option(
            help="The store to look at.  [default: HEADRACE_STORE, or store.db in --home]",
            metavar="URL",
        ),
    ] = None,
    secret_key_file: SecretKeyFileOption = None,
    fetch: Annotated[bool, typer.Option("--fetch", help="Fetch jars that are missing.")] = False,
    home: HomeOption = None,
    output: OutputOption = None,
) -> None:
    """Check this machine, and say how to mend it.

    Looks at Python, Java, jars, the store, ports and disk; exits 2 when something is wrong.
    """
    cli = Context.of(ctx, output)
    from headrace.cli.checks import examine

    settings = cli.settings(home=home)

    def say(text: str) -> None:
        typer.echo(text, err=True)

    url = store or (settings.store.get_secret_value() if settings.store else None)
    found = examine(settings, store_url=url, fetch=fetch, say=say, secret_key_file=secret_key_file)
    if cli.output == "json":
        cli.show_json([finding.as_dict() for finding in found])
    else:
        console = cli.stdout()
        for finding in found:
            console.print(f"[{STYLES[finding.verdict]}]{finding.verdict:4}[/]", end="  ")
            console.print(f"{finding.subject}: {finding.text}", markup=False, soft_wrap=True)
    if any(finding.verdict == "fail" for finding in found):
        raise typer.Exit(exits.REFUSED)
