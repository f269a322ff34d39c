"""Settings. The only reader of the environment.

Each one is a `HEADRACE_…` variable; a command's option of the same name wins over it.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Literal

from pydantic import SecretStr, field_validator
from pydantic_settings import BaseSettings, SettingsConfigDict


def _cache_home() -> Path:
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "headrace"


def check_token(token: str) -> None:
    """Raises ValueError when it can't stand in a header; the text never repeats it."""
    if not token:
        raise ValueError("it is empty; write the token into it, or unset it")
    if not all("!" <= character <= "~" for character in token):
        raise ValueError("a token has printable ASCII characters and no spaces")


# What a coordinator needs and a worker must not have.
OF_COORDINATORS = ("HEADRACE_STORE", "HEADRACE_SECRET_KEY")


class Settings(BaseSettings):
    # A value may be a secret, so no error repeats it.
    model_config = SettingsConfigDict(
        env_prefix="HEADRACE_", extra="ignore", frozen=True, hide_input_in_errors=True
    )

    token: SecretStr | None = None  # what clients and workers show, and what a coordinator asks for
    store: SecretStr | None = None  # of a coordinator; its URL may hold a password
    secret_key: SecretStr | None = None  # what secrets in the store are encrypted under
    home: Path = Path(".headrace")  # the embedded store, warehouse, logs and outboxes
    cache_dir: Path = _cache_home()  # jars and class-data archives, shared by all projects
    containers: Path | None = None  # where workers are started; containers.conf in the home
    log_level: Literal["DEBUG", "INFO", "WARNING", "ERROR"] = "INFO"
    log_format: Literal["text", "json"] = "text"
    seams: str = ""  # tests only: `name=kill;name=stop@3`

    @field_validator("token")
    @classmethod
    def _usable(cls, token: SecretStr | None) -> SecretStr | None:
        if token is not None:
            check_token(token.get_secret_value())
        return token


def java_home() -> Path | None:
    """JAVA_HOME, which is not ours but decides which Java Spark takes."""
    value = os.environ.get("JAVA_HOME")
    return Path(value) if value else None


def variables() -> dict[str, str]:
    """The environment, for `${NAME}` in a job file."""
    return dict(os.environ)


def child_environment(**extra: str) -> dict[str, str]:
    """The environment of a process we start: ours, and `extra`."""
    return {**os.environ, **extra}


def drop_what_is_of_coordinators() -> None:
    """From our own environment, which a JVM and whatever it starts would inherit."""
    for name in OF_COORDINATORS:
        os.environ.pop(name, None)
