"""Logging: how log records are formatted, and which of their fields are redacted.

A record is a constant message, and its facts are fields:

log.info("task assigned", extra={"task": …, "worker": …})
"""

from __future__ import annotations

import json
import logging
import sys
from collections import OrderedDict
from collections.abc import Hashable, Mapping
from typing import Literal

_STANDARD = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}
_NOISE = frozenset({"color_message"})  # set by uvicorn on its records
_SECRET_WORDS = (
    "password",
    "passwd",
    "passphrase",
    "secret",
    "token",
    "auth",
    "credential",
    "access_key",
    "accesskey",
    "account_key",
    "accountkey",
    "storage_key",
    "storagekey",
    "api_key",
    "apikey",
    "connection_string",  # Azure's contains the account key
    "private_key",
    "sse_key",  # the customer-provided key of S3 server-side encryption
)
# Too short to be searched inside of words; they must be a whole part of the name.
_SECRET_PARTS = frozenset({"cookie", "pass", "pwd", "sas"})
_NOT_SECRET = frozenset({"token_spent", "commit_token"})
REDACTED = "******"
ONCE_REMEMBERED_MAX = 10_000  # keys; beyond that the oldest is forgotten, and may be logged again


class Once:
    """Remembers what was logged, for events worth one line however often they occur.

    Not thread-safe: for use by one thread.
    """

    def __init__(self) -> None:
        self._seen: OrderedDict[Hashable, None] = OrderedDict()  # as an ordered set

    def first(self, what: Hashable) -> bool:
        """Whether this is the first time that `what` comes up."""
        if what in self._seen:
            return False
        self._seen[what] = None
        if len(self._seen) > ONCE_REMEMBERED_MAX:
            self._seen.popitem(last=False)
        return True


def is_secret(name: str) -> bool:
    """Whether a field or option of this name holds a secret."""
    lowered = name.lower().replace("-", "_").replace(".", "_")
    if lowered in _NOT_SECRET:
        return False
    named = any(word in lowered for word in _SECRET_WORDS)
    return named or not _SECRET_PARTS.isdisjoint(lowered.split("_"))


def _fields(record: logging.LogRecord) -> Mapping[str, object]:
    return {
        key: REDACTED if is_secret(key) else value
        for key, value in vars(record).items()
        if key not in _STANDARD | _NOISE
    }


def facts_of(record: logging.LogRecord) -> str:
    """The fields of a record as `key=value` text; those whose name says secret are redacted."""
    return " ".join(f"{key}={value}" for key, value in _fields(record).items())


class TextFormatter(logging.Formatter):
    """One line for people: the message, then its fields; a traceback follows below."""

    def format(self, record: logging.LogRecord) -> str:
        line = super().format(record)
        fields = facts_of(record)
        head, newline, trace = line.partition("\n")
        return f"{head}  {fields}{newline}{trace}" if fields else line


class JsonFormatter(logging.Formatter):
    """One JSON object a line."""

    def format(self, record: logging.LogRecord) -> str:
        entry: dict[str, object] = {
            "at": self.formatTime(record),
            "level": record.levelname,
            "logger": record.name,
            "message": record.getMessage(),
            **_fields(record),
        }
        if record.exc_info:
            entry["trace"] = self.formatException(record.exc_info)
        return json.dumps(entry, default=str)


def set_up(*, level: str, fmt: Literal["text", "json"]) -> None:
    """Write log records of this level and above to standard error."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setLevel(level)  # of this handler alone: others, such as the job log, may take more
    handler.setFormatter(
        JsonFormatter()
        if fmt == "json"
        else TextFormatter("%(asctime)s %(levelname)-7s %(name)s: %(message)s")
    )
    logging.basicConfig(level=level, handlers=[handler], force=True)
    for chatty in ("py4j", "httpx2", "alembic", "uvicorn"):
        logging.getLogger(chatty).setLevel(logging.WARNING)
