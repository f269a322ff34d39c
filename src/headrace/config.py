"""Settings: the only module that reads the environment.

Each setting is a `HEADRACE_…` variable; a command's option of the same name takes precedence.
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
    """Raise ValueError when the token can't be sent in an HTTP header.

    The message never repeats the token.
    """
    if not token:
        raise ValueError("it is empty; write the token into it, or unset it")
    if not all("!" <= character <= "~" for character in token):
        raise ValueError("a token has printable ASCII characters and no spaces")


# Variables that a coordinator needs and a worker must not have: they give access to the store.
COORDINATOR_ONLY = ("HEADRACE_STORE", "HEADRACE_SECRET_KEY")


class Settings(BaseSettings):
    """Everything that can be set by the environment."""

    # A value may be a secret, so no validation error repeats it.
    model_config = SettingsConfigDict(
        env_prefix="HEADRACE_", extra="ignore", frozen=True, hide_input_in_errors=True
    )

    token: SecretStr | None = None  # shown by clients and workers, checked by coordinators
    store: SecretStr | None = None  # of a coordinator; a secret because its URL may hold a password
    secret_key: SecretStr | None = None  # the key that encrypts secrets in the store
    home: Path = Path(".headrace")  # the embedded store, warehouse, logs and outboxes
    cache_dir: Path = _cache_home()  # jars and class-data archives, shared by all projects
    ivy_settings: Path | None = None  # Ivy's ivysettings.xml, for repositories of one's own
    allow_jars: str = ""  # of a worker: jars that jobs may ask for, patterns with commas between
    containers: Path | None = None  # default: containers.conf in the home
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
    """JAVA_HOME: not a variable of ours, but it decides which Java Spark uses."""
    value = os.environ.get("JAVA_HOME")
    return Path(value) if value else None


def variables() -> dict[str, str]:
    """The whole environment, to substitute `${NAME}` in a job file."""
    return dict(os.environ)


def child_environment(**extra: str) -> dict[str, str]:
    """The environment for a child process: our own, with `extra` on top."""
    return {**os.environ, **extra}


def drop_coordinator_variables() -> None:
    """Remove the `COORDINATOR_ONLY` variables from this process's environment.

    A worker calls it before the JVM starts: the JVM, and whatever it starts, inherits the rest.
    """
    for name in COORDINATOR_ONLY:
        os.environ.pop(name, None)
