"""What a Jdbc source and a Jdbc sink have in common: how their options lead to a database."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

from headrace.connectors.jdbc.database import STATEMENT_TIMEOUT_S, Database
from headrace.connectors.jdbc.dialect import dialect_of
from headrace.errors import Refused


def database_of(plugin: str, options: Mapping[str, Any]) -> Database:
    """`plugin` for people, such as "sink Jdbc-1"."""
    url = str(options.get("url") or "")
    try:
        dialect = dialect_of(url)
    except Refused as refused:
        raise Refused(f"{plugin}: {refused}") from None
    given = cast("Mapping[str, Any]", options.get("properties") or {})
    timeout_s = int(options.get("transaction_timeout_sec") or -1)
    return Database(
        plugin=plugin,
        url=url,
        driver=str(options.get("driver") or dialect.driver),
        user=_text(options.get("user")),
        password=_text(options.get("password")),
        extra={key: str(value) for key, value in given.items()},
        connect_timeout_s=int(options.get("connection_check_timeout_sec") or 30),
        statement_timeout_s=timeout_s if timeout_s > 0 else STATEMENT_TIMEOUT_S,
    )


def _text(value: Any) -> str | None:
    return None if value is None else str(value)
