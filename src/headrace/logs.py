"""How log records are written: a constant message, then its facts as fields.

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
_NOISE = frozenset({"color_message"})  # uvicorn's own
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
    "connection_string",  # Azure's holds the account's key
    "private_key",
    "sse_key",  # with which S3 encrypts, when the customer brings it
)
# Too short to be looked for inside of words.
_SECRET_PARTS = frozenset({"cookie", "pass", "pwd", "sas"})
_NOT_SECRET = frozenset({"token_spent", "commit_token"})
REDACTED = "******"
ONCE_REMEMBERED_MAX = 10_000  # things that were said; the oldest may be said again


class Once:
    """For what is worth one line, however often it happens. Used by one thread."""

    def __init__(self) -> None:
        self._said: OrderedDict[Hashable, None] = OrderedDict()  # as an ordered set

    def first(self, what: Hashable) -> bool:
        if what in self._said:
            return False
        self._said[what] = None
        if len(self._said) > ONCE_REMEMBERED_MAX:
            self._said.popitem(last=False)
        return True


def is_secret(name: str) -> bool:
    """Whether a field or option of this name holds something nobody should read."""
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
    """The fields of a record, as text; those that hold secrets by name are redacted."""
    return " ".join(f"{key}={value}" for key, value in _fields(record).items())


class TextFormatter(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        line = super().format(record)
        fields = facts_of(record)
        head, newline, trace = line.partition("\n")
        return f"{head}  {fields}{newline}{trace}" if fields else line


class JsonFormatter(logging.Formatter):
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
    handler = logging.StreamHandler(sys.stderr)
    handler.setLevel(level)  # others may listen to more than is written here
    handler.setFormatter(
        JsonFormatter()
        if fmt == "json"
        else TextFormatter("%(asctime)s %(levelname)-7s %(name)s: %(message)s")
    )
    logging.basicConfig(level=level, handlers=[handler], force=True)
    for chatty in ("py4j", "httpx2", "alembic", "uvicorn"):
        logging.getLogger(chatty).setLevel(logging.WARNING)
