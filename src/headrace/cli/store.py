"""Which store a command means and the key of its secrets; headrace store …: change that key."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from headrace.cli.context import Context, HomeOption, OutputOption
from headrace.errors import BadSetting

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sqlalchemy import URL, Engine

    from headrace.config import Settings
    from headrace.store.core.keyring import KeySource
    from headrace.store.key_change import Forgotten, Owner

app = typer.Typer(help="The key of a store's secrets.", no_args_is_help=True)

StoreOption = Annotated[
    str | None,
    typer.Option(
        help="The store.  [default: HEADRACE_STORE, or store.db in --home]", metavar="URL"
    ),
]
SecretKeyFileOption = Annotated[
    Path | None,
    typer.Option(
        help="File that holds the key of the store's secrets.  [default: HEADRACE_SECRET_KEY]"
    ),
]
YesOption = Annotated[bool, typer.Option("--yes", help="Do it, and don't only list.")]


@app.command("change-key")
def change(
    ctx: typer.Context,
    store: StoreOption = None,
    secret_key_file: SecretKeyFileOption = None,
    home: HomeOption = None,
    output: OutputOption = None,
) -> None:
    """Encrypt all secrets in a store under another key.

    A SQLite store is given a new one, in its key file. Of the keys of a PostgreSQL store, the first
    is the new one, and the one that the store is under must follow it.
    """
    cli = Context.of(ctx, output)
    engine = _open(cli, store, secret_key_file, home)
    from headrace.store.key_change import change_key

    try:
        key_id, count = change_key(engine)
    finally:
        engine.dispose()
    if cli.output == "json":
        cli.show_json({"key": key_id, "encrypted": count})
        return
    typer.echo(f"the store is under key {key_id} now; secrets encrypted anew: {count}")


@app.command("forget-secrets")
def forget(
    ctx: typer.Context,
    store: StoreOption = None,
    secret_key_file: SecretKeyFileOption = None,
    yes: YesOption = False,
    home: HomeOption = None,
    output: OutputOption = None,
) -> None:
    """List whose secrets are in a store whose key is lost; with --yes, delete them.

    The store is then under the key that is given; a SQLite store whose key file is gone makes a
    new one. Jobs that ran are to be submitted again, and catalogs given their secret properties.
    """
    cli = Context.of(ctx, output)
    engine = _open(cli, store, secret_key_file, home)
    from headrace.store import key_change

    done: Forgotten | None = None
    try:
        if yes:
            done = key_change.forget_secrets(engine)
        owners = done.owners if done is not None else key_change.owners_of_secrets(engine)
    finally:
        engine.dispose()
    if cli.output == "json":
        cli.show_json(
            {
                "deleted": yes,
                "secrets": [
                    {"kind": each.kind, "name": each.name, "secrets": list(each.secrets)}
                    for each in owners
                ],
            }
        )
        return
    for each in owners:
        typer.echo(f"{each.kind} {each.name}: {', '.join(each.secrets)}")
    typer.echo(_summary(owners, done))


def _summary(owners: Sequence[Owner], done: Forgotten | None) -> str:
    if done is None:
        return f"{len(owners)} would lose their secrets; nothing was changed, --yes deletes them"
    key = f"is under key {done.key_id} {'now' if done.is_new else 'as before'}"
    if not owners:
        return f"there were no secrets; the store {key}"
    return (
        f"these are deleted, and the store {key}. Submit the jobs again; give catalogs "
        "theirs with `headrace catalog set NAME --property-file FILE`; marks that cleanups would "
        "have taken away at databases stay there"
    )


def _open(cli: Context, store: str | None, key_file: Path | None, home: Path | None) -> Engine:
    cli.log_to_stderr()
    settings = cli.settings(home=home)
    from headrace.store.core.engine import open_store

    url = store_url(store, settings) or f"sqlite:///{settings.home / 'store.db'}"
    return open_store(url, keys=secret_keys(key_file, settings))


def store_url(option: str | None, settings: Settings) -> str | None:
    """The URL of --store, or else of HEADRACE_STORE, which no list of processes shows."""
    url = option or (settings.store.get_secret_value() if settings.store else None)
    if url is not None:
        parse_store(url)
    return url


def secret_keys(file: Path | None, settings: Settings) -> KeySource | None:
    """The keys of --secret-key-file, or else of HEADRACE_SECRET_KEY; None: there are neither."""
    from headrace.store.core.keyring import VARIABLE, GivenKeys, KeyFile, read_keys

    if file is not None:
        return KeyFile.checked(file)
    if settings.secret_key is None:
        return None
    try:
        return GivenKeys(read_keys(settings.secret_key.get_secret_value()))
    except ValueError as error:
        raise BadSetting(f"environment variable {VARIABLE} can not be used: {error}") from None


def parse_store(url: str) -> URL:
    from sqlalchemy import make_url
    from sqlalchemy.exc import ArgumentError

    from headrace.store.core.engine import FORMS

    try:
        return make_url(url)
    except (ArgumentError, ValueError) as error:  # ValueError: the port is not a number
        # The text may hold a password, so it is not repeated.
        raise BadSetting(f"the store's URL can not be read; write it as {FORMS}") from error
